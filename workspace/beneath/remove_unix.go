//go:build linux || darwin

package beneath

import (
	"math"

	"golang.org/x/sys/unix"
)

// maxAgain bounds how often directories are emptied again: what is removed while one is read may hide what follows, and
// somebody may go on making more.
const maxAgain = 1 << 16

// RemoveTree removes an entry with all below it, however deep that is, and follows no link. A directory that its owner
// may not enter is opened, if that is who asks. The errors are those of unlinkat(2) and openat(2).
func RemoveTree(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == unix.EACCES && Unlock(dir, "") == nil {
		err = unix.Unlinkat(dir, name, 0)
	}
	if err != unix.EISDIR && err != unix.EPERM { // the last on macOS, unlink(2)
		return err
	}
	top, e := openDir(dir, name)
	if e == unix.EACCES && Unlock(dir, name) == nil {
		top, e = openDir(dir, name)
	}
	if e == unix.ENOTDIR { // EPERM was about the file
		return err
	}
	if e != nil {
		return e
	}
	defer top.Close()
	again := maxAgain
	remove := func(dir int, name string) (bool, error) {
		err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if again--; again > 0 && (err == unix.ENOTEMPTY || err == unix.EEXIST) {
			return true, nil
		}
		if Gone(err) {
			err = nil
		}
		return false, err
	}
	l := Limits{Entries: math.MaxInt, Depth: math.MaxInt, Time: math.MaxInt64, Done: remove, Shut: func(_ string, err error) error { return err }}
	for more := true; more; {
		_ = Unlock(int(top.Fd()), "")
		err := Walk(int(top.Fd()), l, func(dir int, name string, st *unix.Stat_t, _ func() string) error {
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				if st.Mode&0o700 != 0o700 && Unlock(dir, name) != nil {
					_ = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) // somebody else's, which may be empty
				}
				return nil
			}
			if err := unix.Unlinkat(dir, name, 0); !Gone(err) {
				return err
			}
			return nil
		})
		if err == nil {
			more, err = remove(dir, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
