//go:build !launcher

package main

import (
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/daytona"
	"github.com/pccrun/pccrun/providers/docker"
	"github.com/pccrun/pccrun/providers/e2b"
)

// newProvider makes a provider: the list of those that are built. One that is not is nil.
var newProvider = func(name string, req *profiles.Request, host providers.Host) (providers.Provider, error) {
	switch name {
	case providers.Native:
		return thisMachine(req, host)
	case docker.Name:
		o := docker.Options{Runtime: req.Runtime, Image: req.DockerImage, Network: req.DockerNetwork}.Complete(&req.Host)
		req.DockerImage = o.Image
		return docker.New(host, o)
	case e2b.Name:
		host.Launcher = "/proc/self/exe" // all of pccrun, without itself a second time
		return e2b.New(host, e2b.Options{}), nil
	case daytona.Name:
		host.Launcher = "/proc/self/exe"
		return daytona.New(host), nil
	}
	return nil, nil
}

// become is nil: this is the program that has all providers.
var become func() int
