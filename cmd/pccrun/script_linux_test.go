package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func init() { programs["remap"], programs["notify"] = remap, notify }

// notify is a program that wants an inotify instance.
func notify() {
	if _, err := unix.InotifyInit1(0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// remap is a program that writes an x into a file through a shared mapping of it.
func remap() {
	f, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
	if err == nil {
		var b []byte
		if b, err = unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			b[0] = 'x'
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
