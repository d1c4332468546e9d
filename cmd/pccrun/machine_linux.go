package main

import (
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/native"
)

// thisMachine is the provider of this machine.
func thisMachine(req *profiles.Request, host providers.Host) (providers.Provider, error) {
	p, err := native.New(req, host)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// machineStage is macOS's alone.
func machineStage([]string) (code int, is bool) { return 0, false }
