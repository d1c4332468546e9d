package gitconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// The reasons why nothing is taken over that are not the copy's.
var (
	ErrLocked   = errors.New("the host's file is locked (config.lock)")
	ErrReplaced = errors.New("the host's file is not a regular file any more")
)

// LockText is what stands in a lock of ours: one that is left of a launcher that was killed is known by it.
func LockText(session string) string { return "pccrun " + session + "\n" }

// Lock takes git's lock of a configuration.
func Lock(dir int, name, text string, patience time.Duration) (unlock func(), err error) {
	lock := name + ".lock"
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		var fd int
		fd, err = unix.Openat(dir, lock, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if err == nil {
			var st unix.Stat_t
			err = unix.Fstat(fd, &st)
			_, _ = unix.Write(fd, []byte(text))
			unix.Close(fd)
			return func() {
				// A command that runs may have put something of its own there.
				var now unix.Stat_t
				if beneath.Stat(dir, lock, &now) == nil && now.Ino == st.Ino && now.Dev == st.Dev {
					_ = unix.Unlinkat(dir, lock, 0)
				}
			}, err
		}
		if err != unix.EEXIST {
			return nil, fmt.Errorf("lock the host's file: %w", err)
		}
		if b, e := beneath.ReadIn(dir, lock, 128); e == nil && string(b) == text {
			_ = unix.Unlinkat(dir, lock, 0)
			continue
		}
		if time.Since(began) >= patience {
			return nil, ErrLocked
		}
	}
}

// Rewrite changes a file in place, by one write. The caller has its lock.
func Rewrite(dir int, name string, change func(now []byte) ([]byte, error)) error {
	now, err := beneath.ReadIn(dir, name, vcs.MaxConfig)
	if beneath.Gone(err) {
		return ErrReplaced
	}
	if err != nil {
		return fmt.Errorf("read the host's file: %w", err)
	}
	text, err := change(now)
	if err != nil || bytes.Equal(text, now) {
		return err
	}
	fd, err := openToWrite(dir, name)
	if err == nil {
		defer unix.Close(fd)
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
			err = ErrReplaced
		}
	}
	if err == nil {
		err = overwrite(fd, now, text)
	}
	if err != nil {
		return fmt.Errorf("write the host's file: %w", err)
	}
	return nil
}

// openToWrite opens a file of the user's own, whatever its mode, which stays.
func openToWrite(dir int, name string) (int, error) {
	fd, err := beneath.Open(dir, name, unix.O_WRONLY)
	if err != unix.EACCES {
		return fd, err
	}
	path, err := beneath.Open(dir, name, unix.O_PATH)
	if err != nil {
		return -1, err
	}
	defer unix.Close(path)
	var st unix.Stat_t
	if err := unix.Fstat(path, &st); err != nil {
		return -1, err
	}
	if err := beneath.ChmodPath(path, 0o200); err != nil {
		return -1, unix.EACCES
	}
	if fd, err = beneath.Open(dir, name, unix.O_WRONLY); err != nil {
		return -1, err
	}
	if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// overwrite puts a text in the place of another, by one write that never makes the file
// shorter: whoever is killed behind it leaves no part of what stood.
func overwrite(fd int, now, text []byte) error {
	more := int64(len(text) - len(now))
	if more > 0 { // a full disk says so before anything is changed
		if err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, int64(len(now)), more); err != nil && err != unix.EOPNOTSUPP {
			return err
		}
	}
	whole := append(slices.Clone(text), bytes.Repeat([]byte{'\n'}, max(0, len(now)-len(text)))...)
	n, err := unix.Pwrite(fd, whole, 0)
	if err == nil && n < len(whole) {
		err = unix.ENOSPC
	}
	if err != nil {
		_, back := unix.Pwrite(fd, now, 0)
		return errors.Join(err, back, unix.Ftruncate(fd, int64(len(now))))
	}
	return unix.Ftruncate(fd, int64(len(text)))
}

// Patient is how long the end of a run waits for a lock of the host's.
const Patient = 2 * time.Second
