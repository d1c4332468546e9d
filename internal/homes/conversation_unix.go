//go:build linux || darwin

package homes

import (
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// FilesBelow lists the regular files of a tree and its directories, each before what is in it.
func FilesBelow(root *os.Root) (list []FileBelow, err error) {
	top, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer top.Close()
	limits := beneath.Limits{Entries: 4 * ConversationFiles, Depth: 128, Time: time.Minute}
	files, bytes := 0, int64(0)
	err = beneath.Walk(int(top.Fd()), limits, func(_ int, _ string, st *unix.Stat_t, path func() string) error {
		switch beneath.KindOf(uint32(st.Mode)) {
		case beneath.Dir:
			list = append(list, FileBelow{path(), true, 0})
		case beneath.File:
			list = append(list, FileBelow{path(), false, st.Size})
			if files, bytes = files+1, bytes+st.Size; files > ConversationFiles || bytes > ConversationBytes {
				return ErrLong
			}
		}
		return nil
	})
	return list, err
}

// Replace puts the regular files of a tree in the place of a directory of a home. No link leads out of either. as says what a
// file is called there.
func Replace(home, dir string, from *os.Root, as func(name string) string) error {
	to, err := os.OpenRoot(home)
	if err != nil {
		return err
	}
	defer to.Close()
	list, err := FilesBelow(from)
	if err != nil {
		return err
	}
	fresh := dir + ".new"
	if err := errors.Join(to.MkdirAll(path.Dir(dir), 0o700), state.RemoveAll(to, fresh), to.Mkdir(fresh, 0o700)); err != nil {
		return err
	}
	for _, f := range list {
		at := path.Join(fresh, as(f.Name))
		if f.Dir {
			if err := to.MkdirAll(at, 0o700); err != nil {
				return err
			}
			continue
		}
		text, err := state.ReadFile(from, f.Name, ConversationBytes+1)
		if err == nil {
			err = to.WriteFile(at, text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return errors.Join(state.RemoveAll(to, dir), to.Rename(fresh, dir))
}
