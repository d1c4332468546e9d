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
	ErrReplaced = errors.New("the host's file was changed or replaced meanwhile, or is not a regular file any more")
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

// Rewrite changes a file of the user's own in place, by one write, whatever its mode, which stays. Who shares the file with
// git has its lock. [ErrReplaced] is returned for a file that is not as it was read by the time that it is written, and one
// that has lost its name as it was written.
func Rewrite(dir int, name string, change func(now []byte) ([]byte, error)) error {
	fd, err := openOwn(dir, name)
	if beneath.Gone(err) {
		return ErrReplaced
	}
	var now []byte
	if err == nil {
		defer unix.Close(fd)
		now, err = beneath.ReadOpen(fd, vcs.MaxConfig)
	}
	if errors.Is(err, beneath.ErrNotRegular) {
		return ErrReplaced
	}
	if err != nil {
		return fmt.Errorf("read the host's file: %w", err)
	}
	text, err := change(now)
	if err != nil || bytes.Equal(text, now) {
		return err
	}
	again, err := beneath.ReadOpen(fd, vcs.MaxConfig) // what was read is kept first, which takes time
	if err != nil || !bytes.Equal(again, now) || !beneath.StandsAs(fd, dir, name) {
		return ErrReplaced
	}
	if err = overwrite(fd, now, text); err != nil {
		return fmt.Errorf("write the host's file: %w", err)
	}
	if !beneath.StandsAs(fd, dir, name) {
		return ErrReplaced
	}
	return nil
}

// openOwn opens a file of the user's own to be read and written.
func openOwn(dir int, name string) (int, error) {
	fd, err := beneath.Open(dir, name, unix.O_RDWR)
	var st unix.Stat_t
	if err != unix.EACCES || beneath.Stat(dir, name, &st) != nil || beneath.Allow(dir, name, 0o600) != nil {
		return fd, err
	}
	if fd, err = beneath.Open(dir, name, unix.O_RDWR); err == nil {
		_ = unix.Fchmod(fd, st.Mode&0o7777)
	}
	return fd, err
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
