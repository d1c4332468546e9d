package survey

import (
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace"
)

// folds looks at one name of each file system that the workspace, or another tree, has places on, or at its own where it
// has none: whatever that is, spelled with other capitals it must not be there.
func (f *finder) folds(trees []Tree) (dir Folding) {
	for _, t := range append([]Tree{{State: true, Query: workspace.Query{Root: f.policy.Workspace}}}, trees...) {
		var seen []uint64
		for _, p := range f.places {
			if p.Ino == 0 || !Below(p.Path, t.Query.Root) || p.Path == t.Query.Root || slices.Contains(seen, p.Dev) || respell(filepath.Base(p.Path)) == filepath.Base(p.Path) {
				continue
			}
			seen = append(seen, p.Dev)
			if dir = foldedAt(p.Path); dir.Dir != "" {
				return dir
			}
		}
		switch {
		case len(seen) > 0:
		case t.State:
			dir = foldedAt(t.Query.Root) // what is in a cache can be a long list
		default:
			dir = foldedIn(t.Query.Root)
		}
		if dir.Dir != "" {
			return dir
		}
	}
	return Folding{}
}

// coveredFold reports whether the kernel itself folds the names of a directory.
func coveredFold(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && foldsItself(int64(fs.Type))
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
