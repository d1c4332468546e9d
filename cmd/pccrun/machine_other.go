//go:build !linux && !darwin

package main

import (
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// thisMachine is not built for this system yet.
func thisMachine(*profiles.Request, providers.Host) (providers.Provider, error) { return nil, nil }

// machineStage is macOS's alone.
func machineStage([]string) (code int, is bool) { return 0, false }
