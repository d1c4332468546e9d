package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// packets is a way to open a connection that programs do not take by default.
type packets string

const (
	usual      packets = ""
	ecn        packets = "a SYN that asks for ECN"                      // RFC 3168, section 6.1.1
	fastOpen   packets = "a SYN with data"                              // RFC 7413
	hopByHop   packets = "hop-by-hop options"                           // RFC 8200, section 4.3
	toOptions  packets = "destination options"                          // section 4.6
	oddFlags   packets = "a SYN with PSH and URG"                       // made by hand, as those that follow
	whole      packets = "a SYN made by hand"                           // the control of these
	tiny       packets = "a SYN whose flags are in the second fragment" // RFC 1858
	inTwo      packets = "a SYN whose options are in the second fragment"
	secondOnly packets = "a second fragment alone"
	backwards  packets = "a SYN in two fragments, the second first"
)

// raw says whether the packets are made by hand: IPv4, and all that is seen of
// the connection is whether something accepts it.
func (p packets) raw() bool {
	switch p {
	case oddFlags, whole, tiny, inTwo, secondOnly, backwards:
		return true
	}
	return false
}

// extension is an extension header of eight bytes that says nothing: PadN. The
// kernel fills in what follows it.
var extension = string([]byte{0, 0, 1, 4, 0, 0, 0, 0})

// dial connects, with the packets of the task. All that it sets it sets back.
func (k task) dial() (net.Conn, error) {
	d := net.Dialer{Timeout: k.Timeout}
	with := func(option int) func(string, string, syscall.RawConn) error {
		return func(_, _ string, raw syscall.RawConn) (err error) {
			failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), unix.IPPROTO_IPV6, option, extension) })
			return errors.Join(failed, os.NewSyscallError("setsockopt", err))
		}
	}
	switch k.As {
	case ecn:
		defer sysctl("net/ipv4/tcp_ecn", "1")()
	case fastOpen:
		return dialWith(k.Address, "early", k.Timeout)
	case hopByHop:
		d.Control = with(unix.IPV6_HOPOPTS)
	case toOptions:
		d.Control = with(unix.IPV6_DSTOPTS)
	}
	return d.Dial(k.Network, k.Address)
}

// dialWith connects to an IPv4 address by a SYN that has data in it, which
// [net.Dialer] cannot: it waits for a connection to be made first.
func dialWith(address, data string, timeout time.Duration) (net.Conn, error) {
	to := netip.MustParseAddrPort(address)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), address)
	defer f.Close()
	wait := unix.NsecToTimeval(timeout.Nanoseconds())
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &wait)
	}
	if err := unix.Sendto(fd, []byte(data), unix.MSG_FASTOPEN, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	// Whether it was taken is known when there is an answer.
	_, _, err = unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK)
	for err == unix.EINTR { // with a timeout it is not begun again, signal(7)
		_, _, err = unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK)
	}
	if err != nil {
		return nil, os.NewSyscallError("recvfrom", err)
	}
	return net.FileConn(f)
}

// anyFastOpen lets every program send data with a SYN, and every server that
// listens from now on take them, without a cookie (ip-sysctl: tcp_fastopen).
func anyFastOpen() { sysctl("net/ipv4/tcp_fastopen", fmt.Sprint(0x1|0x2|0x4|0x200|0x400)) }

// sysctl sets a value of this network namespace and returns what sets it back.
func sysctl(name, value string) (back func()) {
	path := "/proc/sys/" + name
	before, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(value), 0)
	}
	if err != nil {
		panic(err)
	}
	return func() { _ = os.WriteFile(path, before, 0) }
}

// What the kernel says of a connection, tcpi_options of tcp_info (linux/tcp.h).
const (
	optionECN     = 8
	optionSYNData = 32
)

// shows says whether the connection has what its packets were to have.
func (p packets) shows(c net.Conn) (yes bool) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		switch p {
		case ecn:
			yes = info.Options&optionECN != 0
		case fastOpen:
			yes = info.Options&optionSYNData != 0
		case hopByHop, toOptions:
			yes = true // setsockopt would have failed
		}
	})
	return yes
}

// knock sends the SYN of a task by hand and answers "accepted" or "refused" if
// something comes back, by which it is told.
func (k task) knock() (o outcome) {
	fail := func(what string, err error) outcome { return outcome{Error: what + ": " + err.Error()} }
	to := netip.MustParseAddrPort(k.Address)
	in, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return fail("socket", err)
	}
	defer unix.Close(in)
	out, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fail("socket", err)
	}
	defer unix.Close(out)
	port := uint16(20000 + time.Now().UnixNano()%20000)
	for _, b := range k.As.frames(to, port) {
		if err := unix.Sendto(out, b, 0, &unix.SockaddrInet4{Addr: to.Addr().As4()}); err != nil {
			return fail("send", err)
		}
	}
	end := time.Now().Add(k.Timeout)
	buf := make([]byte, 256)
	for time.Now().Before(end) {
		wait := unix.NsecToTimeval(time.Until(end).Nanoseconds())
		_ = unix.SetsockoptTimeval(in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
		n, err := unix.Read(in, buf)
		if err != nil || n < 40 {
			continue
		}
		segment := buf[int(buf[0]&15)*4 : n]
		if len(segment) < 20 || binary.BigEndian.Uint16(segment) != to.Port() || binary.BigEndian.Uint16(segment[2:]) != port {
			continue
		}
		switch segment[13] & opening {
		case 0x12:
			o.Answer = "accepted"
			return o
		case 0x14, 0x04:
			o.Answer = "refused"
			return o
		}
	}
	o.Error = "no answer"
	return o
}

// frames are the IPv4 packets of a SYN from the sandbox's own address.
func (p packets) frames(to netip.AddrPort, port uint16) [][]byte {
	segment := make([]byte, 32)
	binary.BigEndian.PutUint16(segment, port)
	binary.BigEndian.PutUint16(segment[2:], to.Port())
	segment[12], segment[13] = 8<<4, syn
	if p == oddFlags {
		segment[13] |= 0x28
	}
	segment[14] = 0x40
	copy(segment[20:], []byte{2, 4, 5, 180, 1, 1, 1, 1, 1, 1, 1, 0}) // MSS
	from := own4.As4()
	server := to.Addr().As4()
	sum := checksum(append(append(append(from[:], server[:]...), 0, unix.IPPROTO_TCP, 0, byte(len(segment))), segment...))
	binary.BigEndian.PutUint16(segment[16:], sum)
	// The second fragment of what an attacker splits could name any port where
	// the first has its own: those of this one are as the head's.
	frame := func(b []byte, offset int, more bool) []byte {
		h := make([]byte, 20, 20+len(b))
		h[0], h[8], h[9] = 0x45, 64, unix.IPPROTO_TCP
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(b)))
		binary.BigEndian.PutUint16(h[4:], port)
		at := uint16(offset / 8)
		if more {
			at |= 0x2000
		}
		binary.BigEndian.PutUint16(h[6:], at)
		copy(h[12:], from[:])
		copy(h[16:], server[:])
		return append(h, b...)
	}
	split := 8
	switch p {
	case whole, oddFlags:
		return [][]byte{frame(segment, 0, false)}
	case inTwo, backwards:
		split = 24
	}
	one, two := frame(segment[:split], 0, true), frame(segment[split:], split, false)
	switch p {
	case secondOnly:
		return [][]byte{two}
	case backwards:
		return [][]byte{two, one}
	}
	return [][]byte{one, two}
}

// checksum is the Internet's, RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// TestPackets opens connections by packets that are not the usual ones: what is
// allowed is captured, or nothing comes of it; what is not is refused; and
// nothing of it passes when the launcher gives no sign of life.
func TestPackets(t *testing.T) {
	c, n := open(t, &Plan{Ports: []uint16{3128}})
	require.Equal(t, Reported, n.Rules, n.Cause)
	var mu sync.Mutex
	refused := map[string]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go n.Refused(ctx, func(r Refusal) {
		mu.Lock()
		defer mu.Unlock()
		refused[r.Protocol+" "+r.To.String()] = true
	})
	name6 := testRange.host(1, 7).String()
	type attempt struct {
		as              packets
		allowed, denied string
	}
	dialled := []attempt{
		{usual, "198.19.0.7:443", "8.8.8.8:1001"},
		{ecn, "198.19.0.7:443", "8.8.8.8:1002"},
		{ecn, "[" + name6 + "]:443", "[2606:4700::1]:1002"},
		{fastOpen, "198.19.0.7:443", "8.8.8.8:1003"},
		{hopByHop, "[" + name6 + "]:443", "[2606:4700::1]:1004"},
		{toOptions, "[" + name6 + "]:443", "[2606:4700::1]:1005"},
	}
	for _, a := range dialled {
		o := c.do(task{Network: "tcp", Address: a.allowed, As: a.as})
		require.Equal(t, "captured "+a.allowed, o.Answer, "%s: %+v", a.as, o)
		require.Equal(t, a.as != usual, o.Shows, "the control: its packets were %s", a.as)
		o = c.do(task{Network: "tcp", Address: a.denied, As: a.as})
		require.Equal(t, unix.ECONNREFUSED, o.Errno, "%s: %+v", a.as, o)
		await.Until(t, fmt.Sprintf("%s is told", a.as), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return refused["tcp "+a.denied]
		})
	}
	accepted := func(as packets, within time.Duration) bool {
		o := c.do(task{Network: "tcp", Address: "198.19.0.7:443", As: as, Timeout: within})
		return o.Answer == "accepted"
	}
	const brief = 300 * time.Millisecond // for what may have no answer at all
	// The rules see no fragments: tproxy has the kernel put them together first.
	for _, as := range []packets{whole, oddFlags, tiny, inTwo, backwards} {
		require.True(t, accepted(as, await.Patience), "the control: %s is one", as)
	}
	require.False(t, accepted(secondOnly, brief))

	cancel() // what is refused from here on is told to nobody
	n.lives(time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	for _, a := range dialled {
		o := c.do(task{Network: "tcp", Address: a.allowed, As: a.as})
		require.Equal(t, unix.ECONNREFUSED, o.Errno, "%s, while the launcher is stopped: %+v", a.as, o)
	}
	served := task{Network: "tcp", Listen: "127.0.0.1:3128", As: ecn}
	require.Equal(t, unix.ECONNREFUSED, c.do(served).Errno, "the launcher's own port")
	for _, as := range []packets{whole, oddFlags, tiny, inTwo, secondOnly, backwards} {
		require.False(t, accepted(as, brief), "%s, while the launcher is stopped", as)
	}
	n.lives(time.Hour)
	require.True(t, accepted(whole, await.Patience), "the control: it was continued")
}
