package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

var testRange = NewRange(0x0123456789)

// open makes a network whose connections are told where they wanted to go, and
// whose questions are told whom they asked.
func open(t *testing.T, p *Plan) (*child, *Net) {
	t.Helper()
	p.Range = testRange
	c, fds := startChild(t, p)
	n, err := p.Prepare().Open(fds)
	require.NoError(t, err)
	require.NoError(t, n.Adopt())
	t.Cleanup(n.Close)
	n.lives(time.Hour) // a test that is slow has not stopped
	for _, l := range n.Captured {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprintf(c, "captured %s", c.LocalAddr().(*net.TCPAddr).String())
				c.(*net.TCPConn).CloseWrite()
				go func() { // what is left unread would make a reset of the end
					io.Copy(io.Discard, c)
					c.Close()
				}()
			}
		}()
	}
	go func() {
		buf := make([]byte, 512)
		for {
			size, from, err := n.Questions.ReadFrom(buf)
			if err != nil {
				return
			}
			n.Questions.WriteTo(fmt.Appendf(nil, "%s asked %s", buf[:size], from.(Asker).Server.Unmap()), from)
		}
	}()
	return c, n
}

// lives gives a sign of life that lasts so long.
func (n *Net) lives(lasts time.Duration) {
	if n.Rules != Routes {
		lifeSign(lasts).send(n.fds[rules])
	}
}

func TestCapture(t *testing.T) {
	c, n := open(t, &Plan{Allowed: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16"), netip.MustParsePrefix("2001:db8::/32")}})
	require.Equal(t, Reported, n.Rules, n.Cause)
	require.True(t, n.IPv6)
	var mu sync.Mutex
	var refused []string
	go n.Refused(t.Context(), func(r Refusal) {
		mu.Lock()
		defer mu.Unlock()
		refused = append(refused, fmt.Sprint(r.Protocol, " ", r.To))
	})
	name6 := testRange.host(1, 7)
	for _, to := range []string{"198.19.0.7:443", "198.19.255.255:1", "10.20.1.1:5432", "[" + name6.String() + "]:22", "[2001:db8:1::1]:65535", "8.8.8.8:53", "[2001:4860::8888]:53"} {
		o := c.do(task{Network: "tcp", Address: to})
		require.Equal(t, "captured "+to, o.Answer, "%+v", o)
	}
	for _, server := range []string{"198.18.0.53", "8.8.8.8", "10.20.1.1", "198.19.0.7", "2001:4860::8888"} {
		o := c.do(task{Network: "udp", Address: net.JoinHostPort(server, "53"), Send: "who"})
		require.Equal(t, "who asked "+server, o.Answer, "%+v", o)
	}
	var want []string
	for _, to := range []string{"198.18.0.7:443", "198.18.0.53:443", "8.8.8.8:443", "10.21.0.1:5432", "169.254.169.254:80", "[2606:4700::1111]:443", "[fe80::1]:80"} {
		if strings.HasPrefix(to, "[fe80") {
			continue // needs a zone
		}
		o := c.do(task{Network: "tcp", Address: to})
		require.Equal(t, unix.ECONNREFUSED, o.Errno, "%s: %+v", to, o)
		want = append(want, "tcp "+to) // once: of what is not answered the kernel asks again
	}
	for _, to := range []string{"198.19.0.7:443", "8.8.8.8:443", "10.20.1.1:443", "[2606:4700::1111]:443"} {
		o := c.do(task{Network: "udp", Address: to, Send: "quic"})
		require.Equal(t, unix.ECONNREFUSED, o.Errno, "%s: %+v", to, o)
		want = append(want, "udp "+to)
	}
	await.Until(t, "all that was refused is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(refused) >= len(want)
	})
	require.Equal(t, want, refused)
}

// TestRefusedToTheEnd: what was refused is told, though nobody listens for it
// any longer a moment after.
func TestRefusedToTheEnd(t *testing.T) {
	for i := range 20 {
		c, n := open(t, &Plan{})
		require.Equal(t, Reported, n.Rules, n.Cause)
		ctx, cancel := context.WithCancel(t.Context())
		var refused []string
		done, first := make(chan struct{}), make(chan struct{})
		go func() {
			n.Refused(ctx, func(r Refusal) {
				if refused = append(refused, r.To.String()); len(refused) == 1 {
					close(first)
				}
			})
			close(done)
		}()
		var want []string
		for port := range 20 {
			to := fmt.Sprintf("8.8.8.8:%d", 1000+port)
			require.Equal(t, unix.ECONNREFUSED, c.do(task{Network: "tcp", Address: to}).Errno)
			want = append(want, to)
		}
		<-first // else nobody might have begun to listen
		if i%2 == 0 {
			cancel()
		}
		n.Close()
		<-done
		cancel()
		require.Equal(t, want, refused)
	}
}

func TestOwnLoopback(t *testing.T) {
	c, n := open(t, &Plan{Allowed: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}})
	for _, at := range []string{"127.0.0.1:8080", "127.0.0.1:15001", "[::1]:8080", "198.18.0.2:8080", "[" + testRange.own().String() + "]:0", "127.9.9.9:0"} {
		o := c.do(task{Network: "tcp", Listen: at})
		require.Equal(t, "own", o.Answer, "%s: %+v", at, o)
	}
	o := c.do(task{Network: "tcp", Address: "127.0.0.1:81"})
	require.Equal(t, unix.ECONNREFUSED, o.Errno)
	o = c.do(task{Network: "tcp", Address: "[::1]:82"})
	require.Equal(t, unix.ECONNREFUSED, o.Errno)
	o = c.do(task{Network: "tcp", Address: "1.1.1.1:80"})
	require.Equal(t, "captured 1.1.1.1:80", o.Answer)
	o = c.do(task{Network: "tcp", Address: "255.255.255.254:80"})
	require.Equal(t, "captured 255.255.255.254:80", o.Answer, "%+v", o)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var told []Refusal
	n.Refused(ended, func(r Refusal) { told = append(told, r) })
	require.Equal(t, []Refusal{{"tcp", netip.MustParseAddrPort("127.0.0.1:81"), true}, {"tcp", netip.MustParseAddrPort("[::1]:82"), true}}, told)
}

// TestStopped gives no sign of life, as a launcher does that was stopped.
func TestStopped(t *testing.T) {
	for _, ports := range [][]uint16{{3128}, {5432, 3128, 3130}, {}} {
		t.Run(fmt.Sprint(ports), func(t *testing.T) {
			t.Parallel()
			testStopped(t, ports)
		})
	}
}

func testStopped(t *testing.T, ports []uint16) {
	c, n := open(t, &Plan{Ports: append(ports, ports...)}) // each is told once
	require.Equal(t, Reported, n.Rules, n.Cause)
	own := func(port uint16) task { return task{Network: "tcp", Listen: fmt.Sprintf("127.0.0.1:%d", port)} }
	for _, port := range ports {
		require.Equal(t, "own", c.do(own(port)).Answer, "the control: it runs")
	}
	n.Renew()
	time.Sleep(aliveFor + 200*time.Millisecond)
	for _, to := range []string{"198.19.0.7:443", "[" + testRange.host(1, 7).String() + "]:443", "8.8.8.8:53"} {
		o := c.do(task{Network: "tcp", Address: to})
		require.Equal(t, unix.ECONNREFUSED, o.Errno, "%s: %+v", to, o)
	}
	o := c.do(task{Network: "udp", Address: "198.18.0.53:53", Send: "who"})
	require.Equal(t, unix.ECONNREFUSED, o.Errno, "%+v", o)
	for _, port := range ports {
		require.Equal(t, unix.ECONNREFUSED, c.do(own(port)).Errno, port)
	}
	require.Equal(t, "own", c.do(own(3129)).Answer, "a port of the command's own")
	await.Until(t, "it was continued", func() bool {
		n.Renew()
		return c.do(task{Network: "tcp", Address: "198.19.0.7:443"}).Answer == "captured 198.19.0.7:443"
	})
}

// TestUnreported is a kernel that cannot log.
func TestUnreported(t *testing.T) {
	c, n := open(t, &Plan{Rules: Unreported})
	require.Equal(t, Unreported, n.Rules)
	require.Equal(t, "captured 198.19.0.7:443", c.do(task{Network: "tcp", Address: "198.19.0.7:443"}).Answer)
	require.Equal(t, unix.ECONNREFUSED, c.do(task{Network: "tcp", Address: "8.8.8.8:443"}).Errno)
	n.Refused(t.Context(), func(Refusal) {}) // returns at once
}

// TestRoutes is a kernel without packet rules.
func TestRoutes(t *testing.T) {
	c, n := open(t, &Plan{Rules: Routes, Capture: []uint16{443, 5432}})
	require.Equal(t, Routes, n.Rules)
	for _, to := range []string{"198.19.0.7:443", "198.19.0.7:5432", "8.8.8.8:443", "[" + testRange.host(1, 7).String() + "]:443"} {
		require.Equal(t, "captured "+to, c.do(task{Network: "tcp", Address: to}).Answer)
	}
	for _, k := range []task{{Network: "tcp", Address: "198.19.0.7:80"}, {Network: "tcp", Address: "[2606:4700::1]:80"}, {Network: "udp", Address: "198.19.0.7:443", Send: "x"}, {Network: "udp", Address: "8.8.8.8:9", Send: "x"}} {
		require.Equal(t, unix.ECONNREFUSED, c.do(k).Errno, k.Address)
	}
	require.Equal(t, "who asked 198.18.0.53", c.do(task{Network: "udp", Address: "198.18.0.53:53", Send: "who"}).Answer)
	require.Equal(t, "own", c.do(task{Network: "tcp", Listen: "127.0.0.1:8080"}).Answer)
	n.Renew()
}

// TestFallsBack gives the sockets a kernel that refuses step after step.
func TestFallsBack(t *testing.T) {
	p := &Plan{Range: testRange, Capture: []uint16{443}}
	null := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		return fd
	}
	deaf := func() int { // of netlink's, and nobody is there to be told of rules
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_USERSOCK)
		require.NoError(t, err)
		return fd
	}
	for _, c := range []struct {
		broken int
		by     func() int
		want   Rules
		cause  string
	}{{refusals, null, Unreported, "send"}, {rules, deaf, Routes, "send"}, {rules, null, Routes, "netfilter"}} {
		_, fds := startChild(t, p)
		unix.Close(fds[c.broken])
		fds[c.broken] = c.by()
		n, err := p.Prepare().Open(fds)
		require.NoError(t, err)
		require.Equal(t, c.want, n.Rules)
		require.ErrorContains(t, n.Cause, c.cause)
		require.NotEmpty(t, n.Rules.String())
		require.NoError(t, n.Adopt())
		n.Close()
		n.Renew()
	}
	_, fds := startChild(t, p)
	unix.Close(fds[route])
	fds[route] = null()
	_, err := p.Prepare().Open(fds)
	require.ErrorContains(t, err, "netlink send")

	many := &Plan{Range: testRange, Allowed: make([]netip.Prefix, maxPrefixes+1)}
	for i := range many.Allowed {
		many.Allowed[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0}), 32)
	}
	_, fds = startChild(t, many)
	_, err = many.Prepare().Open(fds)
	require.ErrorContains(t, err, "at most 4096")
}

// TestManyAddresses needs more than one message.
func TestManyAddresses(t *testing.T) {
	p := &Plan{}
	for i := range maxPrefixes / 2 {
		p.Allowed = append(p.Allowed, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0}), 25),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0x26, 0, 2: byte(i >> 8), 3: byte(i)}), 64))
	}
	c, n := open(t, p)
	require.Equal(t, Reported, n.Rules, n.Cause)
	for _, to := range []string{"11.0.0.1:1", "11.7.255.127:1", "[2600:7ff::1]:1"} {
		require.Equal(t, "captured "+to, c.do(task{Network: "tcp", Address: to}).Answer)
	}
	for _, to := range []string{"11.7.255.128:1", "11.8.0.1:1", "[2600:7ff:0:1::1]:1"} {
		require.Equal(t, unix.ECONNREFUSED, c.do(task{Network: "tcp", Address: to}).Errno, to)
	}
}
