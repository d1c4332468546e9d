//go:build ignore

// Compress writes a file by gzip: the same bytes for the same text, whatever gzip a machine has. It is there whole or not at
// all, for builds at the same time: until then it is beside FROM.
//
//	go run cmd/pccrun/compress.go FROM TO
package main

import (
	"compress/gzip"
	"errors"
	"io"
	"log"
	"os"
	"path/filepath"
)

func main() {
	if err := compress(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func compress(name, to string) error {
	from, err := os.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.CreateTemp(filepath.Dir(name), filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	small, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err == nil {
		_, err = io.Copy(small, from)
		err = errors.Join(err, small.Close())
	}
	if err = errors.Join(err, out.Chmod(0o644), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), to)
}
