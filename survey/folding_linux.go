package survey

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// folds looks at one name of each file system that the workspace has places on,
// or at the workspace's own where it has none: whatever that is, spelled with
// other capitals it must not be there.
func (f *finder) folds() Folding {
	var seen []uint64
	for _, p := range f.places {
		if p.Ino == 0 || !Below(p.Path, f.policy.Workspace) || p.Path == f.policy.Workspace || slices.Contains(seen, p.Dev) || respell(filepath.Base(p.Path)) == filepath.Base(p.Path) {
			continue
		}
		seen = append(seen, p.Dev)
		if dir := foldedAt(p.Path); dir.Dir != "" {
			return dir
		}
	}
	if len(seen) == 0 {
		return foldedAt(f.policy.Workspace)
	}
	return Folding{}
}

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
	var fs unix.Statfs_t
	return Folding{dir, unix.Statfs(dir, &fs) == nil && foldsItself(int64(fs.Type))}
}

// foldsItself reports whether the kernel keeps one entry for all spellings of a
// name on a file system of this type: d_compare or d_add_ci in its sources, Linux 6.12. For
// others the server folds the names, and the kernel knows nothing of it.
func foldsItself(kind int64) bool {
	const exfat = 0x2011bab0
	switch kind {
	case unix.EXT4_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.MSDOS_SUPER_MAGIC, exfat:
		return true
	}
	return false
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
