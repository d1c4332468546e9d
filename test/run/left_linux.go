package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// public are the directories in which everybody may make files.
var public = []string{"/tmp", "/var/tmp", "/dev/shm"}

// belongings returns what in some directories belongs to the user whom the run has
// made, by path, and when it was changed last. Of the caller's own it returns nothing: he
// may do something else meanwhile.
func (who identity) belongings(dirs []string) map[string]time.Time {
	found := map[string]time.Time{}
	if who.cred == nil {
		return found
	}
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir) // a system may lack one
		for _, e := range entries {
			info, err := e.Info()
			if err == nil && info.Sys().(*syscall.Stat_t).Uid == who.cred.Uid {
				found[filepath.Join(dir, e.Name())] = info.ModTime()
			}
		}
	}
	return found
}

// tidy removes what has come since before, or was changed, and returns its paths. An
// entry of before is of an earlier user of the same number, and in the way of this one.
func (who identity) tidy(dirs []string, before map[string]time.Time) (left []string, err error) {
	for path, changed := range who.belongings(dirs) {
		if was, stood := before[path]; !stood || !changed.Equal(was) {
			left = append(left, path)
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	slices.Sort(left)
	return left, err
}
