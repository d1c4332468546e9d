//go:build !launcher

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/leftovers"
)

func snapshotVerb(args []string) int {
	session, remove, old, asJSON := "", "", false, false
	words, err := options(args, flags{"--list": &old, "--json": &asJSON, "--remove": &remove, "--session": &session})
	list := old || len(words) > 0 && words[0] == "list"
	if err == nil && (len(words) > 1 || len(words) > 0 && (old || remove != "")) {
		err = misuse("unexpected argument "+quote(words[len(words)-1]), "see pccrun help snapshot")
	}
	if err != nil {
		return failSession(err)
	}
	dir, err := run.SnapshotDir()
	if err != nil {
		return failSession(err)
	}
	switch {
	case list:
		return listSnapshots(dir, asJSON)
	case remove != "":
		return removeSnapshot(dir, remove, asJSON)
	}
	name := time.Now().UTC().Format("20060102T150405Z")
	if len(words) > 0 {
		name = words[0]
	}
	return takeSnapshot(dir, name, session, asJSON)
}

// The names in the directory of snapshots that are none.
const (
	snapshotLock = ".lock" // held by who makes one
	newSnapshot  = ".new-" // begins that of one that is not whole
)

// sweepSnapshots removes what is not whole, and will not be.
func sweepSnapshots(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newSnapshot) {
			err = errors.Join(err, state.RemoveAll(root, e.Name()))
		}
	}
	return err
}

func takeSnapshot(dir, name, session string, asJSON bool) int {
	if err := run.CheckSnapshotName(name); err != nil {
		return failSession(err)
	}
	c, err := leftovers.OpenChanges(session)
	if err != nil {
		return failSession(err)
	}
	defer c.Upper.Close()
	if err := c.Begin(thisProgram()); err != nil {
		return failLocked(err)
	}
	root, err := state.Open(dir, c.Entry.Workspace)
	if err != nil {
		return failSession(err)
	}
	defer root.Close()
	lock, err := state.TryLock(root, snapshotLock)
	if err != nil {
		return failLocked(err)
	}
	defer lock.Release()
	// Under a name of its own until it is whole. What others of that kind there are
	// was left by who was killed.
	temp := newSnapshot + name
	err = sweepSnapshots(root)
	if err == nil {
		err = root.Mkdir(temp, 0o700)
	}
	if err == nil {
		var to *os.Root
		if to, err = root.OpenRoot(temp); err == nil {
			done := slow("copying the changes")
			err = errors.Join(c.Upper.Copy(to), to.Close())
			done()
		}
	}
	if _, e := root.Lstat(name); err == nil && e == nil {
		err = fmt.Errorf("snapshot %s: %w", name, fs.ErrExist)
	}
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrExist) { // which says so
			err = fmt.Errorf("snapshot %s: %w", name, err)
		}
		return failSession(errors.Join(err, state.RemoveAll(root, temp)))
	}
	return result(asJSON, object{{"snapshot", name}, {"session", c.Entry.ID}}, printText, name)
}

func listSnapshots(dir string, asJSON bool) int {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failSession(err)
	}
	list := []object{}
	for _, e := range entries {
		if run.CheckSnapshotName(e.Name()) != nil {
			continue
		}
		o := object{{"snapshot", e.Name()}}
		root, err := run.OpenSnapshot(e.Name())
		if err == nil {
			var r *run.ChangesRecord
			if r, err = run.SnapshotRecord(root); err == nil {
				o = append(o, field{"workspace", r.Workspace}, field{"changes", len(r.Stood)})
				if !asJSON {
					printf("%s\t%s\t%s\n", e.Name(), run.PathsChanged(len(r.Stood)), printable(r.Workspace))
				}
			}
			root.Close()
		}
		if err != nil {
			say("snapshot " + e.Name() + ": " + err.Error())
			continue
		}
		list = append(list, o)
	}
	if asJSON {
		printJSON(object{{"snapshots", list}})
	}
	return 0
}

func removeSnapshot(dir, name string, asJSON bool) int {
	if err := run.CheckSnapshotName(name); err != nil {
		return failSession(err)
	}
	root, err := run.OpenSnapshot(name)
	if err != nil {
		failSession(err)
		return failed // it is not there
	}
	// The half of one that was killed at it is none: what it holds is out of sight first.
	err = run.EmptySnapshot(root)
	if err == nil {
		err = os.Remove(filepath.Join(dir, name))
	}
	if err != nil {
		return failSession(err)
	}
	return result(asJSON, object{{"snapshot", name}, {"removed", true}}, say, "snapshot "+name+" was removed")
}
