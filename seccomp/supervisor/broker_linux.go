package supervisor

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/seccomp"
)

// A Broker makes names in place of the processes that ask for them, so that it
// can refuse some without a race: it looks a path up once, decides on the result,
// and does the call there, on descriptors. A call that it decided on never
// continues in the kernel, since another thread may have changed the path by then.
//
// A call that the broker does not do itself continues, and must fail where it would
// make a name in the broker's part of the tree: the caller gives the processes a
// Landlock domain without the rights to make something there. The broker is not in
// that domain. It makes names, links and renames, and opens regular files with the
// flags of the process, and does nothing else. It is the same user, without
// capabilities, and uses the process's own mounts and umask, so that it succeeds
// where the process would succeed without the domain, and only there.
//
// One thread does all calls one after the other: nothing inside can move what was
// looked up before it is used.
type Broker struct {
	Root  int // the root of the processes' tree; the broker duplicates the descriptor
	Umask int // of the processes at the start

	// Makes reports whether the broker makes names at a path, absolute and
	// through no link.
	Makes func(path string) bool

	// Forbids reports whether nothing may be made at a path, or, for a directory
	// that is moved there, whether something that it holds may not be there:
	// within reports whether it holds a relative path.
	Forbids func(path string, within func(rel string) bool) bool

	// Separate reports whether a directory cannot move from one path to another
	// as a whole, as if these were on different file systems (EXDEV): the process
	// then copies it, and Forbids decides on each name in it.
	Separate func(from, to string) bool

	// Opens reports whether the broker opens the existing file at a path, absolute and
	// through no link, in place of the processes; nil: it opens only what it makes. The
	// filter must ask about [Opens], and Landlock must withhold the rights to read and
	// write there. A file there that is not regular cannot be opened at all.
	Opens func(path string) bool

	// Withholds returns the error with which an open of a file fails, 0 to open it.
	// A name that it withholds cannot be moved, linked or replaced either. Keeps
	// reports whether Withholds depends on a path below a directory, which therefore
	// cannot be moved. Created is called with each new name of a file that the
	// process could read or has made.
	Withholds func(path string, id FileID, writes bool) unix.Errno
	Keeps     func(dir string) bool
	Created   func(path string, id FileID)

	// Seen is called with each call first; nil for none.
	Seen func(*Call)

	umaskSet bool // a process has called umask(2)
}

// Requests of ioctl(2) that make a name without a path argument, which Landlock does
// not check: they are refused (linux/btrfs.h, bcachefs_ioctl.h, ocfs2_ioctl.h).
const (
	btrfsSnapshot     = 0x50009401 // BTRFS_IOC_SNAP_CREATE
	btrfsSubvolume    = 0x5000940e // BTRFS_IOC_SUBVOL_CREATE
	btrfsSnapshot2    = 0x50009417 // BTRFS_IOC_SNAP_CREATE_V2
	btrfsSubvolume2   = 0x50009418 // BTRFS_IOC_SUBVOL_CREATE_V2
	bcachefsSubvolume = 0x4020bc10 // BCH_IOCTL_SUBVOLUME_CREATE
	ocfs2Reflink      = 0x40186f04 // OCFS2_IOC_REFLINK
)

// Creations are the calls that make a name, umask(2), and those by which a
// process would restrict itself in a way that the broker cannot see.
func Creations() []seccomp.Watched {
	list := []seccomp.Watched{{Name: "umask"}, {Name: "landlock_create_ruleset"}, {Name: "landlock_restrict_self"}, {Name: "ioctl", Arg: 1, Refused: []uint32{
		btrfsSnapshot, btrfsSubvolume, btrfsSnapshot2, btrfsSubvolume2, bcachefsSubvolume, ocfs2Reflink,
	}}}
	for _, w := range watched(writes[:]) {
		switch {
		case w.Name == "truncate":
			continue
		case w.Bits != 0:
			w.Bits = oCreat
		}
		list = append(list, w)
	}
	return list
}

// Accesses are what [Writes] leaves out for the number of such calls: every open, execution and
// removal, and chdir(2). Calls that ask for the status of a file alone are not among them.
func Accesses() []seccomp.Watched {
	return Both(Opens(), watched(removals[:], uses[:]))
}

// Both returns the calls of two lists; a call that stands in both is asked
// about where either does.
func Both(a, b []seccomp.Watched) []seccomp.Watched {
	list := slices.Clone(a)
next:
	for _, w := range b {
		for i := range list {
			if list[i].Name == w.Name {
				if list[i].Bits != 0 && w.Bits != 0 {
					list[i].Bits |= w.Bits
				} else {
					list[i] = seccomp.Watched{Name: w.Name}
				}
				continue next
			}
		}
		list = append(list, w)
	}
	return list
}

// Serve begins to answer, and takes the listener over. A process with a capability
// must not be a broker: it would do what the asking process may not.
func (d *Broker) Serve(listener int) (*Supervisor, error) {
	if err := Powerless(); err != nil {
		return nil, err
	}
	root, err := unix.FcntlInt(uintptr(d.Root), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	d.Root = root
	ready := make(chan error, 1)
	s := serve(listener, func() error {
		// The umask of this thread alone: it is set to that of each asking process.
		err := os.NewSyscallError("unshare(CLONE_FS)", unix.Unshare(unix.CLONE_FS))
		if err == nil {
			err = blockSignals()
		}
		ready <- err
		return err
	}, d.answer)
	go func() {
		<-s.done
		unix.Close(root)
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	return s, nil
}

// Powerless returns an error if this process has a capability, and so cannot be
// a broker.
func Powerless() error {
	var caps [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	if caps[0].Effective|caps[1].Effective != 0 {
		return fmt.Errorf("this process has capabilities (%08x%08x), and would do what the command cannot", caps[1].Effective, caps[0].Effective)
	}
	return nil
}

// blockSignals blocks all signals in this thread except those of its own faults. A signal
// would interrupt a system call, which would then fail for a process that got no signal. The Go
// runtime preempts goroutines by signals; this one is preempted at function calls all the same.
func blockSignals() error {
	set := unix.Sigset_t{}
	for i := range set.Val {
		set.Val[i] = ^uint64(0)
	}
	for _, own := range [...]unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP} {
		set.Val[0] &^= 1 << (own - 1)
	}
	return os.NewSyscallError("sigprocmask", unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil))
}

func (d *Broker) answer(c *Call) Answer {
	if d.Seen != nil {
		d.Seen(c)
	}
	switch c.Name {
	case "umask":
		d.umaskSet = true
	case "landlock_create_ruleset", "landlock_restrict_self":
		// The broker would do what a domain inside the sandbox's forbids. So a process
		// cannot make one, as on a kernel whose Landlock was switched off at boot.
		return Answer{kind: fails, errno: unix.EOPNOTSUPP}
	case "open", "openat", "creat":
		return d.open(c)
	case "truncate":
		return d.truncate(c)
	case "mkdir", "mkdirat":
		mode := c.arg(c.Name == "mkdirat", 1)
		return d.create(c, true, func(dir int, name string) error { return unix.Mkdirat(dir, name, uint32(mode)) })
	case "mknod", "mknodat":
		mode := uint32(c.arg(c.Name == "mknodat", 1))
		switch mode & unix.S_IFMT {
		case 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK: // of devices the kernel asks for a capability
			return d.create(c, false, func(dir int, name string) error { return unix.Mknodat(dir, name, mode, 0) })
		}
	case "symlink", "symlinkat":
		text, err := c.Text(Name{Pointer: c.Data.Args[0]})
		if err == nil && text != "" {
			return d.create(c, false, func(dir int, name string) error { return unix.Symlinkat(text, dir, name) })
		}
	case "link", "linkat":
		return d.link(c)
	case "rename", "renameat", "renameat2":
		return d.rename(c)
	}
	return Answer{}
}

// arg returns an argument of a call, or the next one of its *at form.
func (c *Call) arg(at bool, n int) uint64 {
	if at {
		n++
	}
	return c.Data.Args[n]
}

// An entry is a name in a directory that is held open, and what it named when it was looked up.
type entry struct {
	dir   int
	name  string
	path  string // of the name, through no link
	slash bool   // the path ended in one: a directory is meant
	there bool
	mode  uint32 // of what is there
	id    FileID // of what is there
	mount bool   // what is there is mounted there
}

// lookUpToMake looks up an entry where the broker makes names. ok is false for a call that continues in
// the kernel, which then returns its errors. The caller closes the directory of the entry.
func (d *Broker) lookUpToMake(c *Call, n Name) (s entry, ok bool) {
	return d.lookUp(c, n, func(s *entry) bool { return !s.mount && d.Makes(s.path) })
}

// lookUp is lookUpToMake for entries that ours reports to be the broker's.
func (d *Broker) lookUp(c *Call, n Name, ours func(*entry) bool) (s entry, ok bool) {
	text, err := c.absolute(n)
	if err != nil || !c.alive() {
		return s, false
	}
	slash := false
	for range maxLinks {
		if s, ok = d.split(text); !ok {
			return s, false
		}
		s.slash = s.slash || slash
		slash = s.slash
		if !s.there || s.mode&unix.S_IFMT != unix.S_IFLNK || !n.Follow {
			if !ours(&s) {
				unix.Close(s.dir)
				return s, false
			}
			return s, true
		}
		var b [unix.PathMax]byte
		length, err := unix.Readlinkat(s.dir, s.name, b[:])
		unix.Close(s.dir)
		if err != nil || length == len(b) {
			return s, false
		}
		if text = string(b[:length]); !strings.HasPrefix(text, "/") {
			text = path.Dir(s.path) + "/" + text
		}
	}
	return s, false
}

// absolute returns the path that a call names, from the root on. It is valid only if
// [Call.alive] reports true afterwards.
func (c *Call) absolute(n Name) (string, error) {
	text, err := c.text(n)
	if err != nil || strings.HasPrefix(text, "/") {
		return text, err
	}
	if text == "" {
		return "", unix.ENOENT
	}
	base, err := c.base(n)
	return base + "/" + text, err
}

// base returns the directory that a relative path begins at. Nothing inside can
// rename it before it is looked up, since the broker does renames too.
func (c *Call) base(n Name) (string, error) {
	link := "cwd"
	if n.Dir != atFdcwd {
		link = "fd/" + strconv.Itoa(n.Dir)
	}
	text, err := os.Readlink(c.proc(link))
	if strings.HasSuffix(text, removed) {
		var st unix.Stat_t
		if err = unix.Stat(c.proc(link), &st); err == nil && st.Nlink == 0 {
			err = unix.ENOENT
		}
	}
	return text, err
}

// split looks up a path's directory, and the name in it.
func (d *Broker) split(text string) (s entry, ok bool) {
	kept := strings.TrimRight(text, "/")
	i := strings.LastIndexByte(kept, '/')
	if i < 0 {
		return s, false
	}
	if s.name, s.slash = kept[i+1:], len(kept) < len(text); s.name == "." || s.name == ".." {
		return s, false
	}
	dir, err := open(d.Root, kept[:i+1], unix.O_DIRECTORY)
	if err != nil {
		return s, false
	}
	s.dir = dir
	at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(dir))
	var st unix.Statx_t
	if err == nil && strings.HasPrefix(at, "/") {
		s.path = path.Join(at, s.name)
		err = unix.Statx(dir, s.name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_BTIME, &st)
	}
	switch err {
	case nil:
		s.there, s.mode, s.id, s.mount = true, uint32(st.Mode), idOf(&st), st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	case unix.ENOENT:
	default:
		unix.Close(dir)
		return s, false
	}
	return s, true
}

// create makes a name that is not there.
func (d *Broker) create(c *Call, isDir bool, make func(dir int, name string) error) Answer {
	names := c.Names()
	s, ok := d.lookUpToMake(c, names[len(names)-1])
	if !ok {
		return Answer{}
	}
	defer unix.Close(s.dir)
	switch {
	case s.there:
		return Answer{kind: fails, errno: unix.EEXIST}
	case s.slash && !isDir:
		return Answer{kind: fails, errno: unix.ENOENT}
	case d.Forbids(s.path, c.content()):
		return Answer{kind: fails, errno: unix.EACCES}
	}
	return d.outcome(c, func() error { return make(s.dir, s.name) })
}

// content reports what the thing that a call makes holds: a new directory nothing; where a
// symbolic link leads there may be anything, now or later.
func (c *Call) content() func(string) bool {
	if strings.HasPrefix(c.Name, "symlink") {
		return anything
	}
	return nothing
}

func nothing(string) bool  { return false }
func anything(string) bool { return true }

// outcome does something with the process's umask, and answers with its result.
func (d *Broker) outcome(c *Call, do func() error) Answer {
	if err := d.takeUmask(c); err != nil {
		return Answer{kind: fails, errno: unix.EACCES}
	}
	err := do()
	if err == nil {
		return Answer{kind: succeeds}
	}
	return failed(err)
}

// takeUmask sets this thread's umask to the process's. Before the first umask(2) that is the one of the
// start, and is not read: reading it costs more than making the file.
func (d *Broker) takeUmask(c *Call) error {
	mask := d.Umask
	if d.umaskSet {
		text, err := os.ReadFile(c.proc("status"))
		if err != nil {
			return err
		}
		if mask, err = parseUmask(string(text)); err != nil {
			return err
		}
		if !c.alive() {
			return ErrGone
		}
	}
	unix.Umask(mask)
	return nil
}

// parseUmask finds the mask in proc_pid_status(5) (Linux 4.7). The name of the
// process, which may hold anything, stands before it on a line of its own, with
// its newlines escaped.
func parseUmask(status string) (int, error) {
	for line := range strings.Lines(status) {
		if digits, ok := strings.CutPrefix(line, "Umask:\t"); ok {
			n, err := strconv.ParseUint(strings.TrimSuffix(digits, "\n"), 8, 9)
			return int(n), err
		}
	}
	return 0, fmt.Errorf("no umask in /proc/PID/status")
}
