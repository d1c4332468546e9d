package namespaces

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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

// Bounds of what is looked at.
const (
	maxLostEntries = 20_000
	maxLostDepth   = 64
)

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
		w := lostWalk{room: maxLostEntries, known: slices.Clone(known)}
		for _, stub := range m.Stubs {
			switch path := filepath.Join(m.Target, stub.Name); {
			case below(dir, path):
			case slices.ContainsFunc(m.Stubs, func(in Stub) bool { return in.Name != stub.Name && below(in.Name, stub.Name) }):
				w.parents = append(w.parents, path) // the command may have made something more in it
			default:
				w.known = append(w.known, path)
			}
		}
		fd, err := openPlain(s.Private, s.plan.storage(i)+dir[len(m.Target):], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
		if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP { // the command has put something else there
			continue
		}
		if m.Kind == Scratch && err == nil {
			w.host = m.Source
		}
		if err == nil && w.host != "" && dir == m.Target && w.empty() {
			err = w.add(Lost{Path: dir, Dir: true}, func(l *Lost) error { return w.countIn(l, fd, dir, maxLostDepth) })
		} else if err == nil {
			err = w.walk(fd, dir)
		}
		if err != nil {
			return list, fmt.Errorf("search %s in the sandbox: %w", dir, err)
		}
		list = append(list, w.list...)
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
	dir, err = openPlain(s.Private, filepath.Dir(at), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	return dir, filepath.Base(at), err
}

type lostWalk struct {
	room  int
	known []string
	list  []Lost

	parents []string // directories that were put there for what is mounted in them
	host    string   // over what of the host's the layer lies, "" for no layer
}

// empty reports whether a layer lies over nothing: the launcher made the directory.
func (w *lostWalk) empty() bool {
	fd, err := unix.Open(w.host, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return beneath.Empty(fd) == nil
}

// add lists a file or a directory, if count finds files in it.
func (w *lostWalk) add(l Lost, count func(*Lost) error) error {
	if err := count(&l); err != nil {
		return err
	}
	if l.Files > 0 {
		w.list = append(w.list, l)
	}
	return nil
}

// walk goes through one directory, whose descriptor it closes.
func (w *lostWalk) walk(fd int, path string) error {
	return w.each(fd, func(name string, st *unix.Stat_t) error {
		whole := filepath.Join(path, name)
		dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if slices.ContainsFunc(w.known, func(known string) bool { return below(whole, known) }) || st.Mode&unix.S_IFMT == unix.S_IFCHR {
			return nil // a device is what a layer has of a name that was removed
		}
		if dir && (slices.Contains(w.parents, whole) || slices.ContainsFunc(w.known, func(known string) bool { return below(known, whole) })) {
			child, err := openOwnDir(fd, name)
			if err != nil {
				return err
			}
			return w.walk(child, whole)
		}
		return w.add(Lost{Path: whole, Dir: dir}, func(l *Lost) error { return w.count(l, fd, whole, st, maxLostDepth) })
	})
}

// count adds a tree up, of a layer what the host does not have as well.
func (w *lostWalk) count(l *Lost, dir int, path string, st *unix.Stat_t, depth int) error {
	name := filepath.Base(path)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if w.host == "" || !sameFile(dir, name, path, st) {
			l.Files++
			l.Size += st.Size
		}
		return nil
	}
	if depth == 0 {
		l.More = true
		return nil
	}
	fd, err := openOwnDir(dir, name)
	if err != nil {
		return err
	}
	return w.countIn(l, fd, path, depth)
}

// countIn is [lostWalk.count] for what is in a directory, whose descriptor it closes.
func (w *lostWalk) countIn(l *Lost, fd int, path string, depth int) error {
	err := w.each(fd, func(name string, st *unix.Stat_t) error { return w.count(l, fd, path+"/"+name, st, depth-1) })
	l.More = l.More || w.room < 0
	return err
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

// each calls f for the entries of a directory, as long as there is room.
func (w *lostWalk) each(fd int, f func(name string, st *unix.Stat_t) error) error {
	defer unix.Close(fd)
	names, err := namesOf(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if w.room--; w.room < 0 {
			return nil
		}
		if slices.Contains(madeAnew[:], name) {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if err := f(name, &st); err != nil {
			return err
		}
	}
	return nil
}

// namesOf returns the names in a directory, as many as are looked at.
func namesOf(fd int) (names []string, err error) {
	buf := make([]byte, 16<<10)
	for len(names) <= maxLostEntries {
		n, err := unix.ReadDirent(fd, buf)
		if n <= 0 || err != nil {
			return names, err
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
	return names, nil
}

// openOwnDir opens a directory of a sandbox that has ended, whatever its mode.
func openOwnDir(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags, 0)
	if err == unix.EACCES && unix.Fchmodat(dir, name, 0o700, 0) == nil {
		fd, err = unix.Openat(dir, name, flags, 0)
	}
	return fd, err
}
