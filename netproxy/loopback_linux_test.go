package netproxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Asked twice, the kernel says the same of a connection as asked once.
func TestLoopbackDialer(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		defer l.Close()
		for _, way := range []struct {
			dial   func(context.Context, string, string) (net.Conn, error)
			probed int
		}{{dialLoopback, 0}, {loopbackDialer.DialContext, 0}, {new(net.Dialer).DialContext, 1}} { // the third is the control
			c, err := way.dial(t.Context(), "tcp", l.Addr().String())
			require.NoError(t, err)
			require.Equal(t, l.Addr().String(), c.RemoteAddr().String())
			require.True(t, c.LocalAddr().(*net.TCPAddr).IP.IsLoopback())
			raw, err := c.(syscall.Conn).SyscallConn()
			require.NoError(t, err)
			require.NoError(t, raw.Control(func(fd uintptr) {
				on, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
				require.NoError(t, err)
				require.Equal(t, way.probed, on)
			}))
			other, err := l.Accept()
			require.NoError(t, err)
			_, err = other.Write([]byte("x"))
			require.NoError(t, err)
			other.Close()
			n, err := c.Read(make([]byte, 2))
			require.NoError(t, err)
			require.Equal(t, 1, n)
			c.Close()
		}
		l.Close()
		_, err = dialLoopback(t.Context(), "tcp", l.Addr().String())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.EqualError(t, err, "dial tcp "+l.Addr().String()+": connect: connection refused")
	}
	// One whose listener takes nobody more waits, and ends with its context.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	at, err := unix.Getsockname(fd)
	require.NoError(t, err)
	full := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.(*unix.SockaddrInet4).Port}
	for range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		c, err := dialLoopback(ctx, "tcp", full.String())
		if err != nil {
			require.ErrorContains(t, err, "timeout")
			return
		}
		defer c.Close()
	}
	t.Fatal("the listener was never full")
}

// Where nobody listens, one who dials often enough meets himself; that is no connection.
func TestLoopbackMeetsNobody(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := unix.Getsockname(fd)
	require.NoError(t, err)
	require.NoError(t, unix.Connect(fd, at), "to itself") // the control
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(at.(*unix.SockaddrInet4).Port))
	require.True(t, isSelf(fd, to))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := connectAtOnce(l.Addr().(*net.TCPAddr).AddrPort())
	require.NoError(t, err)
	defer c.Close()
	raw, err := c.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		require.False(t, isSelf(int(fd), l.Addr().(*net.TCPAddr).AddrPort()))
	}))
}

// A connection that this package has made itself ends as those of package net do.
func TestLoopbackEnds(t *testing.T) {
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){"own": dialLoopback, "net": loopbackDialer.DialContext} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			c, err := dial(t.Context(), "tcp", l.Addr().String())
			require.NoError(t, err)
			_, own := c.(*loopback)
			require.Equal(t, name == "own", own)
			other, err := l.Accept()
			require.NoError(t, err)
			defer other.Close()

			require.NoError(t, closeWrite(c))
			_, err = other.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
			_, err = other.Write([]byte("still"))
			require.NoError(t, err)
			got := make([]byte, len("still"))
			_, err = io.ReadFull(c, got)
			require.NoError(t, err)

			require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
			_, err = c.Read(got)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			reset(c)
			_, err = other.Write([]byte("no more"))
			if err == nil { // the kernel takes one before it has heard
				_, err = other.Read(got)
			}
			require.Error(t, err)
			require.NotEqual(t, io.EOF, err)
			_, err = c.Write(got)
			require.Error(t, err)
			require.Error(t, closeWrite(c))
		})
	}
}

// segments is how many packets a connection has had from its peer.
func segments(t *testing.T, c net.Conn) (n uint32) {
	raw, err := c.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		require.NoError(t, err)
		n = info.Segs_in
	}))
	return n
}

// ended waits until the peer's end has come.
func ended(t *testing.T, c net.Conn) {
	raw, err := c.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		list := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		for list[0].Revents&unix.POLLRDHUP == 0 {
			_, err := unix.Poll(list, -1)
			require.NoError(t, ignoreEINTR(err))
		}
	}))
}

func ignoreEINTR(err error) error {
	if err == unix.EINTR {
		return nil
	}
	return err
}

func tcpPair(t *testing.T) (a, b net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	a, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	b, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

type noSocket struct{ net.Conn }

func (c noSocket) CloseWrite() error { return closeWrite(c.Conn) }

// TestTunnelBreaksOff holds that a connection that was broken off is not passed on as one that
// has ended, though the kernel told only the writer. The controls have ended.
func TestTunnelBreaksOff(t *testing.T) {
	breakOff := func(c net.Conn) {
		require.NoError(t, c.(*net.TCPConn).SetLinger(0))
		require.NoError(t, c.Close())
	}
	for name, c := range map[string]struct {
		end    func(server, src net.Conn)
		answer bool // the other way has ended before
		broken bool
	}{
		"broken off, and the writer was told": {end: func(server, src net.Conn) {
			breakOff(server)
			gone(t, src)
			_, err := src.Write([]byte("x"))
			require.ErrorIs(t, err, syscall.ECONNRESET)
		}, broken: true},
		"broken off":                           {end: func(server, src net.Conn) { breakOff(server) }, broken: true},
		"broken off, when the other way ended": {end: func(server, src net.Conn) { breakOff(server) }, answer: true, broken: true},
		"ended":                                {end: func(server, src net.Conn) { require.NoError(t, server.Close()) }},
		"ended, and reset by what came then": {end: func(server, src net.Conn) {
			require.NoError(t, server.Close())
			_, err := src.Write([]byte("x"))
			require.NoError(t, err)
			gone(t, src)
		}},
		"ended, when the other way ended": {end: func(server, src net.Conn) {
			require.NoError(t, server.Close())
			gone(t, src)
		}, answer: true},
	} {
		t.Run(name, func(t *testing.T) {
			server, src := tcpPair(t)
			dst, client := tcpPair(t)
			var tun tunnel
			if c.answer {
				tun.over.Store(true)
				require.NoError(t, closeWrite(src))
				ended(t, server)
			}
			_, err := server.Write([]byte("answer"))
			require.NoError(t, err)
			c.end(server, src)
			require.EqualValues(t, len("answer"), tun.pass(dst, src))
			dst.Close() // as the tunnel's owner does
			b, err := io.ReadAll(client)
			if c.broken {
				require.ErrorIs(t, err, syscall.ECONNRESET)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "answer", string(b))
		})
	}
}

// gone waits until a connection has no peer any more.
func gone(t *testing.T, c net.Conn) {
	raw, err := c.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var err error
		require.NoError(t, raw.Control(func(fd uintptr) { _, err = unix.Getpeername(int(fd)) }))
		return err == unix.ENOTCONN
	}, 10*time.Second, time.Millisecond)
}

// An answer and its end are passed on in one packet.
func TestLastInOnePacket(t *testing.T) {
	count := func(bare bool) uint32 {
		server, src := tcpPair(t)
		dst, client := tcpPair(t)
		before := segments(t, client)
		_, err := server.Write([]byte("answer"))
		require.NoError(t, err)
		require.NoError(t, closeWrite(server))
		ended(t, src)
		var to net.Conn = dst
		if bare { // the control: what is no socket is written to, and closed then
			to = noSocket{dst}
		}
		require.EqualValues(t, len("answer"), new(tunnel).pass(to, src))
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		require.Equal(t, "answer", string(got))
		return segments(t, client) - before
	}
	require.EqualValues(t, 1, count(false))
	require.EqualValues(t, 2, count(true))
}

// What a server has said before it broke the connection is passed on, and that it broke.
func TestBrokenAfterAnswer(t *testing.T) {
	for _, broken := range []bool{true, false} { // the second is the control
		server, src := tcpPair(t)
		dst, client := tcpPair(t)
		_, err := server.Write([]byte("answer"))
		require.NoError(t, err)
		if broken {
			reset(server)
			ended(t, src)
		} else {
			server.Close()
		}
		require.EqualValues(t, len("answer"), new(tunnel).pass(dst, src))
		_, err = io.ReadFull(client, make([]byte, len("answer")))
		if err == nil {
			_, err = client.Read(make([]byte, 1))
		}
		if broken {
			require.ErrorIs(t, err, syscall.ECONNRESET)
		} else {
			require.Equal(t, io.EOF, err)
		}
	}
}

// More than the kernel takes at once goes up whole, though an end follows.
func TestLastIsLong(t *testing.T) {
	server, src := tcpPair(t)
	dst, client := tcpPair(t)
	require.NoError(t, dst.(*net.TCPConn).SetWriteBuffer(4<<10))
	require.NoError(t, client.(*net.TCPConn).SetReadBuffer(4<<10))
	long := bytes.Repeat([]byte("0123456789abcdef"), 2<<10) // which is there whole before any of it is passed on
	go func() {
		_, _ = server.Write(long)
		server.Close()
	}()
	ended(t, src)
	go new(tunnel).pass(dst, src)
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Equal(t, long, got)
}

// Goroutines serve one connection after the other, and end with the proxy.
func TestWorkers(t *testing.T) {
	before := runtime.NumGoroutine()
	p := New(Config{})
	ran := make(chan struct{})
	for range 100 {
		p.work(func() { ran <- struct{}{} })
	}
	for range 100 {
		<-ran
	}
	settle := func(most int) {
		for range 1000 { // require.Eventually has goroutines of its own
			if runtime.NumGoroutine() <= most {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("%d goroutines, want at most %d", runtime.NumGoroutine(), most)
	}
	settle(before + maxIdle)
	for range 100 {
		p.work(func() { ran <- struct{}{} })
		<-ran
	}
	settle(before + maxIdle)
	p.Close()
	settle(before)
}
