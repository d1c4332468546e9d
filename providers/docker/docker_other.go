//go:build !unix

package docker

import "github.com/pccrun/pccrun/providers"

// New is there on Linux and macOS.
func New(providers.Host, Options) (providers.Provider, error) {
	return nil, &EngineError{Text: "containers need Linux or macOS", Advice: "run pccrun in WSL"}
}
