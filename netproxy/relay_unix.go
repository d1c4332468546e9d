//go:build unix

package netproxy

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// What one read takes: much, since then reading and writing is as fast as
// splice(2), which needs a pipe for each direction; but little where many
// tunnels move at once, so that clients that do not read what they asked for
// cannot fill the memory of the host.
const (
	bigBuffer   = 256 << 10
	bigBuffers  = 64
	smallBuffer = 8 << 10
)

var (
	bigPool   = sync.Pool{New: func() any { return new([bigBuffer]byte) }}
	smallPool = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	bigTaken  atomic.Int32
)

// takeBuffer lends a buffer until giveBuffer has it back.
func takeBuffer() []byte {
	if bigTaken.Add(1) <= bigBuffers {
		return bigPool.Get().(*[bigBuffer]byte)[:]
	}
	bigTaken.Add(-1)
	return smallPool.Get().(*[smallBuffer]byte)[:]
}

func giveBuffer(b []byte) {
	if len(b) == bigBuffer {
		bigPool.Put((*[bigBuffer]byte)(b))
		bigTaken.Add(-1)
	} else {
		smallPool.Put((*[smallBuffer]byte)(b))
	}
}

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
	var buf []byte
	defer func() {
		if buf != nil {
			giveBuffer(buf)
		}
	}()
	for total := int64(0); ; {
		var n int
		var readErr error
		err := raw.Read(func(fd uintptr) bool {
			if buf == nil {
				buf = takeBuffer()
			}
			n, readErr = syscall.Read(int(fd), buf)
			for readErr == syscall.EINTR {
				n, readErr = syscall.Read(int(fd), buf)
			}
			if readErr == syscall.EAGAIN {
				giveBuffer(buf)
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
