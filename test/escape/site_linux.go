package escape

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/cgroups"
)

// A site is where one run of the suite lives: a directory with a copy of this
// program, and all that the run makes on disk. Its id is in the name of
// everything that must stand elsewhere (files in shared directories, arguments
// of processes, names of queues), so that whoever closes the site finds all of
// it: this run, or the next one if this one was killed. A lock that the kernel
// lets go of with the process tells the living from the dead.
type site struct {
	dir    string
	id     string
	self   string // a copy of this program: a payload must be able to start it wherever the program itself lies
	lock   *os.File
	made   []string        // directories above it that were not there, the lowest first
	groups map[string]bool // control groups that others had left behind before
}

// siteNames are the names of sites. What else stands beside them is not ours.
var siteNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^escape-([0-9a-f]{12})$`) })

// sharedDirs are those in which a payload, or a launcher that shows the host's,
// may leave files.
var sharedDirs = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run"}

// openSite clears away what dead runs of this user left, and makes a site.
func openSite() (*site, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	if os.Geteuid() == 0 {
		// where a launcher that gives root up can look with its layers off
		cache = "/var/cache"
	}
	base := filepath.Join(cache, "pccrun")
	clearDead(base)
	clearDead("/tmp")
	// unix(7) allows a socket's path 107 bytes, of which a world needs 52
	s := &site{id: randomHex(6), groups: map[string]bool{}}
	for dir := base; dir != "/" && !isDirectory(dir); dir = filepath.Dir(dir) {
		s.made = append(s.made, dir)
	}
	if err := os.MkdirAll(base, 0o755); err != nil || len(base) > 55 {
		base = "/tmp"
	}
	s.dir = filepath.Join(base, "escape-"+s.id)
	s.self = filepath.Join(s.dir, "pccrun")
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	if s.lock, err = lockSite(s.dir); err != nil {
		os.Remove(s.dir)
		return nil, err
	}
	if err := errors.Join(os.Chmod(s.dir, 0o755), place("/proc/self/exe", s.self), os.Chmod(s.self, 0o755)); err != nil {
		s.close()
		return nil, err
	}
	left, _ := cgroups.Leftovers()
	for _, l := range left {
		s.groups[l.Path] = true
	}
	return s, nil
}

func randomHex(n int) string {
	raw := make([]byte, n)
	rand.Read(raw)
	return hex.EncodeToString(raw)
}

// lockSite takes a site's lock; it fails at once if the site's run lives.
func lockSite(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// close removes all that the run made.
func (s *site) close() {
	clearSite(s.dir, s.id)
	removeLeftovers(s.groups)
	for _, dir := range s.made {
		os.Remove(dir) // if nobody else uses it by now
	}
	s.lock.Close()
}

// removeLeftovers removes the control groups that launchers have left, but for some.
func removeLeftovers(but map[string]bool) {
	left, _ := cgroups.Leftovers()
	for _, l := range left {
		if !but[l.Path] {
			l.Remove() // fails where it is in use again, or somebody else's
		}
	}
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// clearDead clears the sites below base whose runs are dead: only this user's,
// and only by their lock.
func clearDead(base string) {
	entries, _ := os.ReadDir(base)
	for _, entry := range entries {
		m := siteNames().FindStringSubmatch(entry.Name())
		if m == nil || !entry.IsDir() {
			continue
		}
		dir := filepath.Join(base, entry.Name())
		var st unix.Stat_t
		if unix.Lstat(dir, &st) != nil || int(st.Uid) != os.Geteuid() {
			continue
		}
		if time.Since(time.Unix(st.Ctim.Unix())) < time.Second {
			continue // it may be about to take its lock
		}
		lock, err := lockSite(dir)
		if err != nil {
			continue
		}
		clearSite(dir, m[1])
		removeLeftovers(nil)
		lock.Close()
	}
}

// clearSite ends and removes what carries a site's id, and the site.
func clearSite(dir, id string) {
	eventually(3*time.Second, func() bool {
		pids := ofSite(dir, id)
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(pids) == 0
	})
	journals, _ := filepath.Glob(filepath.Join(dir, "ipc-*"))
	for _, path := range journals {
		removeIPC(path)
	}
	removeTagged(id)
	removeGroups(id)
	removeAll(dir)
}

// ofSite returns the processes that carry a site's id in their arguments or
// were started with a home in it. Zombies have neither.
func ofSite(dir, id string) []int {
	home := "HOME=" + dir + "/"
	return append(processesWhose("cmdline", holding(id)), processesWhose("environ", func(text []byte) bool {
		return bytes.HasPrefix(text, []byte(home)) || holding("\x00"+home)(text)
	})...)
}

// removeTagged removes the files of shared directories whose names hold mark.
func removeTagged(mark string) {
	for _, dir := range sharedDirs {
		entries, _ := os.ReadDir(dir)
		for _, entry := range entries {
			if strings.Contains(entry.Name(), mark) {
				removeAll(filepath.Join(dir, entry.Name()))
			}
		}
	}
}

// removeGroups removes the control groups of launchers that name theirs as
// they are told to.
func removeGroups(mark string) {
	for _, pattern := range []string{"/sys/fs/cgroup/*" + mark + "*", "/sys/fs/cgroup/*/*" + mark + "*", "/sys/fs/cgroup/*/*/*" + mark + "*"} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			os.Remove(dir)
		}
	}
}

// The kinds of System V objects, by the calls that remove them.
var ipcControls = map[string]struct{ get, control uintptr }{
	"shm": {unix.SYS_SHMGET, unix.SYS_SHMCTL}, "msg": {unix.SYS_MSGGET, unix.SYS_MSGCTL}, "sem": {unix.SYS_SEMGET, unix.SYS_SEMCTL},
}

// removeIPC removes the System V objects that a world noted, each a line
// "kind key id", if the id still belongs to the key: ids are used again.
func removeIPC(journal string) {
	data, _ := os.ReadFile(journal)
	for line := range strings.Lines(string(data)) {
		var kind string
		var key, id int
		if _, err := fmt.Sscan(line, &kind, &key, &id); err != nil {
			continue
		}
		c, known := ipcControls[kind]
		if !known {
			continue
		}
		if now, err := Call(c.get, uintptr(key), 0, 0); err != nil || int(now) != id {
			continue
		}
		if kind == "sem" {
			Call(c.control, uintptr(id), 0, unix.IPC_RMID)
		} else {
			Call(c.control, uintptr(id), unix.IPC_RMID, 0)
		}
	}
	os.Remove(journal)
}

// unlinkQueue removes a POSIX message queue, which has a name also where its
// file system is not mounted.
func unlinkQueue(name string) {
	if p, err := unix.BytePtrFromString(name); err == nil {
		Call(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(p)))
	}
}
