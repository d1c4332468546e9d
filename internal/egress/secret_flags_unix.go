//go:build unix

package egress

import "syscall"

// secretFlags open a file that is neither a link, nor waited for, nor anybody's terminal.
const secretFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY
