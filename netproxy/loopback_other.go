//go:build !linux

package netproxy

import "net"

// loopbackDialer connects to a port of this machine.
var loopbackDialer = &net.Dialer{KeepAlive: -1}
