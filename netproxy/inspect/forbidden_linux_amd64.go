package inspect

import "golang.org/x/sys/unix"

// forbiddenHere are older forms of what is forbidden.
var forbiddenHere = []uint32{
	unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_LINK, unix.SYS_SYMLINK, unix.SYS_MKDIR,
}
