package main

import (
	"bytes"
	"fmt"
)

// A cpioArchive is an initial file system as the kernel reads it: "newc",
// Documentation/driver-api/early-userspace/buffer-format.rst.
type cpioArchive struct {
	bytes.Buffer
	inode int
}

// The kinds of entries, in the mode's high bits: inode(7).
const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
)

// add appends an entry.
func (a *cpioArchive) add(name string, mode int, data []byte) {
	a.inode++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.Write(data)
	a.pad()
}

func (a *cpioArchive) pad() { a.Write(make([]byte, -a.Len()&3)) }

// end returns the archive with its last entry.
func (a *cpioArchive) end() []byte {
	a.add("TRAILER!!!", 0, nil)
	return a.Bytes()
}
