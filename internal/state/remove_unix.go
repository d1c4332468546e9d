//go:build linux || darwin

package state

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// RemoveAll removes a tree, however deep it is, and also where it has directories that their owner may not enter: an
// overlay's work directory is one, and a command may have made others. It follows no link. That there is none is no
// error.
func RemoveAll(root *os.Root, name string) error {
	above, err := root.OpenRoot(path.Dir(name))
	if err == nil {
		defer above.Close()
		var dir *os.File
		if dir, err = above.Open("."); err == nil {
			defer dir.Close()
			if err = beneath.RemoveTree(int(dir.Fd()), path.Base(name)); err != nil {
				err = &fs.PathError{Op: "remove", Path: name, Err: err}
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) || above == nil && errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}
