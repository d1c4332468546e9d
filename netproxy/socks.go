package netproxy

import (
	"errors"
	"io"
	"net/netip"
	"syscall"
	"time"
)

// SOCKS5 as RFC 1928 has it: CONNECT alone, without authentication where whoever reaches
// the listener is in the sandbox, else with the token of [Config.Token].
const (
	socksVersion    = 5
	socksNoAuth     = 0
	socksPassword   = 2
	socksNoMethod   = 0xff
	socksConnect    = 1
	socksIPv4       = 1
	socksName       = 3
	socksIPv6       = 4
	socksOK         = 0
	socksDenied     = 2
	socksNoHost     = 4
	socksRefused    = 5
	socksBadCommand = 7
	socksBadAddress = 8

	socksTokenVersion = 1 // of RFC 1929
)

// serveSOCKS greets, reads one request and makes a tunnel.
func (c *client) serveSOCKS() {
	var b [256]byte
	if _, err := io.ReadFull(c.br, b[:2]); err != nil {
		return
	}
	methods := b[:b[1]]
	if _, err := io.ReadFull(c.br, methods); err != nil {
		return
	}
	method, wanted := byte(socksNoMethod), byte(socksNoAuth)
	if c.cfg.Token != "" {
		wanted = socksPassword
	}
	for _, m := range methods {
		if m == wanted {
			method = wanted
		}
	}
	if _, err := c.conn.Write([]byte{socksVersion, method}); err != nil || method == socksNoMethod {
		return
	}
	if method == socksPassword && !c.admitSOCKS() {
		return
	}
	host, port, code := c.readSOCKSRequest()
	c.conn.SetReadDeadline(time.Time{})
	if code != socksOK {
		c.refuseSOCKS(code)
		return
	}
	l, ev, err := c.connect(c.ctx, c.conn, c.own, "socks5", host, port)
	switch {
	case err == errDenied:
		c.refuseSOCKS(socksDenied)
		return
	case errors.Is(err, syscall.ECONNREFUSED):
		c.refuseSOCKS(socksRefused)
		return
	case err != nil:
		c.refuseSOCKS(socksNoHost)
		return
	}
	defer l.Close()
	if !c.answerSOCKS(socksOK) {
		c.closed(ev, 0, 0)
		return
	}
	c.tunnel(l, ev)
}

// readSOCKSRequest returns where the client wants to go, or a code other than
// socksOK.
func (c *client) readSOCKSRequest() (host string, port uint16, code byte) {
	const broken = 1 // general failure
	var b [256]byte
	if _, err := io.ReadFull(c.br, b[:4]); err != nil || b[0] != socksVersion || b[2] != 0 {
		return "", 0, broken
	}
	command, kind, size := b[1], b[3], 0
	switch kind {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		n, err := c.br.ReadByte()
		if err != nil {
			return "", 0, broken
		}
		size = int(n)
	default:
		return "", 0, socksBadAddress
	}
	if _, err := io.ReadFull(c.br, b[:size]); err != nil {
		return "", 0, broken
	}
	host = string(b[:size])
	if kind != socksName {
		addr, _ := netip.AddrFromSlice(b[:size])
		host = addr.String()
	}
	if _, err := io.ReadFull(c.br, b[:2]); err != nil {
		return "", 0, broken
	}
	if command != socksConnect {
		return "", 0, socksBadCommand
	}
	return host, uint16(b[0])<<8 | uint16(b[1]), socksOK
}

func (c *client) refuseSOCKS(code byte) {
	if c.answerSOCKS(code) {
		c.linger()
	}
}

// answerSOCKS replies. The bound address is never told: it is the host's.
func (c *client) answerSOCKS(code byte) bool {
	_, err := c.conn.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err == nil
}
