package quarantine

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

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
	if c.Parts == nil {
		return show(int(dir.Fd()), c.Stash, "", &room, yield)
	}
	for _, p := range c.Parts {
		if p.Stash != "" {
			err = errors.Join(err, show(int(dir.Fd()), p.Stash, strings.TrimPrefix(p.Path, c.Path), &room, yield))
		}
	}
	return err
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
	return c.restore(session, true)
}

// Complete adds to a configuration, of which a later version was put back, the settings that were taken out of this
// one before, but for those of which the later says something else: each look takes out what came since the last.
func (c Finding) Complete(session *os.Root) error { return c.restore(session, false) }

func (c Finding) restore(session *os.Root, whole bool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("restore %s: %w", beneath.Shorten(c.Path), err)
		}
	}()
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
	c, err := openCell(dir, Prefix+"accept-"+entry)
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

// LeftOver ends the name, in the stash, of what was left of a configuration.
const LeftOver = ".left"

// restoreSettings does to the host's configuration what was not taken over or was taken out: all of it, or as far as it
// does not say something else by now.
func (c Finding) restoreSettings(stash, dir int, name string, before []byte, whole bool) error {
	after, err := beneath.ReadOwn(stash, c.Stash, vcs.MaxConfig)
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
		if err == nil && !ok && whole {
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
