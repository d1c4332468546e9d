package escape

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// The internet of a cage is a second network namespace at the other end of a
// veth pair. Every address in it belongs to the suite's own listeners:
//
//	cage 10.77.0.2 ── veth ── 10.77.0.1 internet: 20.0.0.10 allowed.test, 20.0.0.66 evil.test, …
const (
	cageAddress     = "10.77.0.2"
	internetAddress = "10.77.0.1"
	resolverAddress = "20.0.0.53"
)

// peers are the servers of that internet. Those with a name are answered for by
// its resolver.
var peers = []struct{ name, address string }{
	{"allowed.test", "20.0.0.10"}, {"other.test", "20.0.0.11"}, {"evil.test", "20.0.0.66"}, {"evilallowed.test", "20.0.0.66"},
	{"allowed.test.evil.test", "20.0.0.66"}, {"allowed-test.test", "20.0.0.66"}, {"sub.allowed.test", "20.0.0.66"},
	{"a.b.wild.test", "20.0.0.12"}, {"wild.test", "20.0.0.66"}, {"denied.test", "20.0.0.66"}, {"private.test", "10.9.8.7"},
	{"private192.test", "192.168.7.7"}, {"cgnat.test", "100.64.0.7"}, {"meta.test", "169.254.169.254"}, {"loop.test", "127.0.0.1"},
	{"zero.test", "0.0.0.0"}, {"host.test", cageAddress}, {"metadata.google.internal", "169.254.169.254"},
	{"azure.test", "168.63.129.16"}, {"alibaba.test", "100.100.100.200"}, {"doh.test", "1.1.1.1"}, {"resolver.test", resolverAddress},
	{"nat64.test", "64:ff9b::a9fe:a9fe"}, {"meta6.test", "fd00:ec2::254"}, {"mapped.test", "::ffff:169.254.169.254"},
	{"six.test", "2600:1234::10"}, {"loop6.test", "::1"},
}

// internetPorts are those on which every server answers.
var internetPorts = []int{22, 25, 80, 443, 853, 2375, 5432, 6379, 8080}

// enterInternet makes the internet of this cage and starts its servers.
func (w *world) enterInternet() {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	must(err)
	defer home.Close()
	must(unix.Unshare(unix.CLONE_NEWNET))
	away, err := os.Open("/proc/thread-self/ns/net")
	must(err)
	defer away.Close()
	outside := func() error { return unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) }
	must(errors.Join(linkUp("lo"), outside()))
	must(makePair("cage0", "inet0", int(away.Fd())), "veth")
	must(errors.Join(addAddress("cage0", cageAddress+"/24"), addAddress("cage0", "fd77::2/64"), linkUp("cage0")), "cage0")
	must(unix.Setns(int(away.Fd()), unix.CLONE_NEWNET))
	w.serveInternet()
	must(outside())
	runtime.UnlockOSThread()
	must(errors.Join(addRoute("cage0", internetAddress), addRoute("cage0", "fd77::1")), "route")
	w.Address, w.Resolver, w.Peers = cageAddress, resolverAddress, map[string]string{}
	for _, p := range peers {
		w.Peers[p.name] = p.address
	}
	// what the host itself offers on its own address
	l, err := net.Listen("tcp4", cageAddress+":8080")
	must(err)
	w.answer(l, "host address")
}

// serveInternet runs in the internet's namespace, on a locked thread: sockets
// belong to the namespace of the thread that makes them.
func (w *world) serveInternet() {
	must(errors.Join(addAddress("inet0", internetAddress+"/24"), addAddress("inet0", "fd77::1/64"), linkUp("inet0")), "inet0")
	given := map[string]bool{}
	for _, p := range peers {
		a := netip.MustParseAddr(p.address)
		if given[p.address] || a.IsLoopback() || a.IsUnspecified() || a.Is4In6() || p.address == cageAddress {
			continue
		}
		given[p.address] = true
		must(addAddress("lo", fmt.Sprintf("%s/%d", a, a.BitLen())), p.address)
	}
	for _, port := range internetPorts {
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		must(err)
		w.serve(l, w.serveConn)
	}
	for _, address := range []string{":443", ":9999"} {
		c, err := net.ListenPacket("udp4", address)
		must(err)
		w.answerPackets(c, "udp internet"+address)
	}
	dns, err := net.ListenPacket("udp4", resolverAddress+":53")
	must(err)
	stream, err := net.Listen("tcp4", resolverAddress+":53")
	must(err)
	w.later(func() { dns.Close() })
	go w.resolve(dns)
	w.serve(stream, w.resolveStream)
}

// serve answers each connection to a listener, and closes it.
func (w *world) serve(l net.Listener, answer func(net.Conn)) {
	w.later(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				answer(c)
			}()
		}
	}()
}

// serveConn answers at every address of the internet: HTTP on port 80 and 8080,
// the secret to whatever comes elsewhere. What came is remembered by address,
// port and first bytes.
func (w *world) serveConn(c net.Conn) {
	local := c.LocalAddr().String()
	if host, port, err := net.SplitHostPort(local); err == nil {
		if a, err := netip.ParseAddr(host); err == nil {
			local = net.JoinHostPort(a.Unmap().String(), port)
		}
	}
	c.SetDeadline(time.Now().Add(patience(4 * time.Second)))
	buf := make([]byte, 8192)
	for again := true; again; {
		n, err := c.Read(buf)
		for err == nil && n < len(buf) && headless(string(buf[:n])) {
			var more int
			more, err = c.Read(buf[n:])
			n += more
		}
		w.hit("tcp %s %q", local, firstLine(buf[:n]))
		if n == 0 {
			return
		}
		again = w.serveText(c, local, string(buf[:n]))
	}
}

// serveText answers what came in one piece, and says whether more may come.
func (w *world) serveText(c net.Conn, local, text string) bool {
	hosts := headers(text, "host")
	for _, host := range hosts {
		w.hit("host %s %s", local, strings.ToLower(host))
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); strings.Contains(line, " HTTP/") {
			w.hit("request %s %s", local, line[:min(len(line), 300)])
		}
	}
	switch first := firstLine([]byte(text)); {
	case !strings.Contains(first, " HTTP/1"):
		io.WriteString(c, w.secret+"\n")
		return false
	case strings.Contains(first, "/redirect"):
		io.WriteString(c, "HTTP/1.1 302 Found\r\nLocation: http://evil.test/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return false
	}
	again, connection := true, ""
	if slices.ContainsFunc(headers(text, "connection"), func(v string) bool { return strings.EqualFold(v, "close") }) || len(hosts) == 0 {
		again, connection = false, "Connection: close\r\n"
	}
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s\n", len(w.secret)+1, connection, w.secret)
	return again
}

// headless reports whether of an HTTP request only a beginning has come: the proxy
// of the controls passes it on in two pieces.
func headless(text string) bool {
	return strings.Contains(firstLine([]byte(text)), " HTTP/1.1") && !strings.Contains(text, "\r\n\r\n")
}

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(b[:min(len(b), 300)]), "\r\n")
	return line
}

// headers are the values of a header, in all requests of a text.
func headers(text, name string) []string {
	var values []string
	for line := range strings.SplitSeq(text, "\r\n") {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(key, name) {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

// resolve answers name queries and remembers each.
func (w *world) resolve(c net.PacketConn) {
	buf := make([]byte, 2048)
	asked := map[string]int{}
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if reply := w.resolution(buf[:n], asked); reply != nil {
			c.WriteTo(reply, from)
		}
	}
}

func (w *world) resolveStream(c net.Conn) {
	c.SetDeadline(time.Now().Add(patience(2 * time.Second)))
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, query); err != nil {
		return
	}
	if reply := w.resolution(query, map[string]int{}); reply != nil {
		c.Write(block16(reply))
	}
}

// resolution is the answer to one query. rebind.test changes its mind after
// the first answer; alias.test is another name of a private address.
func (w *world) resolution(query []byte, asked map[string]int) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) == 0 {
		return nil
	}
	q := m.Questions[0]
	name := strings.ToLower(q.Name.String())
	w.hit("dns %s", name)
	m.Response, m.RecursionAvailable, m.Additionals, m.Answers = true, true, nil, nil
	answer := func(kind dnsmessage.Type, ttl uint32, body dnsmessage.ResourceBody) {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: kind, Class: q.Class, TTL: ttl}, Body: body})
	}
	var addresses []string
	switch name {
	case "rebind.test.":
		addresses = []string{"20.0.0.10"}
		if asked[q.Type.String()]++; asked[q.Type.String()] > 1 {
			addresses = []string{"127.0.0.1"}
		}
	case "mixed.test.":
		addresses = []string{"127.0.0.1", "20.0.0.10"}
	case "alias.test.":
		target := dnsmessage.MustNewName("private.test.")
		answer(dnsmessage.TypeCNAME, 1, &dnsmessage.CNAMEResource{CNAME: target})
		q.Name, addresses = target, []string{"10.9.8.7"}
	default:
		for _, p := range peers {
			if p.name+"." == name || p.name == "wild.test" && strings.HasSuffix(name, ".wild.test.") && name != "a.b.wild.test." {
				addresses = append(addresses, p.address)
			}
		}
		if strings.HasSuffix(name, ".tunnel.test.") {
			addresses = []string{"20.0.0.66"}
		}
		if len(addresses) == 0 {
			m.RCode = dnsmessage.RCodeNameError
		}
	}
	for _, address := range addresses {
		a := netip.MustParseAddr(address)
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			answer(q.Type, 0, &dnsmessage.AResource{A: a.As4()})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			answer(q.Type, 0, &dnsmessage.AAAAResource{AAAA: a.As16()})
		}
	}
	reply, _ := m.Pack() // nil where it cannot be
	return reply
}
