package escape

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// openProxy starts a proxy that forwards everything: the control of probes that
// attack a proxy. It reads addresses as the C library does, since that is the
// mistake to be shown.
func (w *world) openProxy() {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(err)
	w.serve(l, proxy)
	w.ControlProxy = l.Addr().String()
}

func proxy(c net.Conn) {
	c.SetDeadline(time.Now().Add(patience(5 * time.Second)))
	r := bufio.NewReader(c)
	first, err := r.Peek(1)
	if err != nil {
		return
	}
	if first[0] == 5 {
		proxySOCKS(c, r)
		return
	}
	line, err := r.ReadString('\n')
	if err != nil {
		return
	}
	method, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	target := strings.TrimSuffix(strings.TrimSuffix(rest, " HTTP/1.1"), " HTTP/1.0")
	if method == "CONNECT" {
		for strings.TrimSpace(line) != "" && err == nil {
			line, err = r.ReadString('\n')
		}
		up, err := dialLoosely(target, "443")
		if err != nil {
			io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		splice(c, r, up)
		return
	}
	scheme, rest, _ := strings.Cut(target, "://")
	authority, path, _ := strings.Cut(rest, "/")
	if scheme == "file" {
		data, _ := os.ReadFile("/" + path)
		c.Write(append([]byte("HTTP/1.1 200 OK\r\n\r\n"), data...))
		return
	}
	port := "80"
	if scheme == "ftp" {
		port = "25"
	}
	up, err := dialLoosely(authority, port)
	if err != nil {
		io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	fmt.Fprintf(up, "%s /%s HTTP/1.1\r\n", method, path)
	splice(c, r, up)
}

func proxySOCKS(c net.Conn, r *bufio.Reader) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err != nil {
		return
	}
	io.CopyN(io.Discard, r, int64(head[1]))
	c.Write([]byte{5, 0})
	request := make([]byte, 4)
	if _, err := io.ReadFull(r, request); err != nil {
		return
	}
	var host string
	switch request[3] {
	case 1, 4:
		raw := make([]byte, 4+12*int(request[3]/4))
		io.ReadFull(r, raw)
		a, _ := netip.AddrFromSlice(raw)
		host = a.String()
	case 3:
		n, _ := r.ReadByte()
		raw := make([]byte, n)
		io.ReadFull(r, raw)
		host, _, _ = strings.Cut(string(raw), "\x00") // as a C library would
	}
	var port [2]byte
	io.ReadFull(r, port[:])
	up, err := dialLoosely(net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port[:])))), "")
	if err != nil {
		c.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	splice(c, r, up)
}

func splice(c net.Conn, r io.Reader, up net.Conn) {
	defer up.Close()
	up.SetDeadline(time.Now().Add(patience(4 * time.Second)))
	go io.Copy(up, r)
	io.Copy(c, up)
}

// dialLoosely reads an authority with all the leniency that such readers have
// been caught with.
func dialLoosely(authority, port string) (net.Conn, error) {
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		authority = authority[i+1:]
	}
	host := authority
	if h, p, err := net.SplitHostPort(authority); err == nil {
		host, port = h, p
	}
	host, _, _ = strings.Cut(host, "%")
	for _, cut := range []string{"\x00", "\t", " ", "#", "?", "\\", "/"} {
		host, _, _ = strings.Cut(host, cut)
	}
	host = strings.TrimRight(strings.NewReplacer("。", ".", "．", ".", "[", "", "]", "").Replace(host), ".")
	if a, ok := looseAddress(host); ok {
		host = a
	}
	if n, err := strconv.Atoi(port); err == nil {
		port = strconv.Itoa(n & 0xffff)
	}
	return net.DialTimeout("tcp", net.JoinHostPort(host, port), patience(2*time.Second))
}

// looseAddress reads what inet_aton(3) reads.
func looseAddress(host string) (string, bool) {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return "", false
	}
	var value uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 0, 32)
		if err != nil {
			return "", false
		}
		if i == len(parts)-1 {
			value |= n
			break
		}
		value |= n << (24 - 8*i)
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}).String(), true
}

// rtnetlink, as much as four requests need: rtnetlink(7).
