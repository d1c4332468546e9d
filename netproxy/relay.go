package netproxy

import "net"

// relay carries bytes both ways until both sides have ended, and returns how
// many. An end of one side is passed on as one, a failure ends both.
func relay(client, server net.Conn) (up, down int64) {
	done := make(chan int64)
	go func() { done <- pass(client, server) }()
	up = pass(server, client)
	return up, <-done
}

// pass carries bytes from src to dst until src ends.
func pass(dst, src net.Conn) (n int64) {
	n, err := copyIdle(dst, src)
	if err == nil {
		if half, ok := dst.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			return n
		}
	}
	reset(dst)
	reset(src)
	return n
}
