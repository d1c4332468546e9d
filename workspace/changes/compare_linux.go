package changes

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace"
)

const nonblock = unix.O_NONBLOCK // a FIFO must not hold us up

func isNotDir(err error) bool { return errors.Is(err, unix.ENOTDIR) }

// EntryOf returns an entry, but for the target of a link.
func EntryOf(info fs.FileInfo) *Entry {
	st := info.Sys().(*syscall.Stat_t)
	e := &Entry{
		Kind: workspace.KindOf(st.Mode), Mode: st.Mode & 0o7777, Size: st.Size,
		Stamp: Stamp{Ino: st.Ino, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(), UID: st.Uid, GID: st.Gid},
	}
	if e.Kind != workspace.File {
		e.Size = 0
	}
	return e
}

// dataFrom returns where data goes on in a file, from an offset on (lseek(2)). A file
// system that knows no holes says that all is data.
func dataFrom(f *os.File, at int64) int64 {
	data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch err {
	case nil:
		return data
	case unix.ENXIO:
		return noData
	}
	return at
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

// whiteoutAt makes such a mark. Nobody needs a privilege for it.
func whiteoutAt(dir *os.File, name string) error {
	return os.NewSyscallError("mknodat", unix.Mknodat(int(dir.Fd()), name, unix.S_IFCHR, 0))
}

// opaque reports whether a directory of an upper layer hides the one below it.
func opaque(dir *os.File) bool {
	var b [2]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), "user.overlay.opaque", b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

// LayerOf returns the layer that a directory of the host would be.
func LayerOf(path string) (Layer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Layer{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	return Layer{Path: path, Dev: st.Dev, Ino: st.Ino}, nil
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
