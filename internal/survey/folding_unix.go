//go:build unix

package survey

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// foldedAt returns the directory that holds a path, if that can be reached by
// another spelling of its last name.
func foldedAt(path string) Folding {
	dir, name := filepath.Split(path)
	other := respell(name)
	var st, same unix.Stat_t
	if other == name || unix.Lstat(dir+other, &same) != nil || unix.Lstat(path, &st) != nil || st.Dev != same.Dev || st.Ino != same.Ino {
		return Folding{}
	}
	// A directory that lists both has two names for one file.
	if list, err := os.ReadDir(dir); err != nil || slices.ContainsFunc(list, func(e os.DirEntry) bool { return e.Name() == other }) {
		return Folding{}
	}
	dir = filepath.Clean(dir)
	return Folding{dir, coveredFold(dir)}
}

// foldedIn is [foldedAt] of a name in a directory, or of its own where it has none.
func foldedIn(dir string) Folding {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		if name := e.Name(); respell(name) != name {
			return foldedAt(filepath.Join(dir, name))
		}
	}
	return foldedAt(dir)
}

// respell turns capitals into small letters, and the other way round.
func respell(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r ^ 0x20
		}
		return r
	}, name)
}
