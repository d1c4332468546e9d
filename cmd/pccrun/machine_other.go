//go:build !linux

package main

import (
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// thisMachine is not built for this system yet.
func thisMachine(*profiles.Request, providers.Host) (providers.Provider, error) { return nil, nil }
