//go:build !linux

package netproxy

import "net"

// ownPort is the port of ln, which must not lead to itself: there is only one network
// namespace.
func ownPort(ln net.Listener) uint16 {
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		return uint16(a.Port)
	}
	return 0
}
