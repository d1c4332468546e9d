//go:build linux || darwin

package profiles

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ThisHost reads what [Resolve] needs to know of this machine and its user.
func ThisHost() Host {
	h := Host{UID: os.Getuid(), Environ: os.Environ(), Memory: memory()}
	users, _ := ReadFile("/etc/passwd")
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
	users, _ := ReadFile("/etc/passwd")
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

const (
	nonBlocking = unix.O_NONBLOCK
	noFollowing = unix.O_NOFOLLOW
)

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
