//go:build !linux

// Command others is `make test-others`, on Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "test/others: the suites run on Linux")
	os.Exit(1)
}
