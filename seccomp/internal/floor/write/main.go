// Command write writes the floor filters as NAME.GOARCH.bpf into a directory.
//
//	write -out DIR
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pccrun/pccrun/seccomp/internal/floor"
)

func main() {
	out := flag.String("out", "", "write the filters to this directory")
	flag.Parse()
	for _, kind := range []floor.Kind{floor.Floor, floor.Nested} {
		for _, goarch := range []string{"amd64", "arm64"} {
			b, err := floor.Write(kind, goarch)
			if err == nil {
				err = os.WriteFile(filepath.Join(*out, string(kind)+"."+goarch+".bpf"), b, 0o644)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "write:", err)
				os.Exit(1)
			}
		}
	}
}
