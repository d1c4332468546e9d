//go:build linux && !amd64

package escape

func kernelCallsArch() []kernelCall { return nil }

var archHelpers map[string]func(args []string) int
