//go:build !linux

package filesync

import (
	"errors"
	"io"
	"os"

	"github.com/pccrun/pccrun/workspace/changes"
)

// An openedDir is a directory that is open.
type openedDir = *os.Root

func directoryOf(root *os.Root) (openedDir, error) { return root.OpenRoot(".") }

// An openedFile is one that is open for reading.
type openedFile = *os.File

var none openedFile

// openFile opens the regular file of a name, and says what it is. A link is none.
func openFile(in openedDir, name string, e *changes.Entry) (openedFile, error) {
	f, err := in.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	named, gone := in.Lstat(name)
	if err = errors.Join(err, gone); err == nil {
		if !info.Mode().IsRegular() || !os.SameFile(info, named) {
			err = errMoved
		}
		now := changes.EntryOf(info)
		e.Size, e.Stamp, e.Mode = now.Size, now.Stamp, now.Mode&0o1777
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// makeFile makes a file with its owner, time and mode.
func (x *extraction) makeFile(dir *os.Root, name string, m *member, body io.Reader) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(x.finish(dir, name, f, m, x.copy(f, body, m.size)), f.Close())
}
