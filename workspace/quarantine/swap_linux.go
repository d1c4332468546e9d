package quarantine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// ErrNoSwap is returned where a directory is to be taken, since it cannot be swapped.
var ErrNoSwap = errors.New("no directory can be swapped here")

// adopt makes the stash of the directory that was staged for it.
func (s *Stash) adopt(root *os.Root) bool {
	if s.Staged == "" {
		return false
	}
	at, err := root.Open(".")
	if err != nil {
		return false
	}
	defer at.Close()
	s.staged = unix.Renameat2(unix.AT_FDCWD, s.Staged, int(at.Fd()), StashName, unix.RENAME_NOREPLACE) == nil
	return s.staged
}

// Swap takes a directory into the stash and leaves an empty one, a stub, in its place, in one step (RENAME_EXCHANGE of
// renameat2(2)). Before that, attach is told of both, with the stash and the name that the stub has in it: what is
// mounted on the stub goes where the stub goes. Where something else has come to the name meanwhile, or attach fails, all
// is as before.
func (s *Stash) Swap(dir int, name string, c Finding, attach func(stash int, entry string, have, stub *unix.Stat_t) error) (Finding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var have, stub, now unix.Stat_t
	if err := beneath.Stat(dir, name, &have); err != nil {
		return c, err
	}
	if have.Mode&unix.S_IFMT != unix.S_IFDIR || s.open() != nil || !s.staged || s.next >= maxStash {
		return c, ErrNoSwap
	}
	if n, _ := s.kept(c.Path); n >= maxSame {
		return c, ErrNoSwap
	}
	c.Mode, c.What, c.Stash = have.Mode, beneath.Dir.String(), strconv.Itoa(s.next)
	s.next++
	if err := unix.Mkdirat(s.dir, c.Stash, have.Mode&0o777|0o700); err != nil {
		return c, err
	}
	err := beneath.Stat(s.dir, c.Stash, &stub)
	if err == nil {
		err = s.write(c)
	}
	if err != nil {
		return c, errors.Join(err, unix.Unlinkat(s.dir, c.Stash, unix.AT_REMOVEDIR))
	}
	swap := func() error { return unix.Renameat2(dir, name, s.dir, c.Stash, unix.RENAME_EXCHANGE) }
	if err = attach(s.dir, c.Stash, &have, &stub); err == nil {
		err = swap()
	}
	if err == nil {
		if err = beneath.Stat(s.dir, c.Stash, &now); err == nil && now.Ino == have.Ino && now.Dev == have.Dev {
			s.swapped = append(s.swapped, c.Stash)
			return c, nil
		}
		err = errors.Join(fmt.Errorf("%s: another directory by now", beneath.Shorten(c.Path)), err, swap())
	}
	if e := unix.Unlinkat(s.dir, c.Stash, unix.AT_REMOVEDIR); e == nil || beneath.Gone(e) {
		s.found = s.found[:len(s.found)-1]
	} // else it is what came there, and stays a finding
	return c, err
}

// Single reports whether no file that the stash has of a directory has a second name, by which it could be changed
// elsewhere. Of one with too much in it nobody knows.
func (c Finding) Single(session *os.Root) bool {
	dir, err := session.OpenFile(StashName+"/"+c.Stash, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer dir.Close()
	l := beneath.Limits{Entries: 20_000, Depth: maxLevels, Time: time.Second, Shut: func(_ string, err error) error { return err }}
	return beneath.Walk(int(dir.Fd()), l, func(_ int, _ string, st *unix.Stat_t, _ func() string) error {
		if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
			return ErrNoSwap
		}
		return nil
	}) == nil
}

// Gates are the directories of a workspace, relative to it, in which a directory may stand for a moment that is to be mounted.
// The last is the one to use: fewer programs look there for what has changed, and best is where the command sees a mount
// that is read-only.
func Gates(workspace string) []string {
	gates := []string{""}
	for _, dir := range [...]string{".git", ".git/hooks"} {
		if info, err := os.Lstat(filepath.Join(workspace, dir)); err != nil || !info.IsDir() {
			break
		}
		gates = append(gates, dir)
	}
	return gates
}

// SweepStaging removes the directories that launchers made in a directory, for staging, and that were killed since: those whose
// names are the prefix, a process id that nobody has, and more, and which are empty.
func SweepStaging(dir, prefix string) {
	at, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer at.Close()
	names, _ := at.Readdirnames(-1)
	for _, name := range names {
		rest, is := strings.CutPrefix(name, prefix)
		number, _, _ := strings.Cut(rest, "-")
		if pid, err := strconv.Atoi(number); is && err == nil && pid > 0 && unix.Kill(pid, 0) == unix.ESRCH {
			_ = unix.Unlinkat(int(at.Fd()), name, unix.AT_REMOVEDIR)
		}
	}
}
