//go:build linux || darwin

package profiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ThisHost reads what [Resolve] needs to know of this machine and its user.
func ThisHost() Host {
	h := Host{UID: os.Getuid(), Environ: os.Environ(), Memory: memory()}
	users, _ := readFile("/etc/passwd", followLinks)
	h.Home, _ = accountAmong(users, h.UID)
	h.Homes = homesIn(users)
	// Not os.Getwd, which believes $PWD: the kernel's answer has no links.
	buf := make([]byte, maxPath+1)
	if n, err := unix.Getcwd(buf); err == nil && n > 1 && buf[0] == '/' {
		h.Cwd = string(buf[:n-1])
	}
	return h
}

// Account returns the home and the group of a user, "" for one whom the user database does not have.
// The system's other sources (LDAP) are asked once, where its file does not have him.
func Account(uid int) (home string, gid int) {
	users, _ := readFile("/etc/passwd", followLinks)
	return accountAmong(users, uid)
}

// accountAmong is Account where the system's file has these users.
func accountAmong(users []byte, uid int) (home string, gid int) {
	if home, gid = accountOf(users, uid); home != "" {
		return home, gid
	}
	a, known := accounts.Load(uid)
	if !known {
		home, gid = accountBy("/usr/bin/getent", uid)
		a, _ = accounts.LoadOrStore(uid, account{home, gid})
	}
	return a.(account).home, a.(account).gid
}

type account struct {
	home string
	gid  int
}

var accounts sync.Map // by uid

// accountBy asks getent(1), which is the system's own; on macOS, where no file has the users, what Go asks.
func accountBy(getent string, uid int) (home string, gid int) {
	id := strconv.Itoa(uid)
	if runtime.GOOS == "darwin" {
		u, err := user.LookupId(id)
		if err != nil {
			return "", 0
		}
		if gid, err = strconv.Atoi(u.Gid); err != nil {
			return "", 0
		}
		return u.HomeDir, gid
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, getent, "passwd", id)
	cmd.Dir, cmd.Env = "/", []string{}
	text, err := cmd.Output()
	if err != nil {
		return "", 0
	}
	return accountOf(text, uid)
}

// homesIn returns the homes of everybody in a text of passwd(5).
func homesIn(text []byte) (homes []string) {
	for line := range strings.Lines(string(text)) {
		if fields := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(fields) == 7 {
			homes = append(homes, fields[5])
		}
	}
	return homes
}

func accountOf(text []byte, uid int) (home string, gid int) {
	id := strconv.Itoa(uid)
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, ":"+id+":") {
			continue
		}
		if fields := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(fields) == 7 && fields[2] == id {
			if gid, err := strconv.Atoi(fields[3]); err == nil {
				return fields[5], gid
			}
		}
	}
	return "", 0
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
