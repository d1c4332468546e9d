package namespaces

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// A Lost is a file that the command has made in a private directory, or a directory
// of such, which is gone with the sandbox.
type Lost struct {
	Path  string // of the file or the directory
	Dir   bool
	Files int   // that are no directories
	Size  int64 // bytes of all of them
	More  bool  // there was no room to count all
}

// holder returns the index of the mount that holds a name, -1 for the host's own
// tree.
func (p *Plan) holder(path string) int {
	return innermost(p.Mounts, path, func(m *Mount) bool { return m.Target != path })
}

// private returns what a path in a private directory is called in the tmpfs that holds them.
func (p *Plan) private(path string) string {
	i := p.holder(path)
	return p.storage(i) + path[len(p.Mounts[i].Target):]
}

// storage returns the name, in that tmpfs, of what holds what the command has made in a mount.
func (p *Plan) storage(i int) string {
	if p.Mounts[i].Kind == Scratch {
		return upperName + strconv.Itoa(i)
	}
	return entry(i)
}

// Layers returns the directories of which what the command makes there is gone at exit, caches left out:
// those of the workspace, of PATH, and of the user's own libraries.
func (p *Plan) Layers(workspace string) (dirs []string) {
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if m.Kind == Scratch && (below(m.Target, workspace) || m.Why == survey.PathLayer || m.Why == survey.OwnLibraries) || m.Kind == Fresh && m.Why == survey.PathPrivate {
			dirs = append(dirs, m.Target)
		}
	}
	return dirs
}

// lostLimits bound what is looked at in a directory.
var lostLimits = beneath.Limits{Entries: 20_000, Depth: 64, Time: time.Minute}

// Lost returns, by path, what the command has made in private directories or below them: of a
// directory that it has made the directory alone. It leaves out what the launcher has put there for
// mounts, and the known paths, which any run makes again; where one of these lies in a directory,
// the other entries of the directory are named one by one. It is for when [Sandbox.Next] has returned
// a result.
func (s *Sandbox) Lost(dirs, known []string) (list []Lost, err error) {
	for _, dir := range dirs {
		i := slices.IndexFunc(s.plan.Mounts, func(m Mount) bool { return m.Target == dir })
		if i < 0 {
			i = s.plan.holder(dir)
		}
		if i < 0 || s.plan.Mounts[i].Kind != Fresh && s.plan.Mounts[i].Kind != Scratch || s.plan.Mounts[i].ReadOnly && s.plan.Mounts[i].Kind == Fresh {
			continue
		}
		m := &s.plan.Mounts[i]
		w := lostWalk{dir: dir, known: slices.Clone(known), layer: m.Kind == Scratch}
		w.whole = w.layer && dir == m.Target && isEmpty(m.Source)
		for _, stub := range m.Stubs {
			switch path := filepath.Join(m.Target, stub.Name); {
			case below(dir, path):
			case slices.ContainsFunc(m.Stubs, func(in Stub) bool { return in.Name != stub.Name && below(in.Name, stub.Name) }):
				w.parents = append(w.parents, path) // the command may have made something more in it
			default:
				w.known = append(w.known, path)
			}
		}
		fd, err := beneath.Open(s.Private, s.plan.storage(i)+dir[len(m.Target):], unix.O_RDONLY|unix.O_DIRECTORY)
		if beneath.Gone(err) { // the command has put something else there
			continue
		}
		if err == nil {
			list, err = w.walk(fd, list)
			unix.Close(fd)
		}
		if err != nil {
			return list, fmt.Errorf("search %s in the sandbox: %w", dir, err)
		}
	}
	slices.SortFunc(list, func(a, b Lost) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(list, func(a, b Lost) bool { return a.Path == b.Path }), nil
}

// OpenLost opens the directory that holds a [Lost], in which it has the name.
func (s *Sandbox) OpenLost(path string) (dir int, name string, err error) {
	if s.plan.holder(path) < 0 {
		return -1, "", unix.ENOENT
	}
	at := s.plan.private(path)
	if i := slices.IndexFunc(s.plan.Mounts, func(m Mount) bool { return m.Kind == Scratch && m.Target == path }); i >= 0 {
		at = s.plan.storage(i)
	}
	dir, err = beneath.Open(s.Private, filepath.Dir(at), unix.O_RDONLY|unix.O_DIRECTORY)
	return dir, filepath.Base(at), err
}

// A lostWalk goes through a private directory, or through what a layer has of one.
type lostWalk struct {
	dir     string
	known   []string // that do not count
	parents []string // directories that were put there for what is mounted in them
	layer   bool     // over the host's directory
	whole   bool     // that is empty: the launcher made it
}

// isEmpty reports whether a directory of the host's has no entry.
func isEmpty(dir string) bool {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return beneath.Empty(fd) == nil
}

// walk adds to the list what is below an open directory.
func (w *lostWalk) walk(fd int, list []Lost) ([]Lost, error) {
	found := map[string]*Lost{}
	err := beneath.Walk(fd, lostLimits, func(at int, name string, st *unix.Stat_t, rel func() string) error {
		path, kind := w.dir+"/"+rel(), st.Mode&unix.S_IFMT
		if kind == unix.S_IFCHR || w.ignores(path) { // a device is what a layer has of a name that was removed
			return nil
		}
		if kind == unix.S_IFDIR && st.Mode&0o700 != 0o700 { // the sandbox has ended, and the walk is to see all of it
			_ = unix.Fchmodat(at, name, 0o700, 0)
		}
		top := w.top(path)
		if found[top] == nil {
			found[top] = &Lost{Path: top}
		}
		l := found[top]
		l.Dir = l.Dir || top != path || kind == unix.S_IFDIR
		if kind != unix.S_IFDIR && (!w.layer || !sameFile(at, name, path, st)) {
			l.Files++
			l.Size += st.Size
		}
		return nil
	})
	for _, l := range found {
		if l.More = l.Dir && errors.Is(err, beneath.ErrTooMuch); l.Files > 0 {
			list = append(list, *l)
		}
	}
	if errors.Is(err, beneath.ErrTooMuch) {
		err = nil
	}
	return list, err
}

// ignores reports whether a path does not count: it is known, or what tools make wherever they load something.
func (w *lostWalk) ignores(path string) bool {
	for name := range strings.SplitSeq(path[len(w.dir)+1:], "/") {
		if slices.Contains(madeAnew[:], name) {
			return true
		}
	}
	return slices.ContainsFunc(w.known, func(known string) bool { return below(path, known) })
}

// top returns what a path is listed as: the first directory on the way to it that the command has made, or itself.
// What is known in a directory leaves the other entries of that to be named one by one.
func (w *lostWalk) top(path string) string {
	if w.whole {
		return w.dir
	}
	at := w.dir
	for name := range strings.SplitSeq(path[len(w.dir)+1:], "/") {
		at += "/" + name
		if !slices.Contains(w.parents, at) && !slices.ContainsFunc(w.known, func(known string) bool { return below(known, at) }) {
			break
		}
	}
	return at
}

// maxSame bounds a file that is compared with the host's: what tools fill in again is small.
const maxSame = 64 << 10

// sameFile reports whether a file of a layer is what the host has by its path: a tool wrote it again.
func sameFile(dir int, name, path string, st *unix.Stat_t) bool {
	var had unix.Stat_t
	if unix.Lstat(path, &had) != nil || had.Mode != st.Mode || st.Mode&unix.S_IFMT != unix.S_IFREG || had.Size != st.Size || st.Size > maxSame {
		return false
	}
	read := func(dir int, name string) []byte {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil
		}
		text, _ := beneath.ReadFile(fd, maxSame)
		return text
	}
	now := read(dir, name)
	return now != nil && bytes.Equal(now, read(unix.AT_FDCWD, path))
}

// madeAnew are what Python and cargo make wherever they load something.
var madeAnew = [...]string{"__pycache__", ".package-cache", ".package-cache-mutate", ".global-cache"}
