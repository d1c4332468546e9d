package netproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// What is not HTTP at first sight may still name a host.

// peekLine waits for something, and returns what has come, unread, up to the end of a
// line; end says that it stands behind that.
func (c *client) peekLine() (got []byte, end bool, err error) {
	if _, err := c.br.Peek(1); err != nil {
		return nil, false, err
	}
	got, _ = c.br.Peek(c.br.Buffered())
	if i := bytes.IndexByte(got, '\n'); i >= 0 {
		return got[:i], true, nil
	}
	return got, false, nil
}

// passOdd passes on a first line that no request has, as far as it is not longer than a
// request's. The line is what was passed of it before.
func (c *client) passOdd(l *link, ev *Event, up *counter, line string) error {
	for b := []byte(line); len(b) < shortHead; {
		got, end, err := c.peekLine()
		if err != nil {
			return noEnd(err)
		}
		if b = append(b, got...); end && len(words(string(b))) > 1 {
			r := request{host: l.verdict.Host, port: l.verdict.Port}
			if err := r.checkOdd(string(b)); err != nil {
				c.contradicted(l, ev, err)
				c.refuse(r, err)
				return err
			}
			if _, err := up.Write(got); err != nil {
				return err
			}
			_, _ = c.br.Discard(len(got))
			return c.passFields(l, ev, up)
		}
		if end {
			return nil
		}
		if _, err := up.Write(got); err != nil {
			return err
		}
		_, _ = c.br.Discard(len(got))
	}
	return nil
}

// checkOdd holds a URL that such a line asks for, as servers do that take any method,
// against the tunnel's host. Of another scheme it may as well be a word of a log, unless
// a version of HTTP follows.
func (r *request) checkOdd(line string) error {
	all := words(line)
	target := strings.ToLower(all[1])
	versioned := len(all) == 3 && strings.HasPrefix(strings.ToUpper(all[2]), "HTTP/")
	if !versioned && !strings.HasPrefix(target, "http://") && !strings.HasPrefix(target, "https://") {
		return nil
	}
	return r.checkTarget(target)
}

// passFields passes on what follows a first line of some words, which servers such as
// uWSGI's take for a request's, whatever they are, and refuses a Host among it that is
// not the tunnel's. It looks on over what is no field, as such servers do, up to the end
// of a head. No line is kept waiting, and a server that says something before that
// speaks another protocol.
func (c *client) passFields(l *link, ev *Event, up *counter) error {
	if _, err := io.CopyN(up, c.br, 1); err != nil { // the first line's end
		return noEnd(err)
	}
	r := request{host: l.verdict.Host, port: l.verdict.Port}
	var line []byte
	for n, wasHost := 0, false; n < maxHead && up.other.from.voice.Load() == int32(silent); {
		got, end, err := c.peekLine()
		if err != nil {
			return noEnd(err)
		}
		n += len(got) + 1
		line = append(line, got...)
		name, value, isField := strings.Cut(string(line), ":")
		isHost := isField && strings.EqualFold(strings.TrimFunc(name, func(c rune) bool { return c <= ' ' }), "Host")
		switch {
		case isHost && len(line) > shortHead, wasHost && len(line) > 0 && isBlank(line[0]):
			err = bad("malformed Host field")
		case end && isHost:
			r.fields = []field{{"Host", strings.Trim(value, " \t\r")}}
			err, wasHost = r.checkHost(0), true
		case end:
			wasHost = false
		}
		if err != nil {
			c.contradicted(l, ev, err)
			c.refuse(r, err)
			return err
		}
		if len(line) > shortHead {
			line = line[:64]
		}
		if end {
			line, got = line[:0], got[:len(got)+1]
		}
		if _, err := up.Write(got); err != nil {
			return err
		}
		_, _ = c.br.Discard(len(got))
		if strings.HasSuffix(string(up.last), "\r\n\r\n") {
			return nil
		}
	}
	return nil
}

// proxySignature is what a header of the PROXY protocol, version 2, begins with, its
// last byte aside, which is a line's end. One of version 1 is a line. Both tell a server
// whom a connection is from, and what it is for follows behind.
const proxySignature = "\r\n\r\n\x00\r\nQUIT"

// proxyAuthority is the kind of the field that names the host in such a header.
const proxyAuthority = 2

// passProxyHeader passes on what follows the signature. A host that it names has to be
// v's.
func (c *client) passProxyHeader(v rules.Verdict, up io.Writer) error {
	c.conn.SetReadDeadline(time.Now().Add(c.headTimeout))
	defer c.conn.SetReadDeadline(time.Time{})
	header := make([]byte, 5)
	if _, err := io.ReadFull(c.br, header); err != nil {
		return noEOF(err)
	}
	size := int(header[3])<<8 | int(header[4])
	if size > shortHead {
		return errHeadTooLong
	}
	header = append(header, make([]byte, size)...)
	if _, err := io.ReadFull(c.br, header[5:]); err != nil {
		return noEOF(err)
	}
	addresses := [16]int{1: 12, 2: 36, 3: 216}[header[2]>>4]
	for rest := cursor(header[min(5+addresses, len(header)):]); len(rest) > 0; {
		kind, ok := rest.take(1)
		value, ok2 := rest.vector(2)
		switch {
		case !ok || !ok2:
			return bad("malformed PROXY header")
		case kind[0] == proxyAuthority && !strings.EqualFold(strings.TrimSuffix(string(value), "."), v.Host):
			return &refusal{421, "the PROXY header names another host"}
		}
	}
	_, err := up.Write(header)
	return err
}

// isPacket says whether a line is the beginning of git's first packet: its length in
// hexadecimal, a command and a path.
func isPacket(line string) bool {
	_, err := strconv.ParseUint(line[:min(4, len(line))], 16, 16)
	return err == nil && len(line) > 4 && strings.HasPrefix(line[4:], "git-")
}

var errPacket = errors.New("malformed packet of git's")

// passPacket passes on the rest of such a packet, of which a part was. A host that it
// names has to be v's: servers may have another repository at the same path for each.
func (c *client) passPacket(v rules.Verdict, passed string, up io.Writer) error {
	seen, err := c.br.Peek(max(1, 8-len(passed)))
	if err != nil {
		return noEOF(err)
	}
	size, err := strconv.ParseUint((passed + string(seen))[:4], 16, 16)
	if err != nil || int(size) <= len(passed) || size > shortHead {
		return errPacket
	}
	rest := make([]byte, int(size)-len(passed))
	if _, err := io.ReadFull(c.br, rest); err != nil {
		return noEOF(err)
	}
	if bytes.ContainsAny(rest, "\r\n") {
		return errPacket
	}
	for word := range strings.SplitSeq(passed+string(rest), "\x00") {
		name, value, ok := strings.Cut(word, "=")
		if !ok || !strings.EqualFold(name, "host") {
			continue
		}
		r := request{head: head{fields: []field{{"Host", value}}}, host: v.Host, port: v.Port}
		if err := r.checkHost(0); err != nil {
			return fmt.Errorf("git asks for %q in a tunnel to %s", value, v.Host)
		}
	}
	_, err = up.Write(rest)
	return err
}

// turnGit tells git that its request was refused, in its own words.
func (c *client) turnGit() {
	const text = "ERR pccrun: the request names another host than the connection is to"
	if _, err := fmt.Fprintf(c.conn, "%04x%s", 4+len(text), text); err == nil {
		c.linger()
	}
}
