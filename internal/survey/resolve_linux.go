package survey

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
)

// paths are the places of a survey, by what stands at each path and where its links lead. The first error ends it.
type paths struct {
	policy  *profiles.Policy
	places  []Place
	seen    map[string]int   // by path, index into places
	dirs    map[string]inode // directories that are known, and no link is on the way to them
	single  map[string]bool  // files that have no other name, as known
	roots   []string         // of trees that lie in another: mounts by which the launcher reaches them
	commons []string         // git directories outside the workspace that are shown for it
	own     string           // pccrun's own directory
	notes   []string
	err     error

	tightening bool // the rule is of a table that opens nothing, wherever it leads

	earliest     func() time.Time // see [Options.Earliest]
	since, asked time.Time        // what it said, and when
}

// inode is a directory as a survey has seen it. It is remembered, since most of hundreds of rules share the
// directories on the way to their paths. A launch opens what it mounts, and compares the inode: so it finds what has
// changed since the survey.
type inode struct{ dev, ino uint64 }

// anchor pins what holds something that must stay where it is.
func (f *paths) anchor(path string) {
	node := Directory
	at, ok := f.dirs[path]
	if !ok {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			f.err = fmt.Errorf("lstat %s: %w", path, err)
			return
		}
		node, at = NodeOf(st.Mode), inode{Device(st.Dev), st.Ino}
	}
	protect := !slices.Contains(f.roots, path)
	f.put(Place{Path: path, Node: node, Dev: at.dev, Ino: at.ino, Access: f.around(path), Pin: true, Protect: protect, Why: "contains files that must not be moved"})
}

// unknown returns the length of the first part of a path that is not known.
func (f *paths) unknown(path string) int {
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
// would, and is a place of its own, since it has to be made again in a private
// directory. A link grants nothing if the command could have made it: it could
// lead anywhere. Nor does one in a read-only workspace: whoever wrote the
// repository chose where it leads.
func (f *paths) resolve(path string, access profiles.Access, why string, depth int) {
	if f.err != nil {
		return
	}
	if depth > 40 {
		f.err = fmt.Errorf("filesystem %s: %w", path, unix.ELOOP)
		return
	}
	if f.owned(path, access, why) {
		return
	}
	prefix, st, err := f.first(path)
	if err != nil {
		if err == unix.EACCES && owns(filepath.Dir(prefix)) {
			// The command runs as the owner: it could make the directory searchable, and nothing would be mounted on
			// what is below.
			dir := filepath.Dir(prefix)
			f.err = hint.Errorf("chmod u+rwx "+shell.Quote(dir)+" after you have checked its content: an earlier run may have changed its mode",
				"filesystem %s: %s: %s cannot be searched, and the command could change that (%s)", path, access, dir, why)
			return
		}
		if nowhere(err) {
			f.put(Place{Path: path, Node: Absent, Access: access, Why: why})
			return
		}
		f.err = fmt.Errorf("lstat %s: %w", prefix, err)
		return
	}
	n := NodeOf(st.Mode)
	if n != Link {
		if n == File && st.Nlink == 1 {
			f.single[path] = true
		}
		f.put(Place{Path: path, Node: n, Dev: Device(st.Dev), Ino: st.Ino, Access: access, Why: why})
		return
	}
	text, real, err := leads(prefix, path[len(prefix):])
	if err != nil {
		f.err = err
		return
	}
	if access > profiles.Hide && !f.tightening {
		if err := f.refuses(prefix, &st, access, real); err != "" {
			f.err = &profiles.Error{
				Cause: fmt.Sprintf("filesystem %s: %s: leads through the link %s, %s (%s)", path, access, prefix, err, why),
				Hint:  "if you mean its target, name it: --" + access.String() + " " + shell.Quote(real),
			}
			return
		}
	}
	link := Place{Path: prefix, Node: Link, Link: text, Access: access, Why: why}
	// A rule that hides a path behind a link holds as long as the link stands. If the command could remove or replace
	// the link, the next run would show the path.
	if (access < profiles.Read || f.tightening) && f.within(prefix) {
		link.Pin, link.Dev, link.Ino = true, Device(st.Dev), st.Ino
	}
	f.put(link)
	// The end of the link may have a rule of its own: the stricter rule wins, unless it is one for a whole home, for all
	// homes, or for /tmp.
	if d := f.policy.Decide(real); (f.tightening || !f.asWhole(&d.Rule)) && d.Access < access {
		if f.tightening {
			f.notes = append(f.notes, fmt.Sprintf("%s: goes to %s through the link %s, and is ignored because the file is not trusted: name %[2]s itself, then run pccrun trust", why, real, prefix))
		}
		access = d.Access
	}
	f.resolve(real, access, why, depth+1)
}

// asWhole reports whether a rule is for a whole home, for all homes, for /tmp or for the root.
func (f *paths) asWhole(r *profiles.FileRule) bool {
	return r.Path == f.policy.Home || r.Path == "/" || r.Glob == "" && r.Origin.BuiltIn() && !Below(r.Path, f.policy.Home)
}

// beyond makes a hidden path optional if a directory on the way is closed to all but root: neither the command nor its
// pid 1, which mounts, is root, so the path need not be covered. Only where all directories on the way are shown
// read-only: of the others the sandbox maps the owner, and their modes do not say who can enter.
func (f *paths) beyond(path string) {
	i, ok := f.seen[path]
	if !ok || f.places[i].Access != profiles.Hide || f.places[i].Node != File && f.places[i].Node != Directory || os.Getuid() != 0 {
		return
	}
	closed := false
	for dir := path; dir != "/"; {
		dir = filepath.Dir(dir)
		if f.policy.Decide(dir).Access != profiles.Read {
			return
		}
		var st unix.Stat_t
		closed = closed || unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IXOTH == 0
	}
	f.places[i].Optional = f.places[i].Optional || closed
}

// first looks along a path as far as the first link on the way, or to its end.
func (f *paths) first(path string) (prefix string, st unix.Stat_t, err error) {
	for i := f.unknown(path); i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		prefix = path[:i]
		if err = unix.Lstat(prefix, &st); err != nil || NodeOf(st.Mode) == Link {
			break
		}
		if NodeOf(st.Mode) == Directory {
			f.dirs[prefix] = inode{Device(st.Dev), st.Ino}
		}
	}
	return prefix, st, err
}

// leads returns the text of a link, and where a path leads that goes on from it.
func leads(link, rest string) (text, to string, err error) {
	if text, err = os.Readlink(link); err != nil {
		return "", "", err
	}
	if to = text; !strings.HasPrefix(to, "/") {
		to = filepath.Join(filepath.Dir(link), to)
	}
	return text, filepath.Join(to, rest), nil
}

// nowhere reports whether an error says that nothing stands at a path, or
// nothing that this user could reach.
func nowhere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || err == unix.ENOTDIR || err == unix.EACCES
}

// refuses says why a link must not carry a grant to where it leads, "" if it may.
func (f *paths) refuses(link string, st *unix.Stat_t, access profiles.Access, to string) string {
	dir := filepath.Dir(link)
	switch {
	case (f.shown(dir) >= profiles.Overlay || f.protectedOutside(link)) && !f.madeByUser(link, st):
		return "which the command could have made"
	case Below(link, f.policy.Workspace) && f.policy.Decide(to).Access < access:
		return "which is in the workspace, to " + to
	case planted(dir, st):
		return fmt.Sprintf("which uid %d made in a directory that everybody can write", st.Uid)
	}
	return ""
}

// owns reports whether a directory is the user's own.
func owns(dir string) bool {
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
