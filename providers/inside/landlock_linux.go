package inside

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rights that Landlock takes away everywhere but below what may be written,
// the same as on this machine itself (landlock(7)): package namespaces says why these.
const landlockWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
	unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
	unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
	unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER

// The versions that matter: 1 refuses every rename across directories.
const (
	landlockRefer    = 2 // Linux 5.19
	landlockTruncate = 3 // Linux 6.2
	landlockConnect  = 4 // Linux 6.7
	landlockScope    = 6 // Linux 6.12
)

// landlockPort is LANDLOCK_RULE_NET_PORT of linux/landlock.h.
const landlockPort = 2

// Landlock returns the kernel's Landlock version, 0 for none.
func Landlock() int {
	v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// landlock restricts this thread, where the kernel has it: [Ready] has said so.
func (p *Plan) landlock() error {
	abi := Landlock()
	if abi < landlockRefer {
		return nil
	}
	attr := struct{ fs, net, scoped uint64 }{fs: landlockWrite}
	size := unsafe.Sizeof(attr.fs)
	if p.Bare != nil && abi >= landlockTruncate {
		attr.fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE // no mount is read-only there
	}
	if p.Bare != nil && abi >= landlockConnect {
		attr.net = unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size = unsafe.Sizeof(attr.fs) + unsafe.Sizeof(attr.net)
	}
	if abi >= landlockScope {
		attr.scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = unsafe.Sizeof(attr)
	}
	rules, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	for _, path := range p.Writable {
		if err := allow(int(rules), path, attr.fs); err != nil {
			return err
		}
	}
	if attr.net != 0 && p.Bare.Port != 0 {
		port := struct{ rights, port uint64 }{attr.net, uint64(p.Bare.Port)}
		if _, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, landlockPort, uintptr(unsafe.Pointer(&port)), 0, 0, 0); errno != 0 {
			return os.NewSyscallError("landlock_add_rule", errno)
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0); errno != 0 {
		return os.NewSyscallError("landlock_restrict_self", errno)
	}
	return unix.Close(int(rules))
}

// allow adds a rule: all below a path may be written.
func allow(rules int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "fstat", Path: path, Err: err}
	}
	beneath := struct {
		rights uint64
		fd     int32
	}{rights, int32(fd)}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		beneath.rights &= unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE // the others mean nothing on a file
	}
	_, _, errno := unix.RawSyscall6(
		unix.SYS_LANDLOCK_ADD_RULE,
		uintptr(rules),
		unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&beneath)),
		0,
		0,
		0,
	)
	if errno != 0 {
		return &os.PathError{Op: "landlock_add_rule", Path: path, Err: errno}
	}
	return nil
}
