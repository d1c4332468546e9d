//go:build unix

package eof

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// BrokenOff reports whether a socket of which an end was read was broken off. A connection
// that has ended one way still has a peer, and one that was broken off has none, unless that
// came after its end, as EPIPE. Where this side has ended too there is no peer either.
func BrokenOff(fd uintptr) bool {
	if _, err := unix.Getpeername(int(fd)); err != unix.ENOTCONN {
		return false
	}
	told, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
	return err != nil || syscall.Errno(told) != syscall.EPIPE
}

// isBrokenOff is BrokenOff for a connection, if it has a descriptor. Of one that this side
// has closed meanwhile, as after a write that failed, nobody can say that it has ended.
func isBrokenOff(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	is := true
	if raw, err := sc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { is = BrokenOff(fd) })
	}
	return is
}
