//go:build !unix

package netproxy

import (
	"io"
	"net"
	"sync/atomic"
)

// copyIdle is io.Copy: without a way to wait for bytes apart from reading
// them, an idle tunnel holds its buffer.
func copyIdle(dst io.Writer, src net.Conn, _ *atomic.Bool) (int64, error) {
	return io.Copy(struct{ io.Writer }{dst}, struct{ io.Reader }{src})
}
