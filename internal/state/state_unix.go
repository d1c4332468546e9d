//go:build unix

package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Open makes the directory at path, which is absolute, with its missing
// parents (mode 0700), checks it, and returns it as a root that no name in
// it leads out of. See [OpenExisting] for what is refused.
func Open(path, workspace string) (*os.Root, error) {
	if err := Outside(path, workspace); err != nil {
		return nil, err
	}
	// Where it would be refused, nothing is left behind.
	first := path
	for first != "/" && !exists(filepath.Dir(first)) {
		first = filepath.Dir(first)
	}
	if err := checkParents(first); errors.Is(err, ErrUnsafe) {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); errors.Is(err, unix.ENOTDIR) {
		return nil, unsafe(path, "not a directory")
	} else if err != nil {
		return nil, err
	}
	return OpenExisting(path, workspace)
}

// OpenExisting opens a directory as [Open] does, but makes nothing: the
// error is [fs.ErrNotExist] if it is not there. [ErrUnsafe] is returned for
// a directory that is a link, is in the workspace, belongs to somebody else
// or is writable for others; and if somebody else could put another
// directory in its place, since a parent is his or writable for all.
func OpenExisting(path, workspace string) (*os.Root, error) {
	if err := Outside(path, workspace); err != nil {
		return nil, err
	}
	// The last name is looked up without following, and what is checked is
	// what was opened, so nothing can be swapped in between.
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	switch {
	case err == unix.ENOTDIR || err == unix.ELOOP:
		return nil, unsafe(path, "not a directory, or a link to one")
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var opened unix.Stat_t
	if err := unix.Fstat(fd, &opened); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if int(opened.Uid) != os.Geteuid() {
		return nil, unsafe(path, "it belongs to uid %d, not to uid %d", opened.Uid, os.Geteuid())
	}
	if opened.Mode&0o022 != 0 {
		return nil, unsafe(path, "mode %04o: others can write in it", opened.Mode&0o7777)
	}
	if err := checkParents(path); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	same, err := root.Stat(".")
	if err != nil {
		root.Close()
		return nil, err
	}
	if st := same.Sys().(*syscall.Stat_t); st.Ino != opened.Ino || st.Dev != opened.Dev {
		root.Close()
		return nil, unsafe(path, "it was replaced while it was opened")
	}
	return root, nil
}

// overflowUID is the owner that a user namespace shows for those that it
// does not map: in a container or in a pccrun within a pccrun, "/" has it.
const overflowUID = 65534

// checkParents refuses a path that somebody else can redirect. A parent may
// be writable for its group: where every user has a group of his own, that
// is what umask 002 leaves.
func checkParents(path string) error {
	real, err := Real(filepath.Dir(path))
	if err != nil {
		return err
	}
	for dir := real; ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return &fs.PathError{Op: "stat", Path: dir, Err: err}
		}
		if uid := int(st.Uid); uid != 0 && uid != os.Geteuid() && uid != overflowUID {
			return unsafe(path, "%s belongs to uid %d", dir, uid)
		}
		if st.Mode&unix.S_IWOTH != 0 && st.Mode&unix.S_ISVTX == 0 {
			return unsafe(path, "%s is writable for all", dir)
		}
		if dir == "/" {
			return nil
		}
	}
}

// Durability says what a write survives.
type Durability bool

const (
	Fast    Durability = false // a crash of the process
	Durable Durability = true  // a crash of the machine too
)

// WriteFile replaces the file name in root, or makes it, with mode 0600.
// Whoever reads it sees all of the old content or all of the new. A link or
// anything else of that name is replaced, not followed.
func WriteFile(root *os.Root, name string, data []byte, d Durability) error {
	temp := filepath.Join(filepath.Dir(name), ".new-"+strconv.FormatUint(rand.Uint64(), 36))
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.Write(data)
		if err == nil && d == Durable {
			err = f.Sync()
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		_ = root.Remove(temp)
		var of *fs.PathError
		if errors.As(err, &of) { // of the name that it would have been given up for
			err = of.Err
		}
		return fmt.Errorf("write %s: %w", filepath.Join(root.Name(), name), err)
	}
	if d == Durable {
		return syncDir(root, filepath.Dir(name))
	}
	return nil
}

func syncDir(root *os.Root, name string) error {
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// ReadFile returns the content of the regular file name in root, at most max
// bytes long. Whatever else has the name (a link, a FIFO that would block, a
// larger file) is an error.
func ReadFile(root *os.Root, name string, max int64) ([]byte, error) {
	f, err := OpenFile(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > max {
		return nil, fmt.Errorf("read %s: %d bytes, more than %d", f.Name(), info.Size(), max)
	}
	// One byte more than it has: enough to see the end without growing.
	data := make([]byte, info.Size()+1)
	n := 0
	for n < len(data) {
		m, err := f.Read(data[n:])
		n += m
		if err != nil || m == 0 {
			break
		}
	}
	if int64(n) > max {
		return nil, fmt.Errorf("read %s: it grew beyond %d bytes", f.Name(), max)
	}
	return data[:n], nil
}

// OpenFile opens the regular file name in root for reading. It follows no
// link and never blocks.
func OpenFile(root *os.Root, name string) (*os.File, error) {
	// O_NOFOLLOW would not do: a root follows the links that stay inside it
	// by itself. The file may be replaced between the two looks, which is
	// what WriteFile does; a link that comes then leads nowhere else.
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	notRegular := &fs.PathError{Op: "open", Path: filepath.Join(root.Name(), name), Err: errors.New("not a regular file")}
	if !info.Mode().IsRegular() {
		return nil, notRegular
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = notRegular
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// A Lock is held until it is released or the process dies, however it dies.
// A process that is forked without exec shares it, and must close it.
type Lock struct{ f *os.File }

// TryLock takes the lock that is the file name in root, which it makes if
// need be, or returns [ErrLocked]. See flock(2).
func TryLock(root *os.Root, name string) (*Lock, error) {
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return &Lock{f}, nil
}

// WaitLock is [TryLock] that waits while somebody else holds the lock, until the context ends.
func WaitLock(ctx context.Context, root *os.Root, name string) (*Lock, error) {
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	lock, got := &Lock{f}, make(chan error, 1)
	go func() { got <- Flock(f, unix.LOCK_EX) }()
	select {
	case err = <-got:
	case <-ctx.Done():
		err = ctx.Err()
		go func() { // no signal ends what waits: it gives up what it gets
			<-got
			_ = lock.Release()
		}()
		return nil, err
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return lock, nil
}

// Names reports whether name in root is this lock's file still: who removes a lock's file does so while he holds the lock.
func (l *Lock) Names(root *os.Root, name string) bool {
	mine, err := l.f.Stat()
	now, wrong := root.Lstat(name)
	return err == nil && wrong == nil && os.SameFile(mine, now)
}

// Locked reports whether somebody holds the lock name in root exclusively.
// A lock file that is not there is not held.
func Locked(root *os.Root, name string) (bool, error) {
	f, err := OpenFile(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer (&Lock{f}).Release()
	// Shared, so that two that look at once do not see each other; whoever
	// takes a lock must do so before others can know of it.
	err = flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, ErrLocked) {
		return true, nil
	}
	return false, err
}

// Release gives the lock up. The file stays. Closing alone would not do: a process that another thread
// has forked holds the file until it executes something, and the lock with it.
func (l *Lock) Release() error { return errors.Join(Flock(l.f, unix.LOCK_UN), l.f.Close()) }

// Flock is flock(2), again if a signal came in between.
func Flock(f *os.File, how int) error {
	_, err := retry(func() (int, error) { return 0, unix.Flock(int(f.Fd()), how) })
	return err
}

func flock(f *os.File, how int) error {
	err := Flock(f, how)
	if err == unix.EWOULDBLOCK {
		return fmt.Errorf("%s: %w", f.Name(), ErrLocked)
	}
	if err != nil {
		return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return nil
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
