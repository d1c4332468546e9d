package supervisor

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// link makes another name for a file.
func (d *Broker) link(c *Call) Answer {
	names := c.Names()
	flags := 0
	if c.Name == "linkat" {
		flags = int(int32(uint32(c.Data.Args[4])))
	}
	if flags&^atSymlinkFollow != 0 {
		return Answer{} // AT_EMPTY_PATH takes a capability
	}
	to, ok := d.lookUpToMake(c, names[1])
	if !ok {
		return Answer{}
	}
	defer unix.Close(to.dir)
	switch {
	case to.there:
		return Answer{kind: fails, errno: unix.EEXIST}
	case to.slash:
		return Answer{kind: fails, errno: unix.ENOENT}
	}
	if fd, ok := c.ownDescriptor(names[0]); ok && flags&atSymlinkFollow != 0 {
		defer unix.Close(fd)
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || d.Forbids(to.path, d.within(entry{mode: st.Mode})) {
			return Answer{kind: fails, errno: unix.EACCES}
		}
		id, mode, err := Identify(fd)
		if err != nil {
			return failed(err)
		}
		if d.Opens != nil {
			name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			if err != nil || d.withholds(name, id, true) != 0 {
				return Answer{kind: fails, errno: unix.EACCES}
			}
		}
		return d.reportName(entry{id: id, mode: mode}, to, d.outcome(c, func() error {
			return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), to.dir, to.name, unix.AT_SYMLINK_FOLLOW)
		}))
	}
	from, ok := d.lookUpToMake(c, names[0])
	if !ok {
		return Answer{}
	}
	defer unix.Close(from.dir)
	switch {
	case !from.there || from.slash:
		return Answer{}
	case d.Forbids(to.path, d.within(from)), d.mustStay(from):
		return Answer{kind: fails, errno: unix.EACCES}
	}
	return d.reportName(from, to, d.outcome(c, func() error { return unix.Linkat(from.dir, from.name, to.dir, to.name, 0) }))
}

// ownDescriptor holds what a descriptor of the process stands for, where a name
// names one: how a file without a name gets one (open(2), O_TMPFILE).
func (c *Call) ownDescriptor(n Name) (fd int, ok bool) {
	text, err := c.Text(n)
	if err != nil {
		return -1, false
	}
	link, ok := ownLink(text)
	if !ok || !strings.HasPrefix(text, "/proc/self/fd/") {
		return -1, false
	}
	if fd, err = unix.Open(c.proc(link), unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return -1, false
	}
	if !c.alive() {
		unix.Close(fd)
		return -1, false
	}
	return fd, true
}

// rename moves a name.
func (d *Broker) rename(c *Call) Answer {
	flags := uint(0)
	if c.Name == "renameat2" {
		flags = uint(uint32(c.Data.Args[4]))
	}
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return Answer{} // a whiteout takes a capability
	}
	names := c.Names()
	from, ok := d.lookUpToMake(c, names[0])
	if !ok {
		return Answer{}
	}
	defer unix.Close(from.dir)
	to, ok := d.lookUpToMake(c, names[1])
	if !ok {
		return Answer{}
	}
	defer unix.Close(to.dir)
	isDir := from.mode&unix.S_IFMT == unix.S_IFDIR
	switch {
	case !from.there, (from.slash || to.slash) && !isDir:
		return Answer{} // the kernel returns the error
	case isDir && d.Separate(from.path, to.path), flags&unix.RENAME_EXCHANGE != 0 && to.mode&unix.S_IFMT == unix.S_IFDIR && d.Separate(to.path, from.path):
		return Answer{kind: fails, errno: unix.EXDEV}
	case d.Forbids(to.path, d.within(from)), flags&unix.RENAME_EXCHANGE != 0 && d.Forbids(from.path, d.within(to)):
		return Answer{kind: fails, errno: unix.EACCES}
	case d.mustStay(from), to.there && d.mustStay(to):
		return Answer{kind: fails, errno: unix.EACCES}
	}
	return d.reportName(from, to, d.outcome(c, func() error { return unix.Renameat2(from.dir, from.name, to.dir, to.name, flags) }))
}

// reportName calls Created with the new name of a file that was moved or linked.
func (d *Broker) reportName(from, to entry, a Answer) Answer {
	if d.Opens != nil && a.kind == succeeds && from.mode&unix.S_IFMT == unix.S_IFREG {
		d.Created(to.path, from.id)
	}
	return a
}

// mustStay reports whether a name cannot be moved, since what it names, or something below it, is
// withheld by its path.
func (d *Broker) mustStay(s entry) bool {
	if d.Opens == nil {
		return false
	}
	if s.mode&unix.S_IFMT == unix.S_IFDIR {
		return d.Keeps(s.path)
	}
	return d.Withholds(s.path, s.id, true) != 0
}

// within returns a function that reports whether a directory holds a relative path. Where a
// symbolic link leads there may be anything, now or later.
func (d *Broker) within(s entry) func(string) bool {
	switch s.mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		return anything
	default:
		return nothing
	}
	return func(rel string) bool {
		fd, err := unix.Openat2(s.dir, s.name+"/"+rel, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
		})
		if err == nil {
			unix.Close(fd)
		}
		return err != unix.ENOENT && err != unix.ENOTDIR // what cannot be looked at may be there
	}
}
