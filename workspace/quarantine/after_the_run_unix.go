//go:build linux || darwin

package quarantine

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// What stands here needs no call that Linux alone has. It is for a run that has ended.

// Restore puts back what was quarantined, where it stood: never through a link,
// never over what the host has made since. Of a git directory all is put back, or nothing
// where something has one of the names; of several versions of a name the last.
func (c Finding) Restore(session *os.Root) error {
	parts := map[string]Finding{}
	for _, p := range c.Parts {
		if p.Stash == "" {
			continue
		}
		parts[p.Path] = p
		var st unix.Stat_t
		if unix.Lstat(p.Path, &st) == nil {
			return fmt.Errorf("restore %s: %w", beneath.Shorten(p.Path), ErrInTheWay)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(parts)) {
		if err := parts[path].Restore(session); err != nil {
			return err
		}
	}
	if len(parts) > 0 {
		return nil
	}
	if c.Kind != Stashed && c.Kind != Inert && c.Kind != Setting || c.Stash == "" {
		return fmt.Errorf("restore %s: it is not in quarantine", beneath.Shorten(c.Path))
	}
	if err := c.restore(session, true); err != nil {
		return fmt.Errorf("restore %s: %w", beneath.Shorten(c.Path), err)
	}
	return nil
}

// maxShown bounds the files of a finding that are shown.
const maxShown = 100

// Show calls yield with the files of what is in the stash: their path below the finding's, and
// what they hold, nil if that is not to be shown and then why not.
func (c Finding) Show(session *os.Root, yield func(path string, content []byte, why string)) error {
	stash, err := session.OpenRoot(StashName)
	if err != nil {
		return err
	}
	defer stash.Close()
	w := walk{stash: stash, left: maxShown, visit: func(name, path string, info fs.FileInfo) error {
		switch {
		case info.IsDir():
		case info.Mode().IsRegular() && info.Size() <= vcs.MaxOriginal:
			b, err := stash.ReadFile(name)
			if err != nil {
				return err
			}
			yield(path, b, "")
		case info.Mode().IsRegular():
			yield(path, nil, fmt.Sprintf("%d bytes, not shown", info.Size()))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := stash.Readlink(name)
			if err != nil {
				return err
			}
			yield(path, nil, "a link to "+to)
		default:
			yield(path, nil, "a special file")
		}
		return nil
	}}
	for _, p := range c.stored() {
		if err = w.each(p.Stash, strings.TrimPrefix(p.Path, c.Path), 0); err != nil {
			break
		}
	}
	if errors.Is(err, ErrUnseen) {
		yield("", nil, "and more")
		return nil
	}
	return err
}

// A walk goes through what the stash has of a finding.
type walk struct {
	stash *os.Root
	left  int // how many entries more
	visit func(name, path string, info fs.FileInfo) error
}

// maxLevels bounds the directories in each other that are looked into or copied: each takes two descriptors to copy.
const maxLevels = 256

// each visits an entry of the stash, and then all that lies in it, by its path below the finding's. What its maker has
// closed is opened.
func (w *walk) each(name, path string, depth int) error {
	info, err := w.stash.Lstat(name)
	if err != nil {
		return err
	}
	if w.left--; w.left <= 0 {
		return ErrUnseen
	}
	if depth > maxLevels {
		return fmt.Errorf("%w: more than %d levels of directories", ErrUnseen, maxLevels)
	}
	open := fs.FileMode(0o400)
	if info.IsDir() {
		open = 0o700
	}
	if info.Mode()&open != open && (info.IsDir() || info.Mode().IsRegular()) {
		if err := w.stash.Chmod(name, info.Mode().Perm()|open); err != nil {
			return err
		}
	}
	if err := w.visit(name, path, info); err != nil || !info.IsDir() {
		return err
	}
	dir, err := w.stash.Open(name)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	slices.Sort(names)
	for _, n := range names {
		if err == nil {
			err = w.each(name+"/"+n, path+"/"+n, depth+1)
		}
	}
	return err
}

// ReadNow returns what stands at a path: a regular file that is not too large, found without
// following a link.
func ReadNow(path string) ([]byte, error) { return beneath.ReadPath(path, vcs.MaxOriginal) }
