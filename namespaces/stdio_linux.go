package namespaces

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal stands in [Stdio.Fds] for the slave of a pseudo-terminal of the
// sandbox's own.
const Terminal = -1

// Stdio is what the command gets as its descriptors 0, 1 and 2. It must be
// made before [Begin]: the copy has only what was open by then.
//
// A file that stands behind a descriptor can be opened again through
// /proc/self/fd, for more than the descriptor allows: a directory with all that
// lies below it, a pipe for writing where the descriptor reads, and a shell on
// the host may read its script from that. So each of the three is judged by
// what it is: a terminal becomes a pseudo-terminal; a regular file or a pipe is
// read and written by the launcher, through a pipe of the sandbox's own; so is a
// socket that the command writes to, and on which it could shut down, or make
// non-blocking, what the launcher has to say itself, or that is of the network;
// any other socket, which cannot be opened again, is handed through if
// [Plan.JudgeHanded] finds it harmless, and so is a character device; a directory
// or a block device is refused, and so is what has no place in any file system, but for
// a few kinds.
type Stdio struct {
	Fds        [3]int
	Host       int           // the host's terminal: the first of the three that is one, -1 if none
	Background bool          // the command starts in the background of its terminal: as we do, or not all three are one
	modes      *unix.Termios // of the host's terminal, with which the command's begins
	size       *unix.Winsize // likewise; nil where it has none
	pumps      []pump
	Log        io.Writer     // what the command prints is written there too; set before [Stdio.Run]
	gone       chan struct{} // closed when the command is
	theirs     []int         // the command's ends, closed in the launcher once it runs
}

var stdNames = [3]string{"standard input", "standard output", "standard error"}

// NamedPipes returns the pipes that arguments of a command name as files, as a shell does for `<(…)` (bash(1), Process
// Substitution).
func NamedPipes(argv []string) (fds []int) {
	for _, word := range argv {
		number, named := strings.CutPrefix(word, "/dev/fd/")
		fd, err := strconv.Atoi(number)
		if !named || err != nil || fd <= 2 || slices.Contains(fds, fd) {
			continue
		}
		var st unix.Stat_t
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 && unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			fds = append(fds, fd)
		}
	}
	return fds
}

// OpenToOthers lets a command of root's, which runs as somebody else, open by their names pipes of root's: for what
// each descriptor is open for, and no more. A FIFO in a file system keeps its mode, which outlasts the run.
func OpenToOthers(pipes []int) error {
	for _, fd := range pipes {
		var at unix.Statfs_t
		var st unix.Stat_t
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err := errors.Join(err, unix.Fstatfs(fd, &at), unix.Fstat(fd, &st)); err != nil {
			return fmt.Errorf("/dev/fd/%d: %w", fd, err)
		}
		mode := map[int]uint32{unix.O_RDONLY: 0o004, unix.O_WRONLY: 0o002, unix.O_RDWR: 0o006}[flags&unix.O_ACCMODE]
		if at.Type != unix.PIPEFS_MAGIC {
			continue
		}
		if err := unix.Fchmod(fd, st.Mode&0o7777|mode); err != nil {
			return fmt.Errorf("/dev/fd/%d: %w", fd, err)
		}
	}
	return nil
}

// JudgePassed refuses descriptors that the caller did not open: whatever this
// process opens itself is close-on-exec, and what it was handed cannot be.
func JudgePassed(fds []int) error {
	for _, fd := range fds {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		switch {
		case fd <= 2:
			return fmt.Errorf("--pass-fd %d: the standard descriptors are passed anyway", fd)
		case err != nil || flags&unix.FD_CLOEXEC != 0:
			return fmt.Errorf("--pass-fd %d: not open", fd)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return fmt.Errorf("--pass-fd %d: %w", fd, err)
		}
		if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFDIR || kind == unix.S_IFBLK {
			return fmt.Errorf("--pass-fd %d: a directory or block device would give the command access to all in it", fd)
		}
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			return fmt.Errorf("--pass-fd %d: the host's terminal cannot be passed", fd)
		}
		if err := judgeAnonymous(fd, &st); err != nil {
			return fmt.Errorf("--pass-fd %d: %w", fd, err)
		}
	}
	return nil
}

// JudgeStdio looks at the descriptors 0, 1 and 2 of this process. If what the
// command prints is to be kept, all of it passes through the launcher, whatever
// it is for.
func JudgeStdio(kept bool) (*Stdio, error) {
	s := &Stdio{Fds: [3]int{0, 1, 2}, Host: -1, gone: make(chan struct{})}
	var stats [3]unix.Stat_t
	for fd := range stats { // all first: a pipe would take the place of what is closed
		if err := unix.Fstat(fd, &stats[fd]); err != nil {
			return nil, fmt.Errorf("%s: %w", stdNames[fd], err)
		}
	}
	for fd := range s.Fds {
		st := &stats[fd]
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			return nil, fmt.Errorf("%s: a directory would give the command access to all below it", stdNames[fd])
		case unix.S_IFBLK:
			return nil, fmt.Errorf("%s: a block device would give the command access to the whole disk", stdNames[fd])
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil && flags&unix.O_PATH != 0 {
			return nil, fmt.Errorf("%s: opened with O_PATH, so it cannot be read or written", stdNames[fd])
		}
		pumped := kept && fd > 0
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFCHR:
			if modes, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
				s.Fds[fd] = Terminal
				if s.Host < 0 {
					s.Host, s.modes = fd, modes
					s.size, _ = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
				}
				continue
			}
		case unix.S_IFREG, unix.S_IFIFO:
			pumped = true
		case unix.S_IFSOCK: // of a message nothing but the command knows where it ends
			alone := fd == 0 && local(fd) && !same(&stats[0], &stats[1]) && !same(&stats[0], &stats[2])
			pumped = pumped || stream(fd) && !alone
		default:
			if err := judgeAnonymous(fd, st); err != nil {
				return nil, fmt.Errorf("%s: %w", stdNames[fd], err)
			}
		}
		if pumped {
			if err := s.pump(fd, stats[:]); err != nil {
				return nil, err
			}
		}
	}
	if s.Host >= 0 {
		front, err := unix.IoctlGetInt(s.Host, unix.TIOCGPGRP)
		s.Background = err != nil || front != unix.Getpgrp()
		for _, fd := range s.Fds {
			s.Background = s.Background || fd != Terminal
		}
	}
	return s, nil
}

// judgeAnonymous refuses what the kernel made without a place in any file system, but
// for what only counts, waits or wakes. The rest are doors to the host: a ring of
// io_uring(7) has a thread that does what is asked of it as whoever made it, and neither
// the filter nor the mounts of the sandbox are in its way; others hold somebody's memory
// (userfaultfd(2)), a file system to be, a program of the kernel's.
func judgeAnonymous(fd int, st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT != 0 {
		return nil
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return err
	}
	name = strings.Trim(strings.TrimPrefix(name, "anon_inode:"), "[]")
	switch name {
	case "eventfd", "eventpoll", "timerfd", "signalfd", "inotify", "pidfd":
		return nil
	}
	return fmt.Errorf("%q would give the command access to files outside", name)
}

// HandIn gives the command the host's terminal itself, for a run without that
// layer.
func (s *Stdio) HandIn() {
	for i, fd := range s.Fds {
		if fd == Terminal {
			s.Fds[i] = i
		}
	}
	s.Host, s.Background = -1, false
}

// same reports whether two descriptors lead to one file.
func same(a, b *unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// stream reports whether a socket carries bytes, and not messages.
func stream(fd int) bool {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_STREAM
}

// local reports whether a socket is one that leads to nowhere but its peer, and not
// into the host's network: see [Plan.JudgeHanded].
func local(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return err == nil && domain == unix.AF_UNIX
}

// pump puts a pipe between the command and one of the three.
func (s *Stdio) pump(fd int, stats []unix.Stat_t) error {
	st := &stats[fd]
	if fd == 2 && s.Fds[1] > 2 && same(st, &stats[1]) {
		s.Fds[2] = s.Fds[1] // 2>&1: one pipe keeps the order
		s.pumps[len(s.pumps)-1].single = false
		return nil
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("%s: %w", stdNames[fd], err)
	}
	if id := WhoAmI(); id.Root { // /dev/stderr can be opened by its owner only
		if err := unix.Fchown(ends[0], id.HostUID, id.HostGID); err != nil {
			return fmt.Errorf("%s: %w", stdNames[fd], err)
		}
	}
	theirs, ours := ends[0], ends[1]
	if fd > 0 {
		theirs, ours = ours, theirs
	}
	s.pumps = append(s.pumps, pump{name: stdNames[fd], host: fd, inner: ours, input: fd == 0, kind: st.Mode & unix.S_IFMT, single: true, gone: s.gone})
	s.theirs = append(s.theirs, theirs)
	s.Fds[fd] = theirs
	return nil
}

// Run starts the copying and gives up the command's ends. What it returns
// waits until all that the command wrote is where it belongs, and what it did
// not read is given back, once the command and all that it started are gone:
// as long as a reader outside takes, or no longer than a patience that is not 0.
func (s *Stdio) Run() (drain func(patience time.Duration) error) {
	done := make(chan error, len(s.pumps))
	for i := range s.pumps {
		if !s.pumps[i].input {
			s.pumps[i].log = s.Log
		}
		go func() { done <- s.pumps[i].run() }()
	}
	for _, fd := range s.theirs {
		unix.Close(fd)
	}
	return func(patience time.Duration) error {
		close(s.gone)
		var late <-chan time.Time
		if patience > 0 {
			late = time.After(patience)
		}
		var first error
		for range s.pumps {
			select {
			case err := <-done:
				first = cmp.Or(first, err)
			case <-late:
				return first
			}
		}
		return first
	}
}
