package changes

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"github.com/pccrun/pccrun/internal/hint"
	store "github.com/pccrun/pccrun/internal/state"
)

// CreateUpper makes the directories for the overlays of a run that is about to
// begin, in the session's directory. They begin empty, or, if snapshot is not
// nil, as that is.
func CreateUpper(session *os.Root, r *Record, snapshot *os.Root) error {
	upper, err := newRoot(session, UpperName)
	if err != nil {
		return err
	}
	defer upper.Close()
	for i, l := range r.Layers {
		if err := createLayer(upper, strconv.Itoa(i), l); err != nil {
			return err
		}
	}
	if snapshot != nil {
		if err := beginWith(session, snapshot, r); err != nil {
			return err
		}
	}
	// An apply or a discard has its lock also where the command has filled the disk.
	lock, err := upper.OpenFile(lockName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := lock.Close(); err != nil {
		return err
	}
	return writeRecord(upper, r)
}

// createLayer makes the directories for one overlay.
func createLayer(upper *os.Root, name string, l Layer) error {
	info, err := os.Stat(l.Path)
	if err != nil {
		return err
	}
	dir, err := newRoot(upper, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, name := range [...]string{treeName, "work"} {
		if err := dir.Mkdir(name, 0o700); err != nil {
			return err
		}
	}
	// The root of an overlay has the mode of its upper directory.
	if err := dir.Chmod(treeName, info.Mode()); err != nil {
		return err
	}
	if err := takesAttributes(dir, treeName); err != nil {
		return hint.Errorf("set XDG_STATE_HOME to a directory on ext4, xfs, btrfs or a newer tmpfs",
			"overlay: %s: the file system keeps no user attributes: %w", dir.Name(), err)
	}
	return nil
}

// newRoot makes a directory and opens it.
func newRoot(root *os.Root, name string) (*os.Root, error) {
	if err := root.Mkdir(name, 0o700); err != nil {
		return nil, err
	}
	return root.OpenRoot(name)
}

// RemoveUpper removes what a session keeps of its overlays, out of sight first: who
// comes after a removal that was killed finds all or nothing, and applies no half.
func RemoveUpper(session *os.Root) error {
	if err := store.RemoveAll(session, goneName); err != nil {
		return err
	}
	if err := session.Rename(UpperName, goneName); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	passed()
	return store.RemoveAll(session, goneName)
}

// goneName is what is removed called meanwhile.
const goneName = UpperName + ".gone"
