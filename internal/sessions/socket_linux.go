package sessions

import (
	"errors"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SocketIn is the address of a socket in a directory, by a path that is short wherever that lies: sun_path has 108 bytes.
func SocketIn(dir *os.File, name string) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name}
}

// Peer returns the process at the other end of a connection, and whose it is.
func Peer(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlled := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(controlled, err)
}
