//go:build unix && !darwin

package macos

import "github.com/pccrun/pccrun/providers"

// thisSystem is none on which anything runs: tests put one in its place.
var thisSystem = func(providers.Host) system { return system{exec: "/usr/bin/sandbox-exec"} }

func systemVersion() string { return "" }
