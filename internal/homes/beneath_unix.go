//go:build linux || darwin

package homes

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
)

// maxFile bounds a file that is read or written by us.
const maxFile = 4 << 20

// errWay says that something else stands where a directory is wanted.
var errWay = errors.New("a file of another kind exists there")

// absent reports whether an error says that nothing that counts stands at a name.
func absent(err error) bool {
	return err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP || err == unix.EXDEV
}

// dir opens the directory of a relative path, and makes what of it lacks. What stands in the
// way is moved aside.
func (h *Home) dir(name string) (int, error) {
	at, err := unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil || name == "." || name == "" {
		return at, err
	}
	done := ""
	for part := range strings.SplitSeq(name, "/") {
		next, err := h.step(at, part, path.Join(done, part))
		unix.Close(at)
		if err != nil {
			return -1, fmt.Errorf("make %s in the home: %w", quoted(name), err)
		}
		at, done = next, path.Join(done, part)
	}
	return at, nil
}

// step opens a directory by its name in another, and makes it.
func (h *Home) step(at int, name, whole string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY
	for range 8 {
		fd, err := open(at, name, flags)
		switch {
		case err == nil:
			return fd, nil
		case err == unix.EACCES: // the command may close what is its own
			if err = unix.Fchmodat(at, name, 0o700, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return -1, err
			}
			continue
		case err != unix.ENOENT && absent(err):
			if err := h.aside(at, name, whole); err != nil && err != unix.ENOENT {
				return -1, err
			}
		case err != unix.ENOENT:
			return -1, err
		}
		if err := unix.Mkdirat(at, name, 0o755); err != nil && err != unix.EEXIST {
			return -1, err
		}
	}
	return -1, errWay
}

// aside moves a name out of the home, and says so. One that was moved before goes, and what
// holds nothing: a run leaves the names on which its mounts stood.
func (h *Home) aside(at int, name, whole string) error {
	var st unix.Stat_t
	if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		switch {
		case st.Mode&unix.S_IFMT == unix.S_IFDIR && unix.Unlinkat(at, name, unix.AT_REMOVEDIR) == nil:
			return nil
		case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0:
			return unix.Unlinkat(at, name, 0)
		}
	}
	to := strings.ReplaceAll(whole, "/", "%2F")
	if len(to) > 200 {
		to = to[:200]
	}
	err := state.RemoveAll(h.root, asideName+"/"+to)
	if err == nil {
		err = renameNew(at, name, h.asideFD, to)
	}
	if err == nil {
		h.Aside = append(h.Aside, whole)
	}
	return err
}

// Read returns the content of a regular file of the home with a single name; nil for anything else.
func (h *Home) Read(name string) []byte {
	fd, err := open(h.fd, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	text, err := content(f)
	if err != nil {
		return nil
	}
	return text
}

// content reads an open file, if it is a regular one with a single name.
func content(f *os.File) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return nil, errors.New("not a regular file with a single name")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	return text, err
}

// Write replaces a file of the home, or makes it. What else has the name is moved aside.
func (h *Home) Write(name string, text []byte) error {
	dir, err := h.dir(path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	base := path.Base(name)
	temp := ".pccrun-new-" + rand.Text()
	fd, err := unix.Openat(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("write %s in the home: %w", quoted(name), err)
	}
	f := os.NewFile(uintptr(fd), temp)
	_, err = f.Write(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		var st unix.Stat_t
		if e := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); e == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
			err = h.aside(dir, base, name)
		}
	}
	if err == nil {
		err = unix.Renameat(dir, temp, dir, base)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, temp, 0)
		return fmt.Errorf("write %s in the home: %w", quoted(name), err)
	}
	return nil
}
