//go:build linux || darwin

package profiles

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ThisHost reads what [Resolve] needs to know of this machine and its user.
func ThisHost() Host {
	h := Host{UID: os.Getuid(), Environ: os.Environ(), Memory: memory()}
	h.Home = homeInDatabase("/etc/passwd", h.UID)
	// Not os.Getwd, which believes $PWD: the kernel's answer has no links.
	buf := make([]byte, maxPath+1)
	if n, err := unix.Getcwd(buf); err == nil && n > 1 && buf[0] == '/' {
		h.Cwd = string(buf[:n-1])
	}
	return h
}

// homeInDatabase returns the home of a user in a file of passwd(5), "" if it
// is not there. Other databases (LDAP) are only reached by way of $HOME.
func homeInDatabase(file string, uid int) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	id := strconv.Itoa(uid)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) == 7 && fields[2] == id {
			return fields[5]
		}
	}
	return ""
}

// errNotDir is what opening a file below something else than a directory says.
const errNotDir = unix.ENOTDIR

type linkMode bool

const (
	followLinks linkMode = true
	noLinks     linkMode = false
)

// readFile reads a regular file of at most maxFile bytes through one
// descriptor. It never blocks on a FIFO, and never reads a device.
func readFile(path string, links linkMode) ([]byte, error) {
	flags := os.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC
	if links == noLinks {
		flags |= unix.O_NOFOLLOW
	}
	f, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, unix.ELOOP) && links == noLinks {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("a symbolic link, which is not followed")}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	text := []byte(nil)
	if info.Size() <= maxFile {
		text, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	}
	if err == nil && (info.Size() > maxFile || len(text) > maxFile) {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("larger than %d bytes", maxFile)}
	}
	return text, err
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

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
