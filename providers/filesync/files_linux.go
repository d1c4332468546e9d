package filesync

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/changes"
)

// An openedDir is a directory that is open.
type openedDir = *os.File

func directoryOf(root *os.Root) (openedDir, error) { return root.Open(".") }

// An openedFile is one that is open for reading, without what package os does for a descriptor that may wait: with thousands of
// small ones that is most of the time.
type openedFile int

const none openedFile = -1

// openFile opens the regular file of a name, and says what it is. A link is none.
func openFile(in openedDir, name string, e *changes.Entry) (openedFile, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(in.Fd()), name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return none, os.NewSyscallError("openat", err)
	}
	var st unix.Stat_t
	if err = os.NewSyscallError("fstat", unix.Fstat(fd, &st)); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errMoved
	}
	if err != nil {
		unix.Close(fd)
		return none, err
	}
	e.Size, e.Mode = st.Size, st.Mode&0o1777
	e.Stamp = changes.Stamp{Ino: st.Ino, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(), UID: st.Uid, GID: st.Gid}
	return openedFile(fd), nil
}

func (f openedFile) Read(b []byte) (int, error) {
	n, err := retry(func() (int, error) { return unix.Read(int(f), b) })
	switch {
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func (f openedFile) Seek(offset int64, whence int) (int64, error) {
	at, err := unix.Seek(int(f), offset, whence)
	return at, os.NewSyscallError("lseek", err)
}

func (f openedFile) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = retry(func() (int, error) { return unix.Write(int(f), b[n:]) })
		n += max(more, 0)
	}
	return n, os.NewSyscallError("write", err)
}

func (f openedFile) Close() error { return os.NewSyscallError("close", unix.Close(int(f))) }

// retry makes a system call again that a signal ended.
func retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR {
			return n, err
		}
	}
}

// makeFile makes a file with its owner, time and mode, and asks first whether it has them: to set them again costs more.
func (x *extraction) makeFile(_ *os.Root, name string, m *member, body io.Reader) error {
	mode := m.mode & 0o1777
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(x.fd.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	})
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	err = x.copy(openedFile(fd), body, m.size)
	var st unix.Stat_t
	if err == nil {
		err = os.NewSyscallError("fstat", unix.Fstat(fd, &st))
	}
	if err == nil && x.uid >= 0 && (st.Uid != uint32(x.uid) || st.Gid != uint32(x.gid)) {
		err = os.NewSyscallError("fchown", unix.Fchown(fd, x.uid, x.gid))
	}
	if err == nil && !m.mtime.IsZero() {
		at := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(m.mtime.UnixNano())}
		err = os.NewSyscallError("utimensat", unix.UtimesNanoAt(int(x.fd.Fd()), name, at, unix.AT_SYMLINK_NOFOLLOW))
	}
	if err == nil && st.Mode&0o7777 != mode {
		err = os.NewSyscallError("fchmod", unix.Fchmod(fd, mode))
	}
	return errors.Join(err, openedFile(fd).Close())
}
