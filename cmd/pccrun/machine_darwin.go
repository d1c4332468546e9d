package main

import (
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/macos"
)

// thisMachine makes the provider of this machine itself.
func thisMachine(_ *profiles.Request, host providers.Host) (providers.Provider, error) {
	return macos.New(host), nil
}

// machineStage plays a part of a run, where this program was started for one.
func machineStage(args []string) (code int, is bool) {
	if len(args) > 0 && args[0] == macos.Verb {
		return macos.Main(args[1:]), true
	}
	return 0, false
}
