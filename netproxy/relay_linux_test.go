package netproxy

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

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
	await.Until(t, "it has no peer", func() bool {
		var err error
		require.NoError(t, raw.Control(func(fd uintptr) { _, err = unix.Getpeername(int(fd)) }))
		return err == unix.ENOTCONN
	})
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

// TestAsIfDirect has both ends of connections to the host's loopback send as much as they
// like, in pieces and with pauses as they like, and end or break off: the other one hears it
// to the byte, and an end where there was one. Each has its two events.
func TestAsIfDirect(t *testing.T) {
	var served sync.Map // what the server heard, by the number that begins what the client says
	to := server(t, func(c net.Conn) {
		var n [8]byte
		if _, err := io.ReadFull(c, n[:]); err == nil {
			served.Store(n, scripted(n, 1).play(c.(*net.TCPConn)))
		}
	})
	f := start(t, nil, "local localhost:5432")
	f.routes["127.0.0.1:5432"] = to
	ln := listen(t)
	go f.ServeLocal(t.Context(), ln, 5432)
	var group sync.WaitGroup
	rows := 1500
	if testing.Short() {
		rows = 300
	}
	for g := range 15 {
		group.Go(func() {
			for i := range rows / 15 {
				n := [8]byte{byte(g), byte(i), byte(i >> 8)}
				c, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				c.SetDeadline(await.Deadline())
				c.Write(n[:])
				up, down := scripted(n, 0), scripted(n, 1)
				down.judge(t, n, "client", up, up.play(c.(*net.TCPConn)))
				var there any
				for ok := false; !ok && !up.breaks; {
					if there, ok = served.Load(n); !ok {
						time.Sleep(time.Millisecond)
					}
				}
				if there != nil {
					up.judge(t, n, "server", down, there.(heardOf))
				}
			}
		})
	}
	group.Wait()
	await.Until(t, "each is told of", func() bool {
		total := map[EventKind]int{}
		for _, e := range f.told() {
			total[e.Kind]++
		}
		return total[Opened] == rows && total[Closed] == rows && len(total) == 2
	})
}

// A script is what one end of a connection does.
type script struct {
	data         []byte
	r            *rand.Rand
	breaks, late bool // it begins to read when it has said all
}

// A heardOf is what the other end heard of it. That it broke off the kernel tells once, a
// reader or a writer.
type heardOf struct {
	data []byte
	err  error
}

func scripted(n [8]byte, end byte) *script {
	seed := [32]byte{0: n[0], 1: n[1], 2: n[2], 3: end}
	s := &script{r: rand.New(rand.NewChaCha8(seed))}
	s.data = make([]byte, s.r.IntN(1<<s.r.IntN(19))) // an eighth of them say nothing
	rand.NewChaCha8(seed).Read(s.data)
	s.breaks, s.late = s.r.IntN(6) == 0, s.r.IntN(4) == 0 && len(s.data) < 4<<10
	return s
}

// play says all, while it reads, and returns what it has heard.
func (s *script) play(c *net.TCPConn) (h heardOf) {
	defer c.Close()
	var unread, unsaid error
	var reader sync.WaitGroup
	defer func() {
		reader.Wait()
		h.err = errors.Join(unread, unsaid)
	}()
	read := func() { h.data, unread = io.ReadAll(c) }
	if !s.late {
		reader.Go(read)
	}
	for rest := s.data; len(rest) > 0; {
		piece := rest[:min(len(rest), 1+s.r.IntN(1<<s.r.IntN(18)))]
		if _, unsaid = c.Write(piece); unsaid != nil {
			break
		}
		if rest = rest[len(piece):]; s.r.IntN(4) == 0 {
			time.Sleep(time.Duration(s.r.IntN(300)) * time.Microsecond)
		}
	}
	if s.breaks {
		c.SetLinger(0)
		c.Close()
		return
	}
	unsaid = errors.Join(unsaid, c.CloseWrite())
	if s.late {
		read()
	}
	return
}

// judge holds what was heard of s against what it did; other is who heard it.
func (s *script) judge(t *testing.T, n [8]byte, who string, other *script, h heardOf) {
	if other.breaks {
		return
	}
	lost := !s.breaks && (len(h.data) < len(s.data) || h.err != nil)
	unheard := s.breaks && h.err == nil
	if lost || unheard || !bytes.HasPrefix(s.data, h.data) {
		t.Errorf("%v: the %s heard %d bytes of %d, %v, of one that breaks off: %v", n, who, len(h.data), len(s.data), h.err, s.breaks)
	}
}
