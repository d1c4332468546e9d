//go:build linux || darwin

package homes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// List returns the homes in a state directory, those that were used last first. What they take on the disk says
// [Measure].
func List(stateDir string) ([]Entry, error) {
	top, err := state.OpenExisting(filepath.Join(stateDir, DirName), "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer top.Close()
	names, err := fs.ReadDir(top.FS(), ".")
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, n := range names {
		if !n.IsDir() || n.Name()[0] == '.' {
			continue
		}
		root, err := top.OpenRoot(n.Name())
		if err != nil {
			return nil, err
		}
		e := Entry{Key: n.Name()}
		e.InUse, err = inUse(root)
		if err == nil {
			if e.Record, err = readRecord(root); err != nil {
				e.Bad = err.Error()
			}
			e.describe()
		}
		root.Close()
		if e.Bad == "" && err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Entry) int { return b.Record.Used.Compare(a.Record.Used) })
	return list, nil
}

// describe says what has become of the workspace.
func (e *Entry) describe() {
	if e.Bad != "" {
		return
	}
	e.Old = strings.Contains(e.Key, "-")
	w := e.Record.Workspace.Path
	now, err := Identify(w)
	switch {
	case errors.Is(err, fs.ErrNotExist): // a disk that is not there takes the directory above along
		_, above := os.Lstat(filepath.Dir(w))
		e.Gone = above == nil
	case err == nil:
		e.Old = e.Old || now != e.Record.Workspace
	}
}

// inUse reports whether somebody holds the lock.
func inUse(root *os.Root) (bool, error) {
	f, err := state.OpenFile(root, lockName)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = state.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return true, nil
	}
	return false, err
}

// measured bounds what is looked at of a home to say what it takes.
var measured = beneath.Limits{Entries: 4 << 20, Depth: 1 << 16, Time: 10 * time.Second}

// Measure sets the size of homes that [List] has returned.
func Measure(stateDir string, list ...*Entry) error {
	top, err := state.OpenExisting(filepath.Join(stateDir, DirName), "")
	if err != nil {
		return err
	}
	defer top.Close()
	for _, e := range list {
		root, err := top.OpenRoot(e.Key)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		e.Size, e.More = size(root)
		root.Close()
	}
	return nil
}

// size returns what a tree takes on the disk, and whether there is more than was looked at: what may not be looked at
// counts nothing.
func size(root *os.Root) (bytes int64, more bool) {
	dir, err := root.Open(".")
	if err != nil {
		return 0, false
	}
	defer dir.Close()
	seen := map[uint64]bool{}
	err = beneath.Walk(int(dir.Fd()), measured, func(_ int, _ string, st *unix.Stat_t, _ func() string) error {
		if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		bytes += st.Blocks * 512
		return nil
	})
	return bytes, err != nil
}

// Remove removes a home, unless a run uses it.
func Remove(stateDir, key string) error {
	if key == "" || strings.ContainsAny(key, "/") || key[0] == '.' {
		return fmt.Errorf("home %s: no such name", quoted(key))
	}
	top, err := state.OpenExisting(filepath.Join(stateDir, DirName), "")
	if err != nil {
		return err
	}
	defer top.Close()
	root, err := top.OpenRoot(key)
	if err != nil {
		return err
	}
	defer root.Close()
	lock, err := state.TryLock(root, lockName)
	if errors.Is(err, state.ErrLocked) {
		return ErrInUse
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	// Under another name nobody begins a run in it; it is removed by that.
	away := ".gone-" + key
	if err := state.RemoveAll(top, away); err != nil {
		return err
	}
	if err := top.Rename(key, away); err != nil {
		return err
	}
	return state.RemoveAll(top, away)
}

// exported bounds what is exported: each level of directories costs names in a path.
var exported = beneath.Limits{Entries: 1 << 20, Depth: 128, Time: time.Hour, Shut: func(path string, err error) error {
	return &fs.PathError{Op: "open", Path: path, Err: err}
}}

// Export copies a file or directory of a home to a path that does not exist. What is neither is
// left out, and so is what is a log-in. It returns what was left out.
func Export(stateDir, key, name, to string, logins []string) (left []string, err error) {
	dir := filepath.Join(stateDir, DirName, key, homeName)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	at, err := open(fd, path.Dir(name), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "~/" + path.Dir(name), Err: err}
	}
	defer unix.Close(at)
	one := func(dir int, base string, st *unix.Stat_t, name, to string) error {
		switch kind := st.Mode & unix.S_IFMT; {
		case slices.ContainsFunc(logins, func(login string) bool { return strings.HasPrefix(name+"/", login+"/") }):
		case kind == unix.S_IFDIR:
			return os.Mkdir(to, 0o700)
		case kind == unix.S_IFREG:
			return exportFile(dir, base, to, 0o600|fs.FileMode(st.Mode)&0o100)
		}
		left = append(left, name) // a link may lead anywhere; devices, sockets and FIFOs are nothing to copy
		return nil
	}
	var st unix.Stat_t
	if err = unix.Fstatat(at, path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: "~/" + name, Err: err}
	}
	if err = one(at, path.Base(name), &st, name, to); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return left, err
	}
	below, err := open(at, path.Base(name), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return left, &fs.PathError{Op: "open", Path: "~/" + name, Err: err}
	}
	defer unix.Close(below)
	err = beneath.Walk(below, exported, func(dir int, base string, st *unix.Stat_t, rel func() string) error {
		return one(dir, base, st, path.Join(name, rel()), filepath.Join(to, rel()))
	})
	if errors.Is(err, beneath.ErrTooMuch) {
		err = fmt.Errorf("export: more than %d entries or %d levels of directories", exported.Entries, exported.Depth)
	}
	return left, err
}

func exportFile(dir int, base, to string, mode fs.FileMode) error {
	fd, err := open(dir, base, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return &fs.PathError{Op: "open", Path: base, Err: err}
	}
	from := os.NewFile(uintptr(fd), base)
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// Collect removes the homes that [Expired] names, and says which.
func Collect(stateDir string, l Limits, now time.Time) (removed []Entry, err error) {
	list, err := List(stateDir)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	for i := range list {
		if err := Measure(stateDir, &list[i]); err != nil {
			return nil, err
		}
	}
	for _, key := range Expired(list, l, now) {
		err := Remove(stateDir, key)
		if errors.Is(err, ErrInUse) {
			continue
		}
		if err != nil {
			return removed, err
		}
		removed = append(removed, list[slices.IndexFunc(list, func(e Entry) bool { return e.Key == key })])
	}
	return removed, nil
}
