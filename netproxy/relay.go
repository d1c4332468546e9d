package netproxy

import (
	"errors"
	"net"
	"sync/atomic"
)

// A tunnel carries bytes both ways between two connections, which its owner closes
// when both ways are over.
type tunnel struct{ over atomic.Bool }

// carry carries bytes both ways between a client and where it wanted to go until both
// ends have closed.
func carry(c, to net.Conn) (up, down int64) {
	var t tunnel
	ended := make(chan int64, 1)
	go func() { ended <- t.pass(c, to) }()
	up = t.pass(to, c)
	return up, <-ended
}

// pass carries bytes from src to dst until src ends, and returns how many. An
// end is passed on as one, a failure ends both. The end of the second way is passed
// on by closing the connections: a call less of each tunnel.
func (t *tunnel) pass(dst, src net.Conn) (n int64) {
	n, err := copyIdle(dst, src, &t.over)
	t.end(dst, src, err)
	return n
}

// end is for a way that is over, by an end or a failure.
func (t *tunnel) end(dst, src net.Conn, err error) {
	if err == nil && t.over.Swap(true) {
		return
	}
	if err == nil && closeWrite(dst) == nil {
		return
	}
	reset(dst)
	reset(src)
}

// closeWrite passes an end on.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
