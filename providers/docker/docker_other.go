//go:build !linux

package docker

import "github.com/pccrun/pccrun/providers"

// New is there on Linux only: what a container is shown is found out there.
func New(providers.Host, Options) (providers.Provider, error) {
	return nil, &EngineError{Text: "not built for this system yet", Advice: "it runs on Linux, in WSL too"}
}
