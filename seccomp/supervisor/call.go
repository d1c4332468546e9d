// Package supervisor answers the system calls about which a filter of
// [seccomp.Watch] asks: seccomp_unotify(2), Linux 5.9 and later.
//
// It promises:
//
//   - Each call that the filter asks about is handed over once ([Call]), with the
//     process, the call's name, and the paths that its arguments name. These were
//     read while the process still waited in that call.
//   - [Observe] changes nothing: the call continues in the kernel, whatever the
//     observer does.
//   - When the supervisor ends or its process dies, the kernel answers every
//     such call with ENOSYS: no call passes unseen.
//
// Another thread of the process may rewrite the memory that a call's arguments
// point to, after it was read here and before the kernel reads it. So a decision
// that protects something must not rest on a [Call] that then continues; a report may.
//
// namespaces.Plan.Watch takes the filter, namespaces.Sandbox.Listener hands out the
// listener, and [Observe] or [Broker.Serve] serves it. [Call.Names] are the paths that a
// call names, [Call.Path] is where one leads in the process's own view of files, and
// [Call.Address] is the address of a connect(2). A call whose process has died returns
// [ErrGone], and counts for nothing.
package supervisor

import (
	"github.com/pccrun/pccrun/seccomp"
)

// An Op is what a call does with a path that it names.
type Op uint8

// The operations.
const (
	Read    Op = iota // its content, its status, where it leads
	Write             // its content, its mode; an open with O_CREAT
	Create            // a new name: mkdir, link, symlink, mknod, the new name of a rename
	Remove            // an old name: unlink, rmdir, the old name of a rename
	Execute           // execve and execveat
	Connect           // a unix socket
)

var opNames = [...]string{"read", "write", "create", "remove", "execute", "connect"}

// String returns the operation as a word.
func (d Op) String() string { return opNames[d] }

// A Name is a path as a call names it: relative to a directory's descriptor.
type Name struct {
	Op      Op
	Dir     int    // descriptor of the process, or AT_FDCWD
	Pointer uint64 // of the path, in the process's memory
	Follow  bool   // a link at the end is followed
}

// A shape says where the arguments of a call are.
type shape struct {
	name      string
	dir, path int // of the arguments, -1 for none
	dir2      int
	path2     int // 0 for none: no call has its second path first
	op        Op
	op2       Op
	flags     int    // argument of O_* flags, 0 for none
	at        int    // argument of AT_* flags, 0 for none
	noFollow  bool   // a link at the end is not followed, whatever the flags
	bits      uint32 // of flags: the filter asks only where one is set
}

// writing are the flags with which open(2) may change something.
const writing = 0o1 | 0o2 | 0o100 | 0o1000 // O_WRONLY, O_RDWR, O_CREAT, O_TRUNC: the same on every architecture here

// Flags of open(2) and the *at calls that the same kernels have in common.
// O_NOFOLLOW differs between x86 and arm, and is found by architecture.
const (
	atSymlinkNofollow = 0x100
	atSymlinkFollow   = 0x400
	oCreat            = 0o100
	oExcl             = 0o200
)

func oNofollow(arch uint32) uint64 {
	if arch == seccomp.ArchAarch64 || arch == seccomp.ArchARM {
		return 0o100000
	}
	return 0o400000
}

// writes are the calls that change names or open for writing.
var writes = [...]shape{
	{name: "open", dir: -1, path: 0, flags: 1, bits: writing, op: Write},
	{name: "openat", dir: 0, path: 1, flags: 2, bits: writing, op: Write},
	{name: "creat", dir: -1, path: 0, op: Write},
	{name: "truncate", dir: -1, path: 0, op: Write},
	{name: "mkdir", dir: -1, path: 0, op: Create, noFollow: true},
	{name: "mkdirat", dir: 0, path: 1, op: Create, noFollow: true},
	{name: "mknod", dir: -1, path: 0, op: Create, noFollow: true},
	{name: "mknodat", dir: 0, path: 1, op: Create, noFollow: true},
	{name: "symlink", dir: -1, path: 1, op: Create, noFollow: true}, // the first is text
	{name: "symlinkat", dir: 1, path: 2, op: Create, noFollow: true},
	{name: "link", dir: -1, path: 0, op: Read, noFollow: true, dir2: -1, path2: 1, op2: Create},
	{name: "linkat", dir: 0, path: 1, op: Read, noFollow: true, dir2: 2, path2: 3, op2: Create},
	{name: "rename", dir: -1, path: 0, op: Remove, noFollow: true, dir2: -1, path2: 1, op2: Create},
	{name: "renameat", dir: 0, path: 1, op: Remove, noFollow: true, dir2: 2, path2: 3, op2: Create},
	{name: "renameat2", dir: 0, path: 1, op: Remove, noFollow: true, dir2: 2, path2: 3, op2: Create},
}

// removals are the calls that remove names: a clean-up makes one for each file.
var removals = [...]shape{
	{name: "unlink", dir: -1, path: 0, op: Remove, noFollow: true},
	{name: "unlinkat", dir: 0, path: 1, op: Remove, noFollow: true},
	{name: "rmdir", dir: -1, path: 0, op: Remove, noFollow: true},
}

// modes are the calls that change modes or owners.
var modes = [...]shape{
	{name: "chmod", dir: -1, path: 0, op: Write},
	{name: "fchmodat", dir: 0, path: 1, op: Write},
	{name: "fchmodat2", dir: 0, path: 1, op: Write, at: 3},
	{name: "chown", dir: -1, path: 0, op: Write},
	{name: "lchown", dir: -1, path: 0, op: Write, noFollow: true},
	{name: "fchownat", dir: 0, path: 1, op: Write, at: 4},
}

// uses are the calls that execute a file or enter a directory.
var uses = [...]shape{
	{name: "chdir", dir: -1, path: 0},
	{name: "execve", dir: -1, path: 0, op: Execute},
	{name: "execveat", dir: 0, path: 1, at: 4, op: Execute},
}

// Writes are the calls that may change a file by its name. Opens for reading and removals are
// left out: there are so many that a report in every run would slow it down.
func Writes() []seccomp.Watched { return watched(writes[:], modes[:]) }

// Connects is connect(2), except with an address of the length of netlink's, IPv4's or IPv6's: few
// addresses of unix sockets have these lengths.
func Connects() []seccomp.Watched {
	return []seccomp.Watched{{Name: "connect", Arg: 2, Passed: []uint32{12, 16, 28}}}
}

func watched(tables ...[]shape) (list []seccomp.Watched) {
	for _, table := range tables {
		for _, s := range table {
			w := seccomp.Watched{Name: s.name}
			if s.bits != 0 {
				w.Arg, w.Bits = uint(s.flags), s.bits
			}
			list = append(list, w)
		}
	}
	return list
}

func shapeOf(name string) (shape, bool) {
	for _, table := range [...][]shape{writes[:], removals[:], modes[:], uses[:]} {
		for _, s := range table {
			if s.name == name {
				return s, true
			}
		}
	}
	return shape{}, false
}

// names returns the paths that a call names. It is pure.
func names(name string, d seccomp.Data) []Name {
	s, ok := shapeOf(name)
	if !ok || s.path < 0 {
		return nil
	}
	first := Name{Op: s.op, Dir: dirArg(d, s.dir), Pointer: d.Args[s.path], Follow: !s.noFollow}
	if s.flags != 0 {
		flags := d.Args[s.flags]
		if flags&writing == 0 {
			first.Op = Read
		}
		if flags&oNofollow(d.Arch) != 0 || flags&oCreat != 0 && flags&oExcl != 0 {
			first.Follow = false
		}
	}
	if s.at != 0 && d.Args[s.at]&atSymlinkNofollow != 0 {
		first.Follow = false
	}
	if name == "linkat" && d.Args[4]&atSymlinkFollow != 0 {
		first.Follow = true
	}
	list := []Name{first}
	if s.path2 != 0 {
		list = append(list, Name{Op: s.op2, Dir: dirArg(d, s.dir2), Pointer: d.Args[s.path2]})
	}
	return list
}

// atFdcwd is AT_FDCWD of fcntl.h.
const atFdcwd = -100

// dirArg reads a descriptor as the kernel does: an int.
func dirArg(d seccomp.Data, arg int) int {
	if arg < 0 {
		return atFdcwd
	}
	return int(int32(uint32(d.Args[arg])))
}
