//go:build unix

package netproxy

import (
	"io"
	"net"
	"sync"
	"syscall"
)

// relayBuffer is what one read takes. At this size reading and writing is as
// fast as splice(2), which needs a pipe for each direction.
const relayBuffer = 256 << 10

var relayBuffers = sync.Pool{New: func() any { return new([relayBuffer]byte) }}

// copyIdle is io.Copy for connections that are idle most of the time: it holds
// a buffer only while bytes move, so that an idle tunnel costs two goroutines
// and two descriptors.
func copyIdle(dst io.Writer, src net.Conn) (int64, error) {
	sc, ok := src.(syscall.Conn)
	if !ok {
		return io.Copy(struct{ io.Writer }{dst}, struct{ io.Reader }{src})
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var buf *[relayBuffer]byte
	defer func() {
		if buf != nil {
			relayBuffers.Put(buf)
		}
	}()
	for total := int64(0); ; {
		var n int
		var readErr error
		err := raw.Read(func(fd uintptr) bool {
			if buf == nil {
				buf = relayBuffers.Get().(*[relayBuffer]byte)
			}
			n, readErr = syscall.Read(int(fd), buf[:])
			for readErr == syscall.EINTR {
				n, readErr = syscall.Read(int(fd), buf[:])
			}
			if readErr == syscall.EAGAIN {
				relayBuffers.Put(buf)
				buf = nil
				return false // wait until there is something to read
			}
			return true
		})
		if err == nil {
			err = readErr
		}
		if err != nil || n == 0 {
			return total, err
		}
		w, err := dst.Write(buf[:n])
		total += int64(w)
		if err != nil {
			return total, err
		}
	}
}
