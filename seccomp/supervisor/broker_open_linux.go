package supervisor

import (
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/seccomp"
)

// Opens are the calls that open a file by its name, and truncate(2): what a
// broker that decides on content ([Broker.Opens]) is asked about.
func Opens() []seccomp.Watched {
	return []seccomp.Watched{{Name: "open"}, {Name: "openat"}, {Name: "creat"}, {Name: "truncate"}}
}

// A FileID tells a file from every other, one that gets its number later
// included, as far as the file system keeps times of birth (statx(2)).
type FileID struct {
	Dev, Ino uint64 // Dev is major<<32 | minor
	Birth    unix.StatxTimestamp
}

// Identify returns the id of what a descriptor stands for, and its mode.
func Identify(fd int) (id FileID, mode uint32, err error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return id, 0, err
	}
	return idOf(&st), uint32(st.Mode), nil
}

func idOf(st *unix.Statx_t) FileID {
	id := FileID{Dev: uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), Ino: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Birth = st.Btime
	}
	return id
}

// Flags of open(2) that need the file to be a special one, or that change what
// O_CREAT means.
const (
	oPath      = unix.O_PATH
	oDirectory = unix.O_DIRECTORY
	oTmpfile   = unix.O_TMPFILE &^ unix.O_DIRECTORY
	// What openat2(2) takes; openat(2) ignores the rest.
	openFlags = unix.O_ACCMODE | unix.O_CREAT | unix.O_EXCL | unix.O_NOCTTY | unix.O_TRUNC | unix.O_APPEND | unix.O_NONBLOCK | unix.O_SYNC |
		unix.O_DSYNC | unix.O_ASYNC | unix.O_DIRECT | unix.O_LARGEFILE | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOATIME
)

// open opens a regular file, or makes it.
func (d *Broker) open(c *Call) Answer {
	at := c.Name == "openat"
	flags, mode := c.arg(at, 1), c.arg(at, 2)
	if c.Name == "creat" {
		flags, mode = unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, c.arg(at, 1)
	}
	name := c.Names()[0]
	switch {
	case flags&oPath != 0:
		return Answer{} // it neither makes a name nor opens what has one
	case flags&oTmpfile != 0 && d.Opens != nil:
		return d.openNameless(c, name, flags, mode)
	case flags&(oDirectory|oTmpfile) != 0, flags&unix.O_CREAT == 0 && d.Opens == nil:
		return Answer{}
	}
	s, ok := d.lookUp(c, name, d.opens)
	if !ok {
		return d.reopen(c, name, flags)
	}
	defer func() {
		if s.dir >= 0 {
			unix.Close(s.dir)
		}
	}()
	switch makes := flags&unix.O_CREAT != 0; {
	case !s.there && !makes:
		return Answer{} // the kernel returns ENOENT
	case s.slash && makes:
		return Answer{kind: fails, errno: unix.EISDIR}
	case s.there && makes && flags&unix.O_EXCL != 0:
		return Answer{kind: fails, errno: unix.EEXIST}
	case s.there && s.mode&unix.S_IFMT != unix.S_IFREG, s.slash:
		return Answer{} // it makes nothing, and the process opens it itself
	case s.there && d.Opens != nil:
		return d.openExisting(s, flags)
	case s.mount || !d.Makes(s.path):
		return Answer{}
	case !s.there && d.Forbids(s.path, nothing):
		return Answer{kind: fails, errno: unix.EACCES}
	}
	if err := d.takeUmask(c); err != nil {
		return Answer{kind: fails, errno: unix.EACCES}
	}
	how := unix.OpenHow{Flags: flags&openFlags | unix.O_CLOEXEC, Mode: mode & 0o7777, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH}
	if !s.there && d.Opens != nil {
		how.Flags |= unix.O_EXCL
	}
	fd, err := unix.Openat2(s.dir, s.name, &how)
	if err == unix.EEXIST && flags&unix.O_EXCL == 0 {
		return d.openExisting(s, flags) // the host has made it since
	}
	if err != nil {
		return failed(err)
	}
	a := Answer{kind: opened, fd: fd, cloexec: uint32(flags & unix.O_CLOEXEC)}
	if !s.there { // the kernel would have found out before
		if d.Opens != nil {
			if id, _, err := Identify(fd); err == nil {
				d.Created(s.path, id)
			}
		}
		dir := s.dir
		a.delivered = func(err error) {
			if err != nil {
				_ = unix.Unlinkat(dir, s.name, 0)
			}
			unix.Close(dir)
		}
		s.dir = -1
	}
	return a
}

// opens reports whether a path is the broker's to open, or to make.
func (d *Broker) opens(s *entry) bool {
	return d.Opens != nil && d.Opens(s.path) || !s.mount && d.Makes(s.path)
}

// openExisting opens an existing regular file, unless it is withheld: the very file that was
// decided on, even if another gets its name meanwhile.
func (d *Broker) openExisting(s entry, flags uint64) Answer {
	fd, err := unix.Openat2(s.dir, s.name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return failed(err)
	}
	defer unix.Close(fd)
	return d.openHeld(fd, s.path, flags)
}

// openHeld opens the file that a descriptor holds, unless it is withheld.
func (d *Broker) openHeld(fd int, path string, flags uint64) Answer {
	id, mode, err := Identify(fd)
	switch {
	case err != nil:
		return failed(err)
	case mode&unix.S_IFMT != unix.S_IFREG:
		return Answer{}
	}
	writes := flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0
	if errno := d.withholds(path, id, writes); errno != 0 {
		return Answer{kind: fails, errno: errno}
	}
	known := uint64(openFlags &^ (unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW))
	cut := flags&unix.O_TRUNC != 0 && flags&unix.O_ACCMODE != unix.O_RDONLY
	if cut {
		known &^= unix.O_TRUNC
	}
	mine, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), int(flags&known|unix.O_CLOEXEC), 0)
	if err != nil {
		return failed(err)
	}
	a := Answer{kind: opened, fd: mine, cloexec: uint32(flags & unix.O_CLOEXEC)}
	if cut { // only once the process has the descriptor: with EMFILE the content stays
		a.delivered = func(err error) {
			if err == nil {
				_ = unix.Ftruncate(mine, 0)
			}
		}
	}
	return a
}

// openNameless makes a file that has no name (O_TMPFILE).
func (d *Broker) openNameless(c *Call, n Name, flags, mode uint64) Answer {
	text, err := c.absolute(n)
	if err != nil || !c.alive() {
		return Answer{}
	}
	dir, err := open(d.Root, text, unix.O_DIRECTORY|flags&unix.O_NOFOLLOW)
	if err != nil {
		return Answer{}
	}
	defer unix.Close(dir)
	if at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(dir)); err != nil || !d.Opens(at) {
		return Answer{}
	}
	if err := d.takeUmask(c); err != nil {
		return Answer{kind: fails, errno: unix.EACCES}
	}
	fd, err := unix.Openat2(dir, ".", &unix.OpenHow{Flags: flags&openFlags | unix.O_TMPFILE | unix.O_CLOEXEC, Mode: mode & 0o7777})
	if err != nil {
		return failed(err)
	}
	return Answer{kind: opened, fd: fd, cloexec: uint32(flags & unix.O_CLOEXEC)}
}

// reopen opens again what a process has open, or executes, by its names in /proc: these are
// links of the process's own, past every other path. A file of another mount was passed in
// from outside, perhaps with fewer rights, and is not reopened.
func (d *Broker) reopen(c *Call, n Name, flags uint64) Answer {
	if d.Opens == nil {
		return Answer{}
	}
	text, err := c.Text(n)
	link, ok := ownLink(text)
	if err != nil || !ok || !n.Follow {
		return Answer{}
	}
	fd, err := unix.Open(c.proc(link), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return Answer{}
	}
	defer unix.Close(fd)
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil || !c.alive() || !d.Opens(name) || !d.mounted(fd, name) {
		return Answer{}
	}
	return d.openHeld(fd, name, flags)
}

// removed is what readlink(2) adds to the path of a file that has no name any more; a file may also
// have a name that ends so (d_path of Linux 6.18).
const removed = " (deleted)"

// withholds is Withholds for what a descriptor holds. A file that is withheld under a
// name stays so after the process removed that name.
func (d *Broker) withholds(path string, id FileID, writes bool) unix.Errno {
	if errno := d.Withholds(path, id, writes); errno != 0 {
		return errno
	}
	if name, was := strings.CutSuffix(path, removed); was {
		return d.Withholds(name, id, writes)
	}
	return 0
}

// mounted reports whether what a descriptor holds is in a mount of the processes'
// own tree: its path, or the nearest above that is there, says in which it would be.
func (d *Broker) mounted(fd int, name string) bool {
	own, err := mountOf(fd)
	if err != nil {
		return false
	}
	for ; ; name = path.Dir(name) {
		there, err := open(d.Root, name, unix.O_NOFOLLOW)
		switch {
		case err == nil:
			at, err := mountOf(there)
			unix.Close(there)
			return err == nil && at == own
		case err != unix.ENOENT && err != unix.ENOTDIR, name == "/":
			return false
		}
	}
}

// mountOf returns the number of the mount that a descriptor was opened in: no
// two that stand have the same, in whatever namespace (statx(2), Linux 5.8).
func mountOf(fd int) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return 0, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return 0, unix.EOPNOTSUPP
	}
	return st.Mnt_id, nil
}

// ownLink returns which of a process's links in /proc a path names.
func ownLink(text string) (link string, ok bool) {
	switch text {
	case "/proc/self/exe":
		return "exe", true
	case "/dev/stdin":
		return "fd/0", true
	case "/dev/stdout":
		return "fd/1", true
	case "/dev/stderr":
		return "fd/2", true
	}
	for _, prefix := range [...]string{"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"} {
		if number, is := strings.CutPrefix(text, prefix); is {
			_, err := strconv.ParseUint(number, 10, 31)
			return "fd/" + number, err == nil
		}
	}
	return "", false
}

// truncate cuts an existing file, unless it is withheld.
func (d *Broker) truncate(c *Call) Answer {
	s, ok := d.lookUp(c, c.Names()[0], d.opens)
	if !ok || d.Opens == nil {
		return Answer{}
	}
	defer unix.Close(s.dir)
	if !s.there || s.mode&unix.S_IFMT != unix.S_IFREG || s.slash {
		return Answer{}
	}
	a := d.openExisting(s, unix.O_WRONLY)
	if a.kind != opened {
		return a
	}
	defer unix.Close(a.fd)
	return d.outcome(c, func() error { return unix.Ftruncate(a.fd, int64(c.Data.Args[1])) })
}

// failed answers with an error of the kernel's.
func failed(err error) Answer {
	if errno, ok := err.(unix.Errno); ok {
		return Answer{kind: fails, errno: errno}
	}
	return Answer{kind: fails, errno: unix.EIO}
}
