// Package tempuser gives root an unprivileged user for the time of a test,
// and takes him away again with his home and whatever he left running.
package tempuser

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/await"
)

// prefix starts the name of each user made here; what follows is the process
// that made him, so that a later run finds those whose maker was killed, and his number among its users.
const prefix = "pccrun-test-"

// made counts the users of this process.
var made atomic.Int32

// A User is an account of the host that [New] made.
type User struct {
	Name string
	Home string
	UID  uint32
	GID  uint32
}

// New makes a user with a home below /home and no password. It needs root.
// Users whose maker no longer runs are removed first.
func New() (*User, error) {
	if err := removeStale(); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), made.Add(1))
	if err := command("useradd", "--create-home", "--user-group", "--shell", "/bin/bash", name); err != nil {
		return nil, err
	}
	u, err := Lookup(name)
	if err != nil {
		return nil, errors.Join(err, command("userdel", "--remove", name))
	}
	return u, nil
}

// Remove ends what the user left running, then removes him and his home. The
// error names what had to be ended: a test that leaves a process is a bug.
func (u *User) Remove() error {
	left := u.kill()
	if err := command("userdel", "--remove", u.Name); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("user %s left running: %s", u.Name, strings.Join(left, ", "))
	}
	return nil
}

// End ends what the user runs still after a grace, within which what is ending
// has ended, and returns the command line and the number of each process.
func (u *User) End(grace time.Duration) []string {
	for late := time.Now().Add(grace); time.Now().Before(late) && len(u.processes()) > 0; {
		time.Sleep(10 * time.Millisecond)
	}
	return u.kill()
}

// Credential is the user's identity for a child, without supplementary groups.
func (u *User) Credential() *syscall.Credential {
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: []uint32{}}
}

// Environ returns env with the user's own HOME, USER and LOGNAME, and without
// the places that only the maker of the user may write.
func (u *User) Environ(env []string) []string {
	var out []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case name == "HOME", name == "USER", name == "LOGNAME", name == "MAIL":
		case strings.HasPrefix(name, "XDG_"), strings.HasPrefix(name, "SUDO_"):
		case name == "GOCACHE", name == "GOMODCACHE", name == "GOPATH":
		default:
			out = append(out, v)
		}
	}
	return append(out, "HOME="+u.Home, "USER="+u.Name, "LOGNAME="+u.Name)
}

// InNamespaces is for a child in namespaces of its own, which dies with the thread that starts it: the
// caller is himself in them, and has the capabilities there. Who is not root gets a user
// namespace around them.
func InNamespaces(namespaces uintptr, capabilities ...uintptr) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		attr.AmbientCaps = capabilities
	}
	return attr
}

// kill ends the user's processes and returns the command lines of those that ran. A
// process that forks meanwhile is met in the next round.
func (u *User) kill() []string {
	left := map[string]bool{} // on a loaded machine one that was killed is met again
	for late := time.Now().Add(time.Minute); time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
		found := u.processes()
		if len(found) == 0 {
			break
		}
		for pid, line := range found {
			left[fmt.Sprintf("%s (%d)", line, pid)] = true
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return slices.Sorted(maps.Keys(left))
}

// processes returns the command line of each process that the user runs, zombies aside.
func (u *User) processes() map[int]string {
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != u.UID {
			continue
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		line, _ := os.ReadFile(dir + "/cmdline")
		found[pid] = strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	}
	return found
}

func removeStale() error {
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(passwd)) {
		name, _, _ := strings.Cut(line, ":")
		rest, ok := strings.CutPrefix(name, prefix)
		maker, _, _ := strings.Cut(rest, "-")
		if pid, err := strconv.Atoi(maker); !ok || err != nil || syscall.Kill(pid, 0) == nil {
			continue
		}
		u, err := Lookup(name)
		if err == nil {
			u.kill()
			err = command("userdel", "--remove", name)
		}
		if _, gone := Lookup(name); err != nil && gone == nil { // else another process has removed him meanwhile
			return err
		}
	}
	return nil
}

// Lookup returns an account that is there.
func Lookup(name string) (*User, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &User{Name: u.Username, Home: u.HomeDir, UID: uint32(uid), GID: uint32(gid)}, nil
}

func command(name string, args ...string) error {
	// Debian keeps these in sbin, which a plain PATH may lack.
	path, err := exec.LookPath(name)
	if err != nil {
		path = filepath.Join("/usr/sbin", name)
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	for late := await.Deadline(); bytes.Contains(out, []byte("cannot lock")) && time.Now().Before(late); { // another process makes or removes a user
		time.Sleep(100 * time.Millisecond)
		out, err = exec.Command(path, args...).CombinedOutput()
	}
	// userdel warns of a missing mail spool and is content all the same.
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Main runs the tests of a package, whose servers execute as a user of their own where they are started by root, and returns the
// exit status.
func Main(m interface{ Run() int }, credential **syscall.Credential) int {
	if os.Getuid() != 0 {
		return m.Run()
	}
	user, err := New()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*credential = user.Credential()
	code := m.Run()
	if err := user.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}
