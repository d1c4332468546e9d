//go:build linux || darwin

package profiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ThisHost reads what [Resolve] needs to know of this machine and its user.
func ThisHost() Host {
	h := Host{UID: os.Getuid(), Environ: os.Environ(), Memory: memory()}
	h.Home, h.Homes = homesInDatabase("/etc/passwd", h.UID)
	// Not os.Getwd, which believes $PWD: the kernel's answer has no links.
	buf := make([]byte, maxPath+1)
	if n, err := unix.Getcwd(buf); err == nil && n > 1 && buf[0] == '/' {
		h.Cwd = string(buf[:n-1])
	}
	return h
}

// homesInDatabase returns the home of a user in a file of passwd(5), "" if it is not there,
// and those of all. Other databases (LDAP) are only reached by way of $HOME.
func homesInDatabase(file string, uid int) (home string, all []string) {
	text, err := readFile(file, followLinks)
	if err != nil {
		return "", nil
	}
	id := strconv.Itoa(uid)
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) != 7 {
			continue
		}
		if all = append(all, fields[5]); home == "" && fields[2] == id {
			home = fields[5]
		}
	}
	return home, all
}

// errNotDir is what opening a file below something else than a directory says.
const errNotDir = unix.ENOTDIR

type linkMode bool

const (
	followLinks linkMode = true
	noLinks     linkMode = false
)

// readFile is [readUpTo] for a profile and the like.
func readFile(path string, links linkMode) ([]byte, error) { return readUpTo(path, links, maxFile) }

// readUpTo reads a regular file of at most so many bytes through one
// descriptor. It never blocks on a FIFO, and never reads a device. It does
// without os.File, which would set up Go's poller at each launch.
func readUpTo(path string, links linkMode, most int64) ([]byte, error) {
	fail := func(op string, err error) ([]byte, error) { return nil, &fs.PathError{Op: op, Path: path, Err: err} }
	flags := unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC
	if links == noLinks {
		flags |= unix.O_NOFOLLOW
	}
	var fd int
	if err := retry(func() (err error) { fd, err = unix.Open(path, flags, 0); return err }); err != nil {
		if err == unix.ELOOP && links == noLinks {
			return fail("open", errors.New("a symbolic link, which is not followed"))
		}
		return fail("open", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail("stat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fail("read", errors.New("not a regular file"))
	}
	// One byte more than it has is enough to see its end; a file that grows
	// meanwhile, or has no size as those of /proc, takes another round.
	text := make([]byte, 0, min(st.Size, most)+1)
	for int64(len(text)) <= most && st.Size <= most {
		var n int
		text = slices.Grow(text, 1)
		if err := retry(func() (err error) { n, err = unix.Read(fd, text[len(text):cap(text)]); return err }); err != nil {
			return fail("read", err)
		}
		if n == 0 {
			return text, nil
		}
		text = text[:len(text)+n]
	}
	return fail("read", fmt.Errorf("larger than %d bytes", most))
}

// retry calls f until no signal interrupts it: Go's own make open(2) on some
// file systems return EINTR.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// gitTop returns the top of the git repository around dir that is the user's
// own, "" if there is none.
func gitTop(dir string, uid int) string {
	for {
		var st unix.Stat_t
		if unix.Lstat(dir+"/.git", &st) == nil {
			// Both, as git itself asks (safe.directory): in /tmp, which is root's
			// own, anybody can make a .git.
			if int(st.Uid) == uid && ownDir(dir, uid) {
				return dir
			}
			return ""
		}
		n := strings.LastIndexByte(dir, '/')
		if n <= 0 {
			return ""
		}
		dir = dir[:n]
	}
}

// ownDir reports whether path is a directory that belongs to the user.
func ownDir(path string, uid int) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == uid
}

// everybodys reports whether everybody may write in a directory, as in /tmp: what stands
// there is not the user's. One without the sticky bit that is the top of a repository of
// the user's own is: some file systems give every directory those bits.
func everybodys(dir string, uid int) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && st.Mode&unix.S_IWOTH != 0 && (st.Mode&unix.S_ISVTX != 0 || gitTop(dir, uid) != dir)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
