//go:build unix

package netproxy

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/pccrun/pccrun/netproxy/eof"
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
// and two descriptors. That the other way is over is for whoever carries it to say,
// before src hears of it.
func copyIdle(dst io.Writer, src net.Conn, over *atomic.Bool) (int64, error) {
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
		var readErr error // what came instead of more
		err := raw.Read(func(fd uintptr) bool {
			if buf == nil {
				buf = takeBuffer()
			}
			if n, readErr = readOnce(fd, buf); readErr == syscall.EAGAIN {
				giveBuffer(buf)
				buf = nil
				return false // wait until there is something to read
			}
			// An answer and its end often come together, and are passed on together.
			if readErr == nil && n < len(buf) {
				var more int
				more, readErr = readOnce(fd, buf[n:])
				n += more
			}
			if readErr == io.EOF && eof.BrokenOff(fd) && !over.Load() {
				readErr = syscall.ECONNRESET
			}
			return true
		})
		if err != nil {
			return total, err
		}
		if readErr == syscall.EAGAIN { // as to more of it
			readErr = nil
		}
		if n > 0 {
			w, err := dst.Write(buf[:n])
			total += int64(w)
			if err != nil {
				return total, err
			}
		}
		switch {
		case readErr == io.EOF:
			return total, nil
		case readErr != nil:
			return total, readErr
		}
	}
}

// readOnce is read(2), with io.EOF for an end, and never less than nothing read.
func readOnce(fd uintptr, b []byte) (int, error) {
	for {
		switch n, err := syscall.Read(int(fd), b); {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}
