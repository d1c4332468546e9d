//go:build !linux

package inside

import (
	"fmt"
	"os"
)

// Main is there on Linux only.
func Main([]string) int {
	fmt.Fprintln(os.Stderr, "pccrun: inside: this is a part of Linux containers")
	return 125
}
