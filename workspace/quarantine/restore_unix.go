//go:build linux || darwin

package quarantine

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Left returns what was left of a configuration, nil if this is about something
// else.
func (c Finding) Left(session *os.Root) []byte {
	dir, err := session.Open(StashName)
	if err != nil {
		return nil
	}
	defer dir.Close()
	b, _ := beneath.ReadOwn(int(dir.Fd()), c.Stash+LeftOver, vcs.MaxConfig)
	return b
}

// Complete adds to a configuration, of which a later version was put back, the settings that were taken out of this
// one before, but for those of which the later says something else: each look takes out what came since the last.
func (c Finding) Complete(session *os.Root) error {
	if err := c.restore(session, false); err != nil {
		return fmt.Errorf("restore %s: %w", beneath.Shorten(c.Path), err)
	}
	return nil
}

// restore puts back one thing. Whole says that a configuration gets all that it is about, or nothing.
func (c Finding) restore(session *os.Root, whole bool) error {
	f, err := session.Open(StashName)
	if err != nil {
		return err
	}
	defer f.Close()
	stash := int(f.Fd())
	// It leaves the stash: where that cannot be written to, it would be in both.
	if err := unix.Faccessat(stash, ".", unix.W_OK, 0); err != nil {
		return fmt.Errorf("remove it from the session: %w", err)
	}
	dir, name, err := beneath.ParentOf(c.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	before, err := beneath.ReadOwn(stash, c.Stash+LeftOver, vcs.MaxConfig)
	if err == nil {
		return c.restoreSettings(stash, dir, name, before, whole)
	}
	if c.Kind == Setting || !beneath.Gone(err) {
		return err
	}
	return putBack(stash, c.Stash, dir, name)
}

// putBack moves an entry of the stash to where it stood. To another file system,
// and as root, which may not own what a run as somebody else has quarantined, it
// is copied.
func putBack(stash int, entry string, dir int, name string) error {
	if os.Getuid() != 0 {
		switch err := beneath.Rename(stash, entry, dir, name); err {
		case nil:
			return nil
		case unix.EEXIST:
			return ErrInTheWay
		case unix.EXDEV:
		default:
			return err
		}
	}
	c, err := openCell(dir, Prefix+"accept-"+entry)
	if err != nil {
		return err
	}
	if err = c.fill(&copier{}, stash, entry); err == nil {
		err = c.release(name)
	}
	if err = errors.Join(err, c.close()); err != nil {
		return err
	}
	return beneath.RemoveTree(stash, entry)
}
