package netproxy

import "net"

// pass carries bytes from src to dst until src ends, and returns how many. An
// end is passed on as one, a failure ends both.
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
