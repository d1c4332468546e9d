//go:build unix

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
		node, at = NodeOf(uint32(st.Mode)), inode{Device(uint64(st.Dev)), st.Ino}
	}
	protect := !slices.Contains(f.roots, path)
	f.put(Place{Path: path, Node: node, Dev: at.dev, Ino: at.ino, Access: f.around(path), Pin: true, Protect: protect, Why: "contains files that must not be moved"})
}

// unknown returns the length of the first part of a path that is not known.
func unknown(dirs map[string]inode, path string) int {
	for end := len(path); ; {
		dir := strings.LastIndexByte(path[:end], '/')
		if _, ok := dirs[path[:max(dir, 0)]]; ok {
			return end
		}
		if dir <= 0 {
			return 1
		}
		end = dir
	}
}

// A hop is a link on the way of a path.
type hop struct {
	at, text string
	to       string // where the path goes on
	st       unix.Stat_t
}

// hops follows a path through all links, and says what stands at the end: nothing is [Absent].
func (f *paths) hops(path string) (list []hop, end Place, err error) {
	for {
		prefix, st, err := f.first(path)
		end = Place{Path: path, Node: NodeOf(uint32(st.Mode)), Dev: Device(uint64(st.Dev)), Ino: st.Ino}
		switch {
		case err != nil && nowhere(err) && (err != unix.EACCES || !owns(filepath.Dir(prefix))):
			return list, Place{Path: path, Node: Absent}, nil
		case err != nil:
			return list, Place{Path: path, Node: Absent}, &os.PathError{Op: "lstat", Path: prefix, Err: err}
		case end.Node != Link:
			if end.Node == File && st.Nlink == 1 {
				f.single[path] = true
			}
			return list, end, nil
		case len(list) == 40:
			return list, end, &os.PathError{Op: "lstat", Path: path, Err: unix.ELOOP}
		}
		h := hop{at: prefix, st: st}
		if h.text, err = os.Readlink(prefix); err != nil {
			return list, end, err
		}
		if h.to = h.text; !strings.HasPrefix(h.to, "/") {
			h.to = filepath.Join(filepath.Dir(prefix), h.to)
		}
		h.to = filepath.Join(h.to, path[len(prefix):])
		list, path = append(list, h), h.to
	}
}

// add adds path as a place. A link on the way is followed as the kernel would, and is a place of its own, since it has to
// be made again in a private directory. A link grants nothing if the command could have made it: it could lead anywhere.
// Nor does one in a read-only workspace: whoever wrote the repository chose where it leads.
func (f *paths) add(path string, access profiles.Access, why string) {
	if f.err != nil || f.owned(path, access, why) {
		return
	}
	links, end, err := f.hops(path)
	for i := range links {
		h := &links[i]
		if access > profiles.Hide && !f.tightening {
			if f.err = f.refusal(path, h, access, why); f.err != nil {
				return
			}
		}
		link := Place{Path: h.at, Node: Link, Link: h.text, Access: access, Why: why}
		// A rule that hides a path behind a link holds as long as the link stands. If the command could remove or replace
		// the link, the next run would show the path.
		if (access < profiles.Read || f.tightening) && f.within(h.at) {
			link.Pin, link.Dev, link.Ino = true, Device(uint64(h.st.Dev)), h.st.Ino
		}
		f.put(link)
		// The end of the link may have a rule of its own: the stricter rule wins, unless it is one for a whole home, for all
		// homes, or for /tmp.
		if d := f.policy.Decide(h.to); (f.tightening || !asWhole(f.policy, &d.Rule)) && d.Access < access {
			if f.tightening {
				f.notes = append(f.notes, fmt.Sprintf("%s: goes to %s through the link %s, and is ignored because the file is not trusted: name %[2]s itself, then run pccrun trust", why, h.to, h.at))
			}
			access = d.Access
		}
		if f.owned(h.to, access, why) {
			return
		}
	}
	if errors.Is(err, unix.EACCES) {
		// The command runs as the owner: it could make the directory searchable, and nothing would be mounted on
		// what is below.
		dir := filepath.Dir(err.(*os.PathError).Path)
		err = hint.Errorf("chmod u+rwx "+shell.Quote(dir)+" after you have checked its content: an earlier run may have changed its mode",
			"filesystem %s: %s: %s cannot be searched, and the command could change that (%s)", path, access, dir, why)
	}
	if f.err = err; err == nil {
		end.Access, end.Why = access, why
		f.put(end)
	}
}

// refusal is the error of a rule whose path leads through a link that must not carry its grant, nil if it may.
func (f *paths) refusal(path string, h *hop, access profiles.Access, why string) error {
	cause := f.refuses(h, access)
	if cause == "" {
		return nil
	}
	return &profiles.Error{
		Cause: fmt.Sprintf("filesystem %s: %s: leads through the link %s, %s (%s)", path, access, h.at, cause, why),
		Hint:  "if you mean its target, name it: --" + access.String() + " " + shell.Quote(h.to),
	}
}

// carries reports whether all links on the way of a path may carry a grant to read.
func (f *paths) carries(links []hop) bool {
	return !slices.ContainsFunc(links, func(h hop) bool { return f.refuses(&h, profiles.Read) != "" })
}

// through adds the links on the way of a path that the command reads.
func (f *paths) through(links []hop, why string) {
	for _, h := range links {
		f.put(Place{Path: h.at, Node: Link, Link: h.text, Access: profiles.Read, Why: why})
	}
}

// asWhole reports whether a rule is for a whole home, for all homes, for /tmp or for the root.
func asWhole(p *profiles.Policy, r *profiles.FileRule) bool {
	return r.Path == p.Home || r.Path == "/" || r.Glob == "" && r.Origin.BuiltIn() && !Below(r.Path, p.Home)
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
	for i := unknown(f.dirs, path); i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		prefix = path[:i]
		if err = unix.Lstat(prefix, &st); err != nil || NodeOf(uint32(st.Mode)) == Link {
			break
		}
		if NodeOf(uint32(st.Mode)) == Directory {
			f.dirs[prefix] = inode{Device(uint64(st.Dev)), st.Ino}
		}
	}
	return prefix, st, err
}

// nowhere reports whether an error says that nothing stands at a path, or
// nothing that this user could reach.
func nowhere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || err == unix.ENOTDIR || err == unix.EACCES
}

// refuses says why a link must not carry a grant to where it leads, "" if it may.
func (f *paths) refuses(h *hop, access profiles.Access) string {
	dir := filepath.Dir(h.at)
	switch {
	case (f.shown(dir) >= profiles.Overlay || f.protectedOutside(h.at)) && !f.madeByUser(h.at, &h.st):
		return "which the command could have made"
	case Below(h.at, f.policy.Workspace) && f.policy.Decide(h.to).Access < access:
		return "which is in the workspace, to " + h.to
	case planted(dir, &h.st):
		return fmt.Sprintf("which uid %d made in a directory that everybody can write", h.st.Uid)
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

// around returns what is allowed where a path lies: what the policy says, but in
// the repository of a worktree, which no rule names, what was just shown of it.
func (f *paths) around(path string) profiles.Access {
	for _, common := range f.commons {
		if !Below(path, common) || !ByDefault(f.policy, path) {
			continue
		}
		for dir := path; Below(dir, common); dir = filepath.Dir(dir) {
			if i, ok := f.seen[dir]; ok {
				return f.places[i].Access
			}
		}
	}
	return f.shown(path)
}

// shown returns what the command may do at a path: what the policy says, but where
// a link of a rule's path has led above it, what that rule says, and below what is
// protected that it is read.
func (f *paths) shown(path string) profiles.Access {
	d := f.policy.Decide(path)
	for dir := path; len(dir) >= len(d.Rule.Path) && dir != "/"; dir = filepath.Dir(dir) {
		if i, ok := f.seen[dir]; ok && f.places[i].Node != Absent && f.places[i].Node != Link {
			return f.places[i].Access
		}
	}
	return d.Access
}

// atMost returns an access, or what the policy says of the path if that is
// stricter.
func (f *paths) atMost(path string, access profiles.Access) profiles.Access {
	return min(access, f.policy.Decide(path).Access)
}

// anchors pins the directories between what may be written and what may not:
// a directory that can be renamed away makes room for another of its name.
// That a rule names one of them with the access that it has anyway changes
// nothing.
func (f *paths) anchors() {
	done := map[string]bool{}
	for _, p := range f.places[:len(f.places):len(f.places)] {
		if p.Node == Absent || p.Access >= profiles.Overlay {
			continue
		}
		// The topmost of them is the root of a mount anyway.
		for dir := filepath.Dir(p.Path); dir != "/" && !done[dir] && f.shown(filepath.Dir(dir)) == profiles.Write; dir = filepath.Dir(dir) {
			done[dir] = true
			f.anchor(dir)
		}
	}
}

// put adds a place, or makes the one that is there stricter.
func (f *paths) put(p Place) {
	if i, ok := f.seen[p.Path]; ok {
		if p.Access < f.places[i].Access {
			f.places[i].Access, f.places[i].Why = p.Access, p.Why
		}
		f.places[i].Pin = f.places[i].Pin || p.Pin
		f.places[i].Protect = f.places[i].Protect || p.Protect
		return
	}
	f.seen[p.Path] = len(f.places)
	f.places = append(f.places, p)
}

// NodeOf returns what a mode of stat(2) is of.
func NodeOf(mode uint32) Node {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Link
	}
	return Special
}

// Device turns st_dev into what statx(2) reports: major<<32 | minor.
func Device(dev uint64) uint64 { return uint64(unix.Major(dev))<<32 | uint64(unix.Minor(dev)) }
