package quarantine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitconfig"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Show calls yield with the files of what is in the stash: their path below the
// finding's, and what they hold, nil if that is not to be shown and then why
// not. A file that has another name, through which a later run could change it
// between a look and an acceptance, gets a body of its own first.
func (c Finding) Show(session *os.Root, yield func(path string, content []byte, why string)) error {
	dir, err := session.Open(StashName)
	if err != nil {
		return err
	}
	defer dir.Close()
	room := maxShown
	return show(int(dir.Fd()), c.Stash, "", &room, yield)
}

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

// maxShown bounds the files of a finding that are shown.
const maxShown = 100

func show(dir int, name, path string, room *int, yield func(string, []byte, string)) error {
	var st unix.Stat_t
	if err := beneath.Stat(dir, name, &st); err != nil {
		return err
	}
	if *room--; *room < 0 {
		return nil
	}
	if *room == 0 {
		yield(path, nil, "and more")
		return nil
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		fd, err := beneath.OpenOwnDir(dir, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		list, err := beneath.Entries(fd)
		for _, e := range list {
			if err := show(fd, e, path+"/"+e, room, yield); err != nil {
				return err
			}
		}
		return err
	case unix.S_IFREG:
		if st.Nlink > 1 {
			if err := detach(dir, name); err != nil {
				return err
			}
		}
		b, err := beneath.ReadOwn(dir, name, vcs.MaxOriginal)
		if err != nil {
			yield(path, nil, fmt.Sprintf("%d bytes, not shown", st.Size))
			return nil
		}
		yield(path, b, "")
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, buf)
		if err != nil {
			return err
		}
		yield(path, nil, "a link to "+string(buf[:n]))
	default:
		yield(path, nil, "a special file")
	}
	return nil
}

// detach gives a file that has other names a body of its own.
func detach(dir int, name string) error {
	temp := ".pccrun-new"
	_ = unix.Unlinkat(dir, temp, 0)
	k := copier{room: maxCopy, entries: 1}
	err := k.copy(dir, name, dir, temp)
	if err == nil {
		err = unix.Renameat(dir, temp, dir, name)
	}
	return err
}

// ReadNow returns what stands at a path, which somebody hostile may have put
// there: a regular file that is not too large, found without following a link.
func ReadNow(path string) ([]byte, error) {
	dir, name, err := beneath.ParentOf(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := beneath.Open(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return beneath.ReadFile(fd, vcs.MaxOriginal)
}

// Restore puts back what was quarantined, where it stood: never through a link,
// never over what the host has made since.
func (c Finding) Restore(session *os.Root) error {
	if c.Kind != Stashed && c.Kind != Inert && c.Kind != Setting || c.Stash == "" {
		return fmt.Errorf("restore %s: it is not in quarantine", beneath.Shorten(c.Path))
	}
	if err := c.restore(session); err != nil {
		return fmt.Errorf("restore %s: %w", beneath.Shorten(c.Path), err)
	}
	return nil
}

func (c Finding) restore(session *os.Root) error {
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
	if c.Kind == Setting {
		return c.restoreSetting(stash, dir, name)
	}
	left, err := beneath.ReadOwn(stash, c.Stash+LeftOver, vcs.MaxConfig)
	if err == nil {
		return c.exchange(stash, dir, name, left)
	}
	if !beneath.Gone(err) {
		return err
	}
	return putBack(stash, c.Stash, dir, name)
}

// putBack moves an entry of the stash to where it stood. To another file system,
// and as root, which may not own what a run as somebody else has quarantined, it
// is copied.
func putBack(stash int, entry string, dir int, name string) error {
	if os.Getuid() != 0 {
		switch err := rename(stash, entry, dir, name); err {
		case nil:
			return nil
		case unix.EEXIST:
			return ErrInTheWay
		case unix.EXDEV:
		default:
			return err
		}
	}
	c, err := openCell(dir, entry)
	if err != nil {
		return err
	}
	if err = c.fill(stash, entry); err == nil {
		err = c.release(name)
	}
	if err = errors.Join(err, c.close()); err != nil {
		return err
	}
	return RemoveTree(stash, entry)
}

// exchange puts a configuration back in the place of what was left of it, if
// that stands there still. What is in the stash stays until that is done.
func (c Finding) exchange(stash, dir int, name string, left []byte) error {
	if err := c.swap(stash, c.Stash, dir, name, left); err != nil {
		return err
	}
	_ = unix.Unlinkat(stash, c.Stash+LeftOver, 0)
	return RemoveTree(stash, c.Stash)
}

// swap puts a copy of an entry of the stash in the place of a configuration, if that says
// what is expected.
func (c Finding) swap(stash int, entry string, dir int, name string, expected []byte) (err error) {
	cell, err := openCell(dir, c.Stash)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cell.close()) }()
	if err := cell.fill(stash, entry); err != nil {
		return err
	}
	if err := cell.exchange(name); err != nil {
		return err
	}
	// Nobody else reaches it where it is now.
	if now, e := beneath.ReadOwn(cell.fd, held, vcs.MaxConfig); e != nil || !bytes.Equal(now, expected) {
		if err := cell.exchange(name); err != nil {
			cell.keep = true
			return fmt.Errorf("%w; it is %s/%s now: %w", ErrInTheWay, cell.name, held, err)
		}
		return ErrInTheWay
	}
	return nil
}

// Taken returns the names of the settings that were taken out of a configuration, and are
// to be put back; nil if this is about something else.
func (c Finding) Taken(session *os.Root) map[string]bool {
	dir, err := session.Open(StashName)
	if err != nil || c.Kind != Inert || c.Stash == "" {
		return nil
	}
	defer dir.Close()
	_, taken := c.taken(int(dir.Fd()))
	if taken == nil {
		return nil
	}
	names := map[string]bool{}
	for i := range taken {
		names[taken[i].Name()] = true
	}
	return names
}

func (c Finding) taken(stash int) (whole []byte, list []vcs.Setting) {
	left, err := beneath.ReadOwn(stash, c.Stash+LeftOver, vcs.MaxConfig)
	if err != nil {
		return nil, nil
	}
	if whole, err = beneath.ReadOwn(stash, c.Stash, vcs.MaxConfig); err != nil {
		return nil, nil
	}
	return whole, vcs.Taken(whole, left)
}

// Amend adds to a configuration, of which a later version was put back, the settings that
// were taken out of this one before: each look takes out what came since the last. Of
// those with a name that is among back the later ones hold; the others' join it.
func (c Finding) Amend(session *os.Root, back map[string]bool) error {
	if err := c.amend(session, back); err != nil {
		return fmt.Errorf("restore %s: %w", beneath.Shorten(c.Path), err)
	}
	return nil
}

func (c Finding) amend(session *os.Root, back map[string]bool) (err error) {
	f, err := session.Open(StashName)
	if err != nil {
		return err
	}
	defer f.Close()
	stash := int(f.Fd())
	if err := unix.Faccessat(stash, ".", unix.W_OK, 0); err != nil {
		return fmt.Errorf("remove it from the session: %w", err)
	}
	whole, taken := c.taken(stash)
	if taken == nil {
		return nil // no version of a configuration that was sorted
	}
	taken = slices.DeleteFunc(taken, func(s vcs.Setting) bool { return back[s.Name()] })
	if len(taken) > 0 {
		dir, name, err := beneath.ParentOf(c.Path)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		var st unix.Stat_t
		if err := beneath.Stat(dir, name, &st); err != nil {
			return err
		}
		now, err := beneath.ReadOwn(dir, name, vcs.MaxConfig)
		if err != nil {
			return err
		}
		all, ok := vcs.Restate(now, whole, taken)
		if !ok {
			return ErrInTheWay
		}
		temp := c.Stash + ".all"
		_ = unix.Unlinkat(stash, temp, 0)
		if err := WriteNew(stash, temp, all, st.Mode&0o777); err != nil {
			return err
		}
		defer func() { _ = unix.Unlinkat(stash, temp, 0) }()
		if err := c.swap(stash, temp, dir, name, now); err != nil {
			return err
		}
	}
	for i := range taken {
		back[taken[i].Name()] = true
	}
	_ = unix.Unlinkat(stash, c.Stash+LeftOver, 0)
	return RemoveTree(stash, c.Stash)
}

// LeftOver ends the name, in the stash, of what was left of a configuration.
const LeftOver = ".left"

// restoreSetting does to the host's configuration what was not taken over, if it is still as it was there.
func (c Finding) restoreSetting(stash, dir int, name string) error {
	after, err := beneath.ReadOwn(stash, c.Stash, vcs.MaxConfig)
	if err != nil {
		return err
	}
	before, err := beneath.ReadOwn(stash, c.Stash+LeftOver, vcs.MaxConfig)
	if err != nil {
		return err
	}
	unlock, err := gitconfig.Lock(dir, name, gitconfig.LockText("review"), gitconfig.Patient)
	if err != nil {
		return err
	}
	defer unlock()
	_, _, err = gitconfig.Rewrite(dir, name, func(host []byte) ([]byte, error) {
		text, ok, err := gitconfig.Accept(before, after, host)
		if err == nil && !ok {
			err = ErrInTheWay
		}
		return text, err
	})
	if err != nil {
		return err
	}
	_ = unix.Unlinkat(stash, c.Stash+LeftOver, 0)
	return RemoveTree(stash, c.Stash)
}
