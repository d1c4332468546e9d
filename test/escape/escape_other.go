//go:build !linux && !darwin

package escape

import (
	"fmt"
	"os"
)

// Usage is the help of the verb.
const Usage = "usage: pccrun escape\n\nThe probes run on Linux and macOS only.\n"

// Main says that the suite runs on Linux and macOS only, and returns 3: nothing ran.
func Main([]string) int {
	fmt.Fprintln(os.Stderr, "pccrun: escape: the probes run on Linux and macOS only")
	return 3
}

// Hidden is false: no verb of the suite exists here.
func Hidden([]string) (code int, is bool) { return 0, false }
