package main

import (
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/macos"
)

// newNative makes this machine itself.
func newNative(host providers.Host) (providers.Provider, error) { return macos.New(host), nil }

// macStage plays a part of a run, where this program was started for one.
func macStage(args []string) (code int, is bool) {
	if len(args) > 0 && args[0] == macos.Verb {
		return macos.Main(args[1:]), true
	}
	return 0, false
}
