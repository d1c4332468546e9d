package netproxy

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownPort is the port of ln if it stands in this process's own network namespace: whoever
// came in by it must not be led there again. Else it is 0.
func ownPort(ln net.Listener) uint16 {
	if a, ok := ln.Addr().(*net.TCPAddr); ok && sameNamespace(ln) {
		return uint16(a.Port)
	}
	return 0
}

// sameNamespace says whether ln stands in this process's own network
// namespace, by SO_NETNS_COOKIE (Linux 5.14). Where that is not known it says
// yes, which is safe: a port is refused that could have been dialled.
func sameNamespace(ln net.Listener) bool {
	theirs, ok := namespaceOf(ln)
	if !ok {
		return true
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	ours, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return err != nil || ours == theirs
}

func namespaceOf(ln net.Listener) (cookie uint64, ok bool) {
	sc, ok := ln.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, false
	}
	failed := raw.Control(func(fd uintptr) {
		cookie, err = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	})
	return cookie, failed == nil && err == nil
}
