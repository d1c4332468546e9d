//go:build !linux

package main

// specVerb says that there is no plan here that a bundle could be made of.
func specVerb(args []string) int {
	switch req, o, err := readSpec(args); {
	case err != nil:
		return failUsage(err)
	case o.format == "seatbelt":
		return specSeatbelt(req, o.home)
	}
	return fail("spec: bundles are made on Linux only", "--format seatbelt prints a profile for macOS")
}
