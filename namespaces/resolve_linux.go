package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// inode is a directory as a survey has seen it. It is remembered for what lies in
// it: of hundreds of rules most share what is on the way. A survey is one look, and
// what has changed since then the launch finds by the inode when it opens it.
type inode struct{ dev, ino uint64 }

// anchor pins what holds something that must stay where it is.
func (f *finder) anchor(path string) {
	node := Directory
	at, ok := f.dirs[path]
	if !ok {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			f.err = fmt.Errorf("lstat %s: %w", path, err)
			return
		}
		node, at = nodeOf(st.Mode), inode{device(st.Dev), st.Ino}
	}
	f.put(Place{Path: path, Node: node, Dev: at.dev, Ino: at.ino, Access: f.around(path), Pin: true, Protect: true, Why: "holds what must stay where it is"})
}

// unknown returns the length of the first part of a path that is not known.
func (f *finder) unknown(path string) int {
	for end := len(path); ; {
		dir := strings.LastIndexByte(path[:end], '/')
		if _, ok := f.dirs[path[:max(dir, 0)]]; ok {
			return end
		}
		if dir <= 0 {
			return 1
		}
		end = dir
	}
}

// resolve adds path as a place. A link on the way is followed as the kernel
// would, and each link is a place of its own, since in a fresh directory it
// must be made again. Links that the command itself could have made never
// carry a grant: whoever can write there could point them anywhere. Nor do those
// of the workspace, where it is read-only: whoever wrote the repository chose
// where they lead.
func (f *finder) resolve(path string, access profiles.Access, why string, depth int) {
	if f.err != nil {
		return
	}
	if depth > 40 {
		f.err = fmt.Errorf("filesystem %s: %w", path, unix.ELOOP)
		return
	}
	for i := f.unknown(path); i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		prefix := path[:i]
		var st unix.Stat_t
		err := unix.Lstat(prefix, &st)
		if err != nil {
			if err == unix.EACCES && f.owns(filepath.Dir(prefix)) {
				// The command has the same owner: it could make it searchable,
				// and what is below would be covered by nothing.
				f.err = fmt.Errorf("filesystem %s: %s: %s cannot be searched, and the command could change that (%s)", path, access, filepath.Dir(prefix), why)
				return
			}
			if errors.Is(err, fs.ErrNotExist) || err == unix.ENOTDIR || err == unix.EACCES {
				f.put(Place{Path: path, Node: Absent, Access: access, Why: why})
				return
			}
			f.err = fmt.Errorf("lstat %s: %w", prefix, err)
			return
		}
		n := nodeOf(st.Mode)
		if n == Link {
			text, err := os.Readlink(prefix)
			if err != nil {
				f.err = err
				return
			}
			if access > profiles.Hide && f.decider.Decide(filepath.Dir(prefix)).Access >= profiles.Overlay {
				f.err = fmt.Errorf("filesystem %s: %s: leads through the link %s, which the command could have made (%s)", path, access, prefix, why)
				return
			}
			to := text
			if !strings.HasPrefix(to, "/") {
				to = filepath.Join(filepath.Dir(prefix), to)
			}
			real := filepath.Join(to, path[i:])
			if access > profiles.Hide && below(prefix, f.policy.Workspace) && f.decider.Decide(real).Access < access {
				f.err = fmt.Errorf("filesystem %s: %s: leads through the link %s, which is the workspace's, to %s (%s)", path, access, prefix, real, why)
				return
			}
			if access > profiles.Hide && planted(filepath.Dir(prefix), &st) {
				f.err = fmt.Errorf("filesystem %s: %s: leads through the link %s, which uid %d has put where everybody may (%s)", path, access, prefix, st.Uid, why)
				return
			}
			f.put(Place{Path: prefix, Node: Link, Link: text, Access: access, Why: why})
			// Where it leads may have a rule of its own: the stricter wins, but
			// for the rule that merely hides the homes as a whole.
			if d := f.decider.Decide(real); d.Rule.Path != f.policy.Home && d.Rule.Path != "/" && d.Access < access {
				access = d.Access
			}
			f.resolve(filepath.Clean(real), access, why, depth+1)
			return
		}
		if n == Directory {
			f.dirs[prefix] = inode{device(st.Dev), st.Ino}
		}
		if i == len(path) {
			if n == File && st.Nlink == 1 {
				f.single[path] = true
			}
			f.put(Place{Path: path, Node: n, Dev: device(st.Dev), Ino: st.Ino, Access: access, Why: why})
		}
	}
}

// owns reports whether a directory is the user's own.
func (f *finder) owns(dir string) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && int(st.Uid) == os.Getuid()
}

// planted reports whether a link stands where others may make names, such as
// /tmp, and is somebody else's: as the kernel has it with protected_symlinks
// (proc_sys_fs(5)), which does not count where we follow by ourselves.
func planted(dir string, link *unix.Stat_t) bool {
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil {
		return true
	}
	return st.Mode&0o002 != 0 && link.Uid != st.Uid && int(link.Uid) != os.Getuid()
}
