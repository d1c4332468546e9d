package netproxy

import (
	"net"
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
		for dialer, probed := range map[*net.Dialer]int{loopbackDialer: 0, {}: 1} { // the second is the control
			c, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
			require.NoError(t, err)
			raw, err := c.(*net.TCPConn).SyscallConn()
			require.NoError(t, err)
			require.NoError(t, raw.Control(func(fd uintptr) {
				on, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
				require.NoError(t, err)
				require.Equal(t, probed, on)
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
		_, err = loopbackDialer.DialContext(t.Context(), "tcp", l.Addr().String())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
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
		dialer := *loopbackDialer
		dialer.Timeout = 200 * time.Millisecond
		c, err := dialer.DialContext(t.Context(), "tcp", full.String())
		if err != nil {
			require.ErrorContains(t, err, "timeout")
			return
		}
		defer c.Close()
	}
	t.Fatal("the listener was never full")
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
