//go:build !linux

// Command vm is `make test-vm`, on Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "test/vm: machines are booted on Linux only")
	os.Exit(1)
}
