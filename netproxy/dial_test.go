package netproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// TestSpareAttempts has clients race to the twelve addresses of a host that does not
// answer: together they have few attempts more than one each.
func TestSpareAttempts(t *testing.T) {
	var open, most, dials atomic.Int32
	fails := false
	f := build(t, &Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials.Add(1)
		if fails {
			return nil, errors.New("refused")
		}
		n := open.Add(1)
		defer open.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}, "example.com")
	f.attemptDelay = time.Millisecond
	var addrs []netip.Addr
	for i := range byte(maxAddrs) {
		addrs = append(addrs, netip.AddrFrom4([4]byte{140, 82, 112, i}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const clients = 50
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			_, _, err := f.race(ctx, addrs, 80)
			require.Error(t, err)
		})
	}
	await.Until(t, "the control: some race", func() bool { return most.Load() > clients+maxSpare/2 })
	time.Sleep(100 * time.Millisecond) // in which there could be more
	cancel()
	all.Wait()
	require.LessOrEqual(t, most.Load(), int32(clients+maxSpare))
	await.Until(t, "they are given back", func() bool { return f.racing.Load() == 0 })

	f.racing.Store(maxSpare)
	dials.Store(0)
	fails = true
	_, _, err := f.race(t.Context(), addrs, 80)
	require.Error(t, err)
	require.EqualValues(t, maxAddrs, dials.Load(), "one after another, where there is none to spare")
}

// TestSilentServer has servers that take no end for one and say nothing, or do not even
// read: when the sandbox is gone, so are the connections to them.
func TestSilentServer(t *testing.T) {
	for name, send := range map[string]func(c net.Conn){
		"half closed": func(c net.Conn) { c.(*net.TCPConn).CloseWrite() },
		"unread": func(c net.Conn) {
			soon := time.Now().Add(200 * time.Millisecond)
			c.SetWriteDeadline(soon)
			for _, err := c.Write(make([]byte, 1<<20)); err == nil; _, err = c.Write(make([]byte, 1<<20)) {
			}
		},
		"open": func(net.Conn) {}, // the control: this never stood
	} {
		for _, request := range []string{"CONNECT example.com:80 HTTP/1.1\r\n\r\n", "\x05\x01\x00\x05\x01\x00\x03\x0bexample.com\x00\x50", "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1000000000\r\n\r\n"} {
			over := make(chan struct{})
			f := build(t, nil, "example.com")
			ln := listen(t)
			f.addr = ln.Addr().String()
			ctx, cancel := context.WithCancel(t.Context())
			go f.Serve(ctx, ln)
			arrived, ended := make(chan struct{}), make(chan struct{})
			f.host("example.com", 80, server(t, func(c net.Conn) {
				close(arrived)
				if name == "half closed" {
					_, _ = io.Copy(io.Discard, c)
					close(ended)
				}
				<-over
			}))
			c := f.raw(request)
			await.Closed(t, "it is there", arrived)
			send(c)
			if name == "half closed" {
				await.Closed(t, "its end is passed on", ended)
			}
			cancel()
			closed := make(chan struct{})
			go func() {
				f.Close()
				close(closed)
			}()
			await.Closed(t, fmt.Sprintf("%s, %q: it does not wait for the server", name, request[:4]), closed)
			close(over)
		}
	}
}

// everywhere resolves every name, and counts.
type everywhere struct{ asked atomic.Int32 }

func (e *everywhere) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	e.asked.Add(1)
	return []netip.Addr{netip.MustParseAddr(publicAddr)}, nil
}

// TestWildNames: a program cannot spell out what it likes, fast, in names that a
// wildcard allows.
func TestWildNames(t *testing.T) {
	names := &everywhere{}
	f := build(t, &Config{Resolver: names, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }},
		"*.example.com", "api.example.com", ".tree.test")
	reach := func(name string) rules.Verdict {
		_, v, err := f.Proxy.dial(t.Context(), f.cfg.Rules.Decide(name, 443), "connect", 0)
		require.Error(t, err)
		return v
	}
	for i := range 300 {
		v := reach(fmt.Sprintf("n%d.example.com", i))
		if i < maxWild {
			require.Equal(t, rules.Allow, v.Action)
			continue
		}
		require.Equal(t, rules.TooMany, v.Reason)
		require.Equal(t, fmt.Sprintf("--allow n%d.example.com", i), v.AllowWith)
	}
	require.EqualValues(t, maxWild, names.asked.Load(), "and nobody is asked")
	for _, name := range []string{"n7.example.com", "N7.Example.com.", "api.example.com", "tree.test"} {
		require.Equal(t, rules.Allow, reach(name).Action, name)
	}
	require.Equal(t, rules.TooMany, reach("a.tree.test").Reason)
	f.wild.since = time.Now().Add(-2 * time.Minute)
	require.Equal(t, rules.Allow, reach("n299.example.com").Action, "a minute later there is room")
	for i := range 2 * maxKnown {
		f.wild.since = time.Time{}
		reach(fmt.Sprintf("m%d.example.com", i))
	}
	require.Len(t, f.wild.known, maxKnown)
}
