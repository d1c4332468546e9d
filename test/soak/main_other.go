//go:build !linux

// Command soak is `make soak`, on Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "test/soak: there is nothing to launch here yet")
	os.Exit(1)
}
