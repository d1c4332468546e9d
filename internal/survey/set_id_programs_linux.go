package survey

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// setIDs pins the programs that give who runs them rights (set-user-ID,
// set-group-ID, file capabilities), wherever the command may write. Root's are
// the command's own by the map of owners, and what is written through a shared
// mapping keeps the bit and the attribute, chmod(2). Only root pays for the
// walk, and at each launch: neither leaves a mark on the directory.
func (f *finder) setIDs() error {
	for _, root := range f.writable() {
		found, err := setIDFiles(root)
		if err != nil {
			return err
		}
		for _, p := range found {
			p.Access, p.Pin, p.Protect = f.atMost(p.Path, profiles.Read), true, true
			f.put(p)
		}
	}
	return nil
}

// writable lists what the command may write, topmost only.
func (f *finder) writable() []string {
	roots := []string{f.policy.Workspace}
	for _, p := range f.places {
		if p.Access == profiles.Write && (p.Node == Directory || p.Node == File) {
			roots = append(roots, p.Path)
		}
	}
	slices.SortFunc(roots, Less)
	last := ""
	return slices.DeleteFunc(roots, func(path string) bool {
		if last != "" && Below(path, last) {
			return true
		}
		last = path
		return false
	})
}

const whySetID = "a set-user-ID or set-group-ID program"

// deepest bounds the walk of a launch. A directory that cannot be read ends it.
var deepest = beneath.Limits{Entries: 16 << 20, Depth: 1 << 20, Time: time.Minute, Shut: func(path string, err error) error {
	return &os.PathError{Op: "open", Path: beneath.Shorten(path), Err: err}
}}

// setIDFiles lists the regular files of a tree, or the file itself, that have
// one of the bits or capabilities. What vanishes meanwhile has none.
func setIDFiles(root string) (found []Place, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return nil, &os.PathError{Op: "lstat", Path: root, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		gives, err := givesRights(unix.AT_FDCWD, root, &st)
		if gives {
			found = []Place{{Path: root, Node: File, Dev: Device(st.Dev), Ino: st.Ino, Why: whySetID}}
		}
		return found, err
	}
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(fd)
	err = beneath.Walk(fd, deepest, func(dir int, name string, st *unix.Stat_t, below func() string) error {
		gives, err := givesRights(dir, name, st)
		if !gives {
			return err
		}
		file := Place{Path: root + "/" + below(), Node: File, Dev: Device(st.Dev), Ino: st.Ino, Why: whySetID}
		if len(file.Path) >= unix.PathMax {
			if file, err = holderOf(root, file.Path); err != nil {
				return err
			}
		}
		if !slices.Contains(found, file) {
			found = append(found, file)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for set-ID programs in %s: %w", root, err)
	}
	slices.SortFunc(found, func(a, b Place) int { return strings.Compare(a.Path, b.Path) })
	return found, nil
}

// holderOf returns the directory that is pinned in place of a file below root whose path is too long to be mounted on: the
// last of the path's first half.
func holderOf(root, path string) (Place, error) {
	dir := path[:max(strings.LastIndexByte(path[:unix.PathMax/2], '/'), len(root))]
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return Place{}, &os.PathError{Op: "lstat", Path: beneath.Shorten(dir), Err: err}
	}
	return Place{Path: dir, Node: Directory, Dev: Device(st.Dev), Ino: st.Ino, Why: "it holds " + whySetID + " deeper than a path can be"}, nil
}

// givesRights reports whether a file has one of the bits, or is a program with
// capabilities of its own, capabilities(7).
func givesRights(dir int, name string, st *unix.Stat_t) (bool, error) {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return false, nil
	case st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return true, nil
	case st.Mode&0o111 == 0:
		return false, nil
	}
	path := name
	if dir != unix.AT_FDCWD {
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir, name)
	}
	switch _, err := unix.Lgetxattr(path, "security.capability", nil); err {
	case nil:
		return true, nil
	case unix.ENODATA, unix.ENOTSUP, unix.ENOENT:
		return false, nil
	default:
		return false, err
	}
}
