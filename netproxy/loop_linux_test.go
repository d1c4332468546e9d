package netproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// A hall is a proxy whose clients are led to one port of this machine's loopback, as those
// of the sandbox's own loopback are.
type hall struct {
	*Proxy
	t      *testing.T
	addr   string
	events chan Event
}

// open serves one, by loops from the first client on, or by goroutines, which is the
// control.
func open(t *testing.T, cfg Config, to string, serve func(*hall, net.Listener, entrance)) *hall {
	t.Helper()
	h, ln, e := hallFor(t, cfg, to)
	go serve(h, ln, e)
	return h
}

func byLoops(h *hall, ln net.Listener, e entrance) {
	d, loops, err := h.takeOver(ln, e)
	if err != nil {
		h.t.Error(err)
		return
	}
	ln.Close()
	h.serveDoor(h.t.Context(), d, loops)
}

func byGoroutines(h *hall, ln net.Listener, e entrance) { h.serve(h.t.Context(), ln, e.handle) }

// hallFor makes one that does not serve yet.
func hallFor(t *testing.T, cfg Config, to string) (*hall, net.Listener, entrance) {
	t.Helper()
	_, port, err := net.SplitHostPort(to)
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	h := &hall{t: t, events: make(chan Event, 1<<15)}
	cfg.Rules, cfg.Event = parse(t, "local localhost:"+port), func(e Event) { h.events <- e }
	h.Proxy = New(cfg)
	ln := listen(t)
	h.addr = ln.Addr().String()
	t.Cleanup(h.Close)
	return h, ln, h.localEntrance(uint16(n), ownPort(ln))
}

func (h *hall) dial() *net.TCPConn {
	h.t.Helper()
	c, err := net.Dial("tcp", h.addr)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

func (h *hall) wait(kind EventKind) Event {
	h.t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case e := <-h.events:
			if e.Kind == kind {
				return e
			}
		case <-late:
			require.Fail(h.t, "no event", kind)
		}
	}
}

// flows calls f for each flow that is in a loop, in the loop's thread.
func (h *hall) flows(f func(*flow)) {
	h.mu.Lock()
	loops := h.loops
	h.mu.Unlock()
	for _, l := range loops {
		done := make(chan struct{})
		l.do(func() {
			defer close(done)
			for _, at := range l.places {
				if at, ok := at.(*flow); ok {
					f(at)
				}
			}
		})
		<-done
	}
}

// standing is how many there are.
func (h *hall) standing() (n int) {
	h.flows(func(*flow) { n++ })
	return n
}

// refused dials, and holds that the connection is reset, be it before connect has returned.
func (h *hall) refused() {
	h.t.Helper()
	c, err := net.Dial("tcp", h.addr)
	if err == nil {
		c.SetDeadline(time.Now().Add(20 * time.Second))
		_, err = io.ReadAll(c)
		c.Close()
	}
	require.ErrorIs(h.t, err, syscall.ECONNRESET)
}

// TestLoop holds that who is led by the loop notices no difference to who is led by
// goroutines.
func TestLoop(t *testing.T) {
	big := make([]byte, 24<<20)
	r := rand.NewChaCha8([32]byte{})
	r.Read(big)
	digest := func(b []byte) string {
		sum := sha256.Sum256(b)
		return fmt.Sprint(len(b), " ", hex.EncodeToString(sum[:]))
	}
	for name, c := range map[string]struct {
		server   func(net.Conn)
		client   func(*testing.T, *net.TCPConn) string
		want     string
		up, down int64 // -1: any
	}{
		"echo and half-close": {echo, func(t *testing.T, c *net.TCPConn) string {
			io.WriteString(c, "ping")
			c.CloseWrite()
			return all(t, c)
		}, "ping", 4, 4},
		"the server speaks first": {func(c net.Conn) { io.WriteString(c, "banner") }, func(t *testing.T, c *net.TCPConn) string {
			return all(t, c)
		}, "banner", 0, 6},
		"an answer long after the client's end": {func(c net.Conn) {
			b, _ := io.ReadAll(c)
			time.Sleep(50 * time.Millisecond)
			fmt.Fprintf(c, "%d bytes", len(b))
		}, func(t *testing.T, c *net.TCPConn) string {
			io.WriteString(c, strings.Repeat("x", 100))
			c.CloseWrite()
			return all(t, c)
		}, "100 bytes", 100, 9},
		"requests long after the server's end": {func(c net.Conn) {
			c.(*net.TCPConn).CloseWrite()
			b, _ := io.ReadAll(c)
			said <- string(b)
		}, func(t *testing.T, c *net.TCPConn) string {
			all(t, c)
			for range 3 {
				io.WriteString(c, "late ")
				time.Sleep(20 * time.Millisecond)
			}
			c.CloseWrite()
			return <-said
		}, "late late late ", 15, 0},
		"much, both ways at once": {echo, func(t *testing.T, c *net.TCPConn) string {
			go func() {
				c.Write(big)
				c.CloseWrite()
			}()
			return digest([]byte(all(t, c)))
		}, digest(big), int64(len(big)), int64(len(big))},
		"much for a slow reader": {func(c net.Conn) { c.Write(big) }, func(t *testing.T, c *net.TCPConn) string {
			time.Sleep(100 * time.Millisecond)
			return digest([]byte(all(t, c)))
		}, digest(big), 0, int64(len(big))},
		"much to a slow reader, and the end with it": {func(c net.Conn) {
			time.Sleep(100 * time.Millisecond)
			b, _ := io.ReadAll(c)
			io.WriteString(c, digest(b))
		}, func(t *testing.T, c *net.TCPConn) string {
			c.Write(big)
			c.CloseWrite()
			return all(t, c)
		}, digest(big), int64(len(big)), int64(len(digest(big)))},
		"nothing at all": {func(c net.Conn) { io.Copy(io.Discard, c) }, func(t *testing.T, c *net.TCPConn) string {
			c.CloseWrite()
			return all(t, c)
		}, "", 0, 0},
		"urgent data in between": {echo, func(t *testing.T, c *net.TCPConn) string {
			raw, err := c.SyscallConn()
			require.NoError(t, err)
			io.WriteString(c, "before ")
			raw.Control(func(fd uintptr) { _ = unix.Send(int(fd), []byte("!"), unix.MSG_OOB) })
			io.WriteString(c, "after")
			c.CloseWrite()
			return all(t, c)
		}, "before after", 12, 12},
		"a server that breaks off": {func(c net.Conn) {
			io.ReadFull(c, make([]byte, 1))
			c.(*net.TCPConn).SetLinger(0)
		}, func(t *testing.T, c *net.TCPConn) string {
			io.WriteString(c, "x")
			_, err := io.ReadAll(c)
			return fmt.Sprint(errors.Is(err, syscall.ECONNRESET))
		}, "true", 1, 0},
		"a client that breaks off": {func(c net.Conn) {
			_, err := io.ReadAll(c)
			said <- fmt.Sprint(errors.Is(err, syscall.ECONNRESET))
		}, func(t *testing.T, c *net.TCPConn) string {
			io.WriteString(c, "x")
			time.Sleep(50 * time.Millisecond)
			c.SetLinger(0)
			c.Close()
			return <-said
		}, "true", 1, 0},
		"more for a server that has gone": {func(c net.Conn) {}, func(t *testing.T, c *net.TCPConn) string {
			all(t, c)
			for range 200 {
				if _, err := io.WriteString(c, "x"); err != nil {
					return fmt.Sprint(errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET))
				}
				time.Sleep(5 * time.Millisecond)
			}
			return "nobody told"
		}, "true", -1, 0},
	} {
		for by, serve := range map[string]func(*hall, net.Listener, entrance){"loops": byLoops, "goroutines": byGoroutines} {
			t.Run(name+"/"+by, func(t *testing.T) {
				h := open(t, Config{}, server(t, c.server), serve)
				conn := h.dial()
				require.Equal(t, c.want, c.client(t, conn))
				conn.Close()
				require.Equal(t, "local", h.wait(Opened).Protocol)
				e := h.wait(Closed)
				if c.up >= 0 {
					require.Equal(t, []int64{c.up, c.down}, []int64{e.Up, e.Down})
				}
				require.Positive(t, e.Duration)
				require.Zero(t, h.standing())
			})
		}
	}
}

// TestLoopBreaksOff holds that a connection that is broken off right behind what came last
// breaks off on the other side too, and is no whole answer. The control ends in order.
func TestLoopBreaksOff(t *testing.T) {
	for _, breaks := range []bool{true, false} {
		for _, size := range []int{1, 5000, loopBuffer, 3 * loopBuffer} {
			t.Run(fmt.Sprint(breaks, size), func(t *testing.T) {
				accepted := make(chan *net.TCPConn, 1)
				h := open(t, Config{}, server(t, func(c net.Conn) {
					io.CopyN(c, c, 1)
					accepted <- c.(*net.TCPConn)
					<-t.Context().Done() // the test closes it
				}), byLoops)
				for _, from := range []string{"server", "client"} {
					client := h.dial()
					h.talk(client)
					src, dst := <-accepted, client
					if from == "client" {
						src, dst = client, src
					}
					src.SetWriteBuffer(8 * loopBuffer)
					goOn := h.hold()
					_, err := src.Write(make([]byte, size))
					require.NoError(t, err)
					time.Sleep(10 * time.Millisecond) // all of it has come, and nothing is lost with the end
					if breaks {
						src.SetLinger(0)
					}
					src.Close()
					goOn()
					b, err := io.ReadAll(dst)
					if breaks {
						require.ErrorIs(t, err, syscall.ECONNRESET, "%d bytes from the %s", len(b), from)
						continue
					}
					require.NoError(t, err)
					require.Len(t, b, size)
				}
			})
		}
	}
}

// hold has the loops do nothing until it is called what is returned.
func (h *hall) hold() (goOn func()) {
	h.mu.Lock()
	loops := h.loops
	h.mu.Unlock()
	over := make(chan struct{})
	for _, l := range loops {
		held := make(chan struct{})
		l.do(func() {
			close(held)
			<-over
		})
		<-held
	}
	return func() { close(over) }
}

// TestLoopHoldsLittle holds that of what its reader does not take a connection holds no more
// than a small buffer where there are big ones enough, which the control has.
func TestLoopHoldsLittle(t *testing.T) {
	const many = bigBuffers / 2
	piece := make([]byte, loopBuffer-1) // so that the loop is what reads it
	held := func(taken int32) int64 {
		bigTaken.Add(taken)
		defer bigTaken.Add(-taken)
		h := open(t, Config{}, server(t, func(c net.Conn) {
			for {
				if _, err := c.Write(piece); err != nil {
					return
				}
				time.Sleep(2 * time.Millisecond)
			}
		}), byLoops)
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC() // twice, and a pool is empty
			runtime.ReadMemStats(&m)
			return int64(m.HeapInuse)
		}
		before := heap()
		for range many {
			h.dial().SetReadBuffer(4096)
		}
		require.Eventually(t, func() bool { return h.standing() == 0 }, 20*time.Second, 10*time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		return (heap() - before) / many
	}
	require.Greater(t, held(0), int64(loopBuffer/2))
	require.Less(t, held(bigBuffers), int64(2*smallBuffer+8<<10))
}

var said = make(chan string, 1) // what a server says to the test

func all(t *testing.T, c net.Conn) string {
	t.Helper()
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(b)
}

// TestLoopCarries holds that the loop is what carries what is idle: no goroutine is for a
// connection, which the control has two of.
func TestLoopCarries(t *testing.T) {
	const many = 200
	to := server(t, func(c net.Conn) { io.Copy(c, c) })
	perFlow := func(serve func(*hall, net.Listener, entrance)) int {
		h := open(t, Config{}, to, serve)
		h.talk(h.dial()) // whatever is made once
		before, begun := runtime.NumGoroutine(), h.standing()
		for range many {
			h.talk(h.dial())
		}
		if begun > 0 {
			require.Equal(t, many, h.standing()-begun)
		}
		return (runtime.NumGoroutine() - before - many + many/2) / many // less the server's, rounded
	}
	require.Zero(t, perFlow(byLoops))
	require.Equal(t, 2, perFlow(byGoroutines))
}

// talk has a byte there and back.
func (h *hall) talk(c net.Conn) {
	h.t.Helper()
	require.NoError(h.t, echoed(c))
}

func echoed(c net.Conn) error {
	if _, err := io.WriteString(c, "x"); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// TestLoopsBeginLate holds that the loops begin with the first who is led to the host's
// loopback, and that he and all who came before them stay where they are.
func TestLoopsBeginLate(t *testing.T) {
	to := server(t, echo)
	h, ln, e := hallFor(t, Config{}, to)
	go h.serveAtOnce(t.Context(), ln, e)
	first := h.dial()
	h.talk(first)
	require.Zero(t, h.standing())
	for i := range 5 {
		h.talk(h.dial())
		require.Equal(t, i+1, h.standing())
	}
	h.talk(first)
	denied := listen(t)
	go h.ServeCaptured(t.Context(), denied) // nobody is led anywhere by it
	h.addr = denied.Addr().String()
	for range 3 {
		h.refused()
	}
	h.mu.Lock()
	require.Equal(t, 1, h.doors)
	require.Contains(t, h.live, denied)
	h.mu.Unlock()
}

// TestLoopWaitsForNobody holds that others are served while much is on its way to someone
// who does not read.
func TestLoopWaitsForNobody(t *testing.T) {
	h := open(t, Config{}, server(t, func(c net.Conn) {
		first := make([]byte, 1)
		io.ReadFull(c, first)
		if first[0] == 'm' {
			c.Write(make([]byte, 64<<20))
		}
		c.Write(first)
		io.Copy(c, c)
	}), byLoops)
	for range 5 {
		io.WriteString(h.dial(), "m")
	}
	for range 50 {
		c := h.dial()
		h.talk(c)
		c.Close()
	}
	require.Eventually(t, func() bool { return h.standing() == 0 }, 10*time.Second, 10*time.Millisecond, "who does not read has left the loop")
}

// TestLoopSendsAtOnce holds that the small pieces of an answer do not wait for one another:
// Nagle's algorithm is off on both sides.
func TestLoopSendsAtOnce(t *testing.T) {
	h := open(t, Config{}, server(t, echo), byLoops)
	h.talk(h.dial())
	require.Equal(t, 1, h.standing())
	h.flows(func(f *flow) {
		for _, s := range f.sides {
			on, err := unix.GetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
			if err != nil || on != 1 {
				t.Errorf("TCP_NODELAY is %d, %v", on, err)
			}
		}
	})
}

// TestLoopEnds holds that with the proxy, or the context of the listener, all connections of
// the loop end, each is told, and the loop is gone with the last of its doors.
func TestLoopEnds(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("", func(t *testing.T) {
		to := server(t, echo)
		h := open(t, Config{}, to, byLoops)
		second, stays := listen(t), h.dial()
		h.talk(stays)
		_, port, _ := net.SplitHostPort(to)
		n, _ := strconv.Atoi(port)
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- h.ServeLocal(ctx, second, uint16(n)) }()
		goes, err := net.Dial("tcp", second.Addr().String())
		require.NoError(t, err)
		defer goes.Close()
		h.talk(goes)
		cancel()
		require.NoError(t, <-served)
		goes.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = goes.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		h.wait(Closed)
		_, err = net.Dial("tcp", second.Addr().String())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		h.talk(stays)
		for range 10 {
			h.talk(h.dial())
		}
		h.Close()
		for range 11 {
			h.wait(Closed)
		}
		h.mu.Lock()
		require.Empty(t, h.loops)
		require.Empty(t, h.live)
		h.mu.Unlock()
		require.Empty(t, h.slots)
		_, err = stays.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, h.ServeLocal(t.Context(), listen(t), 1), "closed for good")
	})
	for range 500 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	require.Fail(t, string(stacks[:runtime.Stack(stacks, true)]))
}

// TestLoopLeavesToOthers holds what becomes of connections that the loop does not make.
func TestLoopLeavesToOthers(t *testing.T) {
	t.Run("nobody listens", func(t *testing.T) {
		h := open(t, Config{}, unused(t), byLoops)
		h.refused()
		require.ErrorIs(t, h.wait(Failed).Err, syscall.ECONNREFUSED)
	})
	t.Run("only IPv6", func(t *testing.T) {
		ln, err := net.Listen("tcp6", "[::1]:0")
		require.NoError(t, err)
		defer ln.Close()
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, "six")
				c.Close()
			}
		}()
		require.Equal(t, "six", all(t, open(t, Config{}, ln.Addr().String(), byLoops).dial()))
	})
	t.Run("its own port", func(t *testing.T) {
		ln := listen(t)
		h := open(t, Config{}, ln.Addr().String(), func(h *hall, other net.Listener, _ entrance) {
			other.Close()
			byLoops(h, ln, h.localEntrance(uint16(ln.Addr().(*net.TCPAddr).Port), ownPort(ln)))
		})
		h.addr = ln.Addr().String()
		h.refused()
		require.Equal(t, rules.BadAddr, h.wait(Denied).Verdict.Reason)
	})
	t.Run("too many", func(t *testing.T) {
		h := open(t, Config{MaxConns: 2}, server(t, echo), byLoops)
		first := h.dial()
		h.talk(first)
		h.talk(h.dial())
		h.refused()
		h.wait(Full)
		first.Close()
		h.wait(Closed)
		h.talk(h.dial())
	})
}

// unused is an address at which nobody listens.
func unused(t *testing.T) string {
	ln := listen(t)
	defer ln.Close()
	return ln.Addr().String()
}

// TestLoopWithoutDescriptors holds that who comes while there is no descriptor left waits,
// and others go on.
func TestLoopWithoutDescriptors(t *testing.T) {
	h := open(t, Config{}, server(t, echo), byLoops)
	stands := h.dial()
	h.talk(stands)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	next, err := unix.Dup(fd)
	require.NoError(t, err)
	unix.Close(next)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next), Max: was.Max}))
	_, err = unix.Dup(fd)
	require.ErrorIs(t, err, unix.EMFILE)
	to, err := net.ResolveTCPAddr("tcp", h.addr)
	require.NoError(t, err)
	at := &unix.SockaddrInet4{Port: to.Port}
	copy(at.Addr[:], to.IP.To4())
	require.NoError(t, unix.Connect(fd, at)) // the kernel accepts it
	for range 10 {
		h.talk(stands)
		time.Sleep(5 * time.Millisecond)
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	talking := make(chan bool)
	var others sync.WaitGroup
	defer others.Wait()
	defer close(talking)
	for _, c := range []net.Conn{stands, h.dial(), h.dial(), h.dial()} { // no loop is ever idle
		others.Go(func() {
			for {
				select {
				case <-talking:
					return
				default:
					if err := echoed(c); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	require.NoError(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}))
	_, err = unix.Write(fd, []byte("x"))
	require.NoError(t, err)
	n, err := unix.Read(fd, make([]byte, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// TestLoopManyAtOnce has many clients talk, end and break off as they like.
func TestLoopManyAtOnce(t *testing.T) {
	h := open(t, Config{}, server(t, echo), byLoops)
	var group sync.WaitGroup
	for g := range 16 {
		group.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range 60 {
				data := bytes.Repeat([]byte{byte(r.Int())}, 1<<r.IntN(20))
				c := h.dial()
				if r.IntN(8) == 0 {
					c.SetLinger(0)
					c.Close()
					continue
				}
				go func() {
					c.Write(data)
					c.CloseWrite()
				}()
				got, err := io.ReadAll(c)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes of %d: %v", len(got), len(data), err)
				}
				c.Close()
			}
		})
	}
	group.Wait()
	require.Eventually(t, func() bool { return h.standing() == 0 && len(h.slots) == 0 }, 10*time.Second, 10*time.Millisecond)
}

// TestLoopAsIfDirect has both ends send as much as they like, in pieces and with pauses as
// they like, and end or break off: the other one hears it to the byte, and an end where there
// was one. It holds for goroutines, which is the control.
func TestLoopAsIfDirect(t *testing.T) {
	for by, serve := range map[string]func(*hall, net.Listener, entrance){"loops": byLoops, "goroutines": byGoroutines} {
		t.Run(by, func(t *testing.T) {
			var served sync.Map // what the server heard, by the number that begins what the client says
			h := open(t, Config{}, server(t, func(c net.Conn) {
				var n [8]byte
				if _, err := io.ReadFull(c, n[:]); err == nil {
					served.Store(n, scripted(n, 1).play(c.(*net.TCPConn)))
				}
			}), serve)
			var group sync.WaitGroup
			rows := 1500
			if testing.Short() {
				rows = 300
			}
			for g := range 15 {
				group.Go(func() {
					for i := range rows / 15 {
						n := [8]byte{byte(g), byte(i), byte(i >> 8)}
						c, err := net.Dial("tcp", h.addr)
						if err != nil {
							t.Error(err)
							return
						}
						c.SetDeadline(time.Now().Add(30 * time.Second))
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
			total := map[EventKind]int{}
			for total[Closed] < rows {
				select {
				case e := <-h.events:
					total[e.Kind]++
				case <-time.After(20 * time.Second):
					require.Fail(t, "connections that are not told of", "%v", total)
				}
			}
			require.Zero(t, h.standing())
			require.Equal(t, map[EventKind]int{Opened: rows, Closed: rows}, total)
		})
	}
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
