package changes

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strconv"

	store "github.com/pccrun/pccrun/state"
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
	if err := reserve(upper); err != nil {
		return err
	}
	return writeRecord(upper, r)
}

// reserveNames are files that hold room for what has to be written down at the end,
// and by an apply: the command can fill the disk. The first holds blocks, and each of
// them an inode: for the events, for what was closed, for a journal, and for what is
// written under another name first. The lock of an apply or discard is made beforehand.
var reserveNames = [...]string{"reserve", "reserve.1", "reserve.2", "reserve.3"}

const reserved = 256 << 10

// spared calls write once more with that room, where the disk is full without.
func spared(upper *os.Root, write func() error) error {
	err := write()
	if err != nil && full(err) && release(upper) {
		return write()
	}
	return err
}

// release lets go of what is held back, and reports whether anything was.
func release(upper *os.Root) (any bool) {
	for _, name := range reserveNames {
		any = upper.Remove(name) == nil || any
	}
	return any
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
		return &UpperError{Dir: dir.Name(), Err: err}
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
// The kernel's own directories, ovl_workdir_create and ovl_create_volatile_dirty of
// its fs/overlayfs/super.c, are closed even to their owner; opened beforehand, all
// goes in one walk, where [store.RemoveAll] needs a second.
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
	for i := range maxLayers {
		err := error(nil)
		for _, name := range [...]string{"work", "work/incompat", "work/incompat/volatile"} {
			if e := session.Chmod(path.Join(goneName, strconv.Itoa(i), "work", name), 0o700); err == nil {
				err = e
			}
		}
		if err != nil {
			break // there is no such layer, or RemoveAll says what is wrong
		}
	}
	return store.RemoveAll(session, goneName)
}

// goneName is what is removed called meanwhile.
const goneName = UpperName + ".gone"

// maxLayers bounds for how many overlays that is done.
const maxLayers = 16
