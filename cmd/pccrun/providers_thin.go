//go:build thin && linux

package main

import (
	"os"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// newProvider makes none: the launcher has none of their clients.
func newProvider(string, *profiles.Request, providers.Host) (providers.Provider, error) {
	return nil, nil
}

// become has the whole program do what this one was asked for.
var become = func() int { return runWhole(os.Args[1:]) }
