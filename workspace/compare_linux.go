package workspace

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const nonblock = unix.O_NONBLOCK // a FIFO must not hold us up

func isNotDir(err error) bool { return errors.Is(err, unix.ENOTDIR) }

// entryOf returns an entry, but for the target of a link.
func entryOf(info fs.FileInfo) *Entry {
	st := info.Sys().(*syscall.Stat_t)
	e := &Entry{
		Kind: kindOfMode(st.Mode), Mode: st.Mode & 0o7777, Size: st.Size,
		Stamp: Stamp{Ino: st.Ino, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(), UID: st.Uid, GID: st.Gid},
	}
	if e.Kind != File {
		e.Size = 0
	}
	return e
}

// whiteout reports whether a special file is the mark of a name that is gone:
// a character device 0/0 (Documentation/filesystems/overlayfs.rst). The other
// form, an attribute on an empty file, counts for the kernel in lower layers
// only, so it is an ordinary file here.
func (l *layer) whiteout(name string) bool {
	if !l.partial {
		return false
	}
	info, err := l.root.Lstat(name)
	if err != nil {
		return false
	}
	st := info.Sys().(*syscall.Stat_t)
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// opaque reports whether a directory of an upper layer hides the one below it.
func opaque(dir *os.File) bool {
	var b [2]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), "user.overlay.opaque", b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

// origin returns the handle of the file below that the kernel copied a file of
// an upper layer from, "" if it is none: what follows a header of 21 bytes
// (struct ovl_fb of fs/overlayfs).
func (l *layer) origin(name string) string {
	f, err := l.open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	const header, most = 21, 128 // MAX_HANDLE_SZ
	b := make([]byte, header+most)
	n, err := unix.Fgetxattr(int(f.Fd()), "user.overlay.origin", b)
	if err != nil || n <= header {
		return ""
	}
	return string(b[header:n])
}

// handle returns the handle of a file by which the kernel would know it.
func (l *layer) handle(name string) string {
	f, err := l.root.Open(".")
	if err != nil {
		return ""
	}
	defer f.Close()
	h, _, err := unix.NameToHandleAt(int(f.Fd()), name, 0)
	if err != nil {
		return ""
	}
	return string(h.Bytes())
}

// is reports whether a directory is the one that the run saw.
func (l Layer) is(info fs.FileInfo) bool {
	st := info.Sys().(*syscall.Stat_t)
	return st.Dev == l.Dev && st.Ino == l.Ino
}

// takesAttributes tries what the kernel will need to mark a directory.
func takesAttributes(root *os.Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fsetxattr(int(f.Fd()), "user.pccrun", []byte{'y'}, 0); err != nil {
		return os.NewSyscallError("setxattr", err)
	}
	return os.NewSyscallError("removexattr", unix.Fremovexattr(int(f.Fd()), "user.pccrun"))
}

// Clock is the time by which file systems stamp what changes now, in
// nanoseconds.
func Clock() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t)
	return t.Nano()
}
