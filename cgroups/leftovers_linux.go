package cgroups

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Leftover is a control group whose launcher died before it could remove it.
type Leftover struct{ Path string }

// Leftovers looks for them in all hierarchies, which takes time in proportion
// to the groups on the machine. A group with a process in it or with a
// launcher that lives is none. Groups of other users are listed too; to remove
// them takes their leave.
func Leftovers() ([]Leftover, error) { return leftoversBelow("/sys/fs/cgroup") }

func leftoversBelow(root string) ([]Leftover, error) {
	var found []Leftover
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() { // gone meanwhile, or not ours to see
			return nil
		}
		if !strings.HasPrefix(e.Name(), prefix) {
			return nil
		}
		if lock, err := abandoned(name); err == nil {
			unix.Close(lock)
			found = append(found, Leftover{name})
			return fs.SkipDir
		}
		return nil // a user's directory may be in use, and hold leftovers
	})
	return found, err
}

// Remove removes the group, if it still is a leftover.
func (l Leftover) Remove() error {
	lock, err := abandoned(l.Path)
	if err != nil {
		return err
	}
	defer unix.Close(lock)
	return removeTree(l.Path, time.Time{})
}

// abandoned takes the lock of a group that nobody uses. The leaf in which a
// launcher waits has no lock, but the launcher in it.
func abandoned(dir string) (lock int, err error) {
	if lock, err = openDir(dir); err != nil {
		return -1, err
	}
	if err = unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		err = &fs.PathError{Op: "flock", Path: dir, Err: err}
	} else if pids := pidsBelow(dir); len(pids) > 0 {
		err = fmt.Errorf("%s: has processes", dir)
	}
	if err != nil {
		unix.Close(lock)
		return -1, err
	}
	return lock, nil
}
