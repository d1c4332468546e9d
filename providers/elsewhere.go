package providers

import "runtime"

// Elsewhere says what of pccrun is to be used where this system starts no sandbox.
const Elsewhere = "use pccrun for Linux in WSL 2: there native runs, and docker and the clouds are started"

// StartsNone is the refusal where this system starts no sandbox, with [Elsewhere] for its hint: neither one of its own nor one
// of an engine or a cloud, whose flow needs locks, signals and owners of files that are Unix's.
func StartsNone(what string) string {
	system := runtime.GOOS
	if system == "windows" {
		system = "Windows"
	}
	return what + ": pccrun starts no sandbox from " + system
}
