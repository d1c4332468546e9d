package namespaces

import (
	"golang.org/x/sys/unix"
)

// The rights that Landlock takes away everywhere but below what may be
// written (landlock(7)). Only those that writing needs: the rights to read and
// execute would make each open walk its path, as TRUNCATE and IOCTL_DEV do,
// and cost a third of a grep; the mounts decide on those alone.
const landlockWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
	unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
	unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
	unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER

// The rights to read: taken under strict only, for what they cost.
const landlockRead = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_EXECUTE

// landlockFile are the rights that mean something on a file; the others are
// refused there (EINVAL).
const landlockFile = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE |
	unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

// landlockAll are all rights on files that a version knows.
func landlockAll(abi int) uint64 {
	all := uint64(landlockWrite | landlockRead)
	if abi >= landlockTruncate {
		all |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= landlockIoctl {
		all |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return all
}

// The rights of those to make a name, or to give one to something else, that a
// broker has in place of the command. Sockets stay: bind(2) is no call that
// anybody else can do.
const landlockMake = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
	unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM

// The rights on content that a broker has in place of the command, where it opens
// files for it.
const landlockContent = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE

// landlockScopes keeps signals and abstract sockets within the sandbox (ABI 6,
// Linux 6.12).
const landlockScopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL

// The ABI versions that matter here. Version 1 refuses every rename across
// directories, so it is left off.
const (
	landlockRefer    = 2 // Linux 5.19
	landlockTruncate = 3 // Linux 6.2
	landlockIoctl    = 5 // Linux 6.10
	landlockScope    = 6 // Linux 6.12
)

// landlockABI returns the kernel's Landlock version, 0 for none.
func landlockABI() int {
	v, _, err := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if err != 0 {
		return 0
	}
	return int(v)
}

// landlockRuleset is struct landlock_ruleset_attr of ABI 6.
type landlockRuleset struct {
	fs, net, scoped uint64
}
