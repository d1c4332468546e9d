//go:build !thin

package main

import (
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/docker"
	"github.com/pccrun/pccrun/providers/e2b"
)

// newProvider makes a provider that is not this machine itself: the list of those that are
// built. One that is not is nil.
var newProvider = func(name string, req *profiles.Request, host providers.Host) (providers.Provider, error) {
	if name == providers.Native {
		return newNative(host)
	}
	if name == docker.Name {
		return docker.New(host, docker.Options{Runtime: req.Runtime, Image: req.DockerImage, Ask: req.Ask})
	}
	if name == e2b.Name {
		return e2b.New(host, e2b.Options{}), nil
	}
	return nil, nil
}

// become is nil: this is the program that has all providers.
var become func() int
