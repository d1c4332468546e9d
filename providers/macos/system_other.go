//go:build unix && !darwin

package macos

// thisSystem is none on which anything runs: tests put one in its place.
var thisSystem = func() system { return system{exec: "/usr/bin/sandbox-exec"} }

func systemVersion() string { return "" }
