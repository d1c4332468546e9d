package cgroups

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
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
		return nil // an older pccrun's directory for a user may hold leftovers
	})
	return found, err
}

// Remove removes the group, if it still is a leftover.
func (l Leftover) Remove() error {
	if !strings.HasPrefix(path.Base(l.Path), prefix) || !isCgroup(l.Path) {
		return fmt.Errorf("remove %s: not a control group of a run", l.Path)
	}
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
	} else if unborn(dir, lock) {
		err = fmt.Errorf("%s: its launcher may be starting", dir)
	}
	if err != nil {
		unix.Close(lock)
		return -1, err
	}
	return lock, nil
}

// stillborn is how long a launcher may take to lock the group that it made.
const stillborn = time.Minute

// unborn reports whether a group was made a moment ago by a process that lives:
// it is named for the process, whose number may be another's by now.
func unborn(dir string, fd int) bool {
	number, _, _ := strings.Cut(strings.TrimPrefix(path.Base(dir), prefix), "-")
	pid, err := strconv.Atoi(number)
	if err != nil || unix.Kill(pid, 0) == unix.ESRCH {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && time.Since(time.Unix(st.Mtim.Unix())) < stillborn
}

// isCgroup reports whether a path lies in a hierarchy of control groups, or is
// gone.
func isCgroup(dir string) bool {
	var st unix.Statfs_t
	switch err := unix.Statfs(dir, &st); err {
	case nil:
		return st.Type == unix.CGROUP2_SUPER_MAGIC || st.Type == unix.CGROUP_SUPER_MAGIC
	default:
		return err == unix.ENOENT
	}
}

// RemoveLeftovers removes those that this user may remove, and returns their
// paths.
func RemoveLeftovers() ([]string, error) {
	all, err := Leftovers()
	var removed []string
	for _, l := range all {
		if l.Remove() == nil {
			removed = append(removed, l.Path)
		}
	}
	return removed, err
}
