//go:build linux || darwin

package beneath

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// KindOf returns what a mode says (st_mode).
func KindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Link
	}
	return Special
}

// Gone reports whether an error says that nothing stands at a path that is reached through no link.
func Gone(err error) bool {
	return err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP
}

// Shorten makes a path that the workspace chose fit into a message.
func Shorten(path string) string {
	if len(path) > 100 {
		path = path[:100] + "…"
	}
	return fmt.Sprintf("%q", path)
}
