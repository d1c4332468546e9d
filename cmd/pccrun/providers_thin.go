//go:build thin && linux

package main

import (
	"os"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// newProvider makes this machine: the launcher has no client of another.
func newProvider(name string, req *profiles.Request, host providers.Host) (providers.Provider, error) {
	if name == providers.Native {
		return thisMachine(req, host)
	}
	return nil, nil
}

// become has the whole program do what this one was asked for.
var become = func() int { return runWhole(os.Args[1:]) }
