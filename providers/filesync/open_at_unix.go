//go:build unix

package filesync

import "syscall"

const nonblock = syscall.O_NONBLOCK // a FIFO must not hold us up
