package main

import (
	"os"
	"path/filepath"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/test/bare"
)

// bareMain is pccrun with a provider for tests in the place of each that is not native.
func bareMain() {
	newProvider = func(name string, req *profiles.Request, host providers.Host) (providers.Provider, error) {
		if name == providers.Native {
			return thisMachine(req, host)
		}
		return &bare.Provider{As: name, Root: os.Getenv("BARE_ROOT"), Gone: os.Getenv("BARE_GONE") != "", Dir: filepath.Join(host.StateDir, "bare")}, nil
	}
	main()
}

func init() { started["bare"] = bareMain }
