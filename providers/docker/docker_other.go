//go:build !unix

package docker

import "github.com/pccrun/pccrun/providers"

// New is there on Linux and macOS.
func New(providers.Host, Options) (providers.Provider, error) {
	return nil, &EngineError{Text: providers.StartsNone("docker"), Advice: providers.Elsewhere}
}
