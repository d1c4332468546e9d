//go:build unix

package survey

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// identity returns what a file has in common with its other names, and how many it has.
func identity(info fs.FileInfo) (file any, names uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, 0
	}
	return [2]uint64{uint64(st.Dev), st.Ino}, uint64(st.Nlink)
}

// Device turns st_dev into what statx(2) reports: major<<32 | minor.
func Device(dev uint64) uint64 { return uint64(unix.Major(dev))<<32 | uint64(unix.Minor(dev)) }
