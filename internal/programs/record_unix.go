//go:build unix

package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
)

// read returns a record, nothing where there is none. It does without os.File, which would set up Go's
// poller at each launch.
func read(dir string) ([]byte, error) {
	path := filepath.Join(dir, recordName)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o022 != 0 || int(st.Uid) != os.Geteuid() || st.Size > maxRecord {
		return nil, fmt.Errorf("%s: not a file of your own of up to %d KiB that only you can write", path, maxRecord>>10)
	}
	text := make([]byte, st.Size)
	n, err := unix.Pread(fd, text, 0)
	if err != nil || n < len(text) {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return text, nil
}

// isOwn reports whether a file belongs to who runs pccrun.
func isOwn(info os.FileInfo) bool {
	uid, _ := owner(info)
	return int(uid) == os.Geteuid()
}

// owner returns whose a file is.
func owner(info os.FileInfo) (uid, gid uint32) {
	st := info.Sys().(*syscall.Stat_t)
	return st.Uid, st.Gid
}

// patience is how long another may hold a record's lock: he may be another user than who waits.
const patience = 20 * time.Second

// edit changes the lines of a record while nobody else does, and returns it.
func edit(dir string, change func(lines []string) []string) ([]byte, error) {
	root, err := state.Open(dir, "")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	lock, err := root.OpenFile(recordName+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	for late := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if err = state.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err == nil {
			break
		}
		if err != unix.EWOULDBLOCK || time.Now().After(late) {
			return nil, &os.PathError{Op: "lock", Path: lock.Name(), Err: err}
		}
	}
	text, err := read(dir)
	if err != nil {
		return nil, err
	}
	now, err := bounded(change(slices.Collect(strings.Lines(string(text)))))
	if err != nil {
		return nil, err
	}
	return []byte(now), state.WriteFile(root, recordName, []byte(now), state.Fast)
}
