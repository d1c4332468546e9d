//go:build !linux

package docker

import "github.com/pccrun/pccrun/providers"

// New is there on Linux only. The engines of other systems run in a virtual machine: a directory that it
// shares carries no unix socket, by which the launcher and its part inside a container speak.
func New(providers.Host, Options) (providers.Provider, error) {
	return nil, &EngineError{Text: "containers run in a virtual machine here, which pccrun cannot use yet", Advice: "run pccrun in Linux: in WSL, or in a virtual machine of your own"}
}
