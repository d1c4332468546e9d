package netproxy

import (
	"bufio"
	"io"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// What of HTTP/2 is needed to find the name in its first request, RFC 9113.
const (
	prefaceLine = "PRI * HTTP/2.0\r"
	prefaceRest = "\n\r\nSM\r\n\r\n"

	frameHeaders      = 1
	framePushPromise  = 5
	frameContinuation = 9

	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 0x20
)

var (
	errStreams = bad("malformed HTTP/2")
	errUnnamed = bad("the first HTTP/2 request names no host, or no path")
)

// readStreams follows what a client sends that speaks HTTP/2 without TLS, from
// behind the first line up to its first request, which has to be for the
// tunnel's name. What comes before it goes up as it comes, since some clients
// wait for the server's settings. Requests that follow are the server's to
// judge, as those of HTTP/1 are.
func (c *client) readStreams(v rules.Verdict, up io.Writer) error {
	rest := make([]byte, len(prefaceRest))
	if _, err := io.ReadFull(c.br, rest); err != nil {
		return noEOF(err)
	}
	if string(rest) != prefaceRest {
		return errStreams
	}
	if _, err := io.WriteString(up, prefaceRest); err != nil {
		return err
	}
	c.conn.SetReadDeadline(time.Time{}) // frames come when they come
	for {
		f, err := readFrame(c.br)
		switch {
		case err != nil:
			return noEOF(err)
		case f.kind == framePushPromise, f.kind == frameContinuation:
			return errStreams
		case f.kind == frameHeaders:
			return passRequest(v, f, c.br, up)
		}
		if _, err := up.Write(f.header[:]); err != nil {
			return err
		}
		if _, err := io.CopyN(up, c.br, int64(f.length)); err != nil {
			return noEOF(err)
		}
	}
}

// A frame is the header of one, whose payload is still to be read.
type frame struct {
	header      [9]byte
	length      int
	kind, flags byte
	stream      [4]byte
}

func readFrame(br *bufio.Reader) (f frame, err error) {
	if _, err := io.ReadFull(br, f.header[:]); err != nil {
		return f, err
	}
	h := f.header
	f.length, f.kind, f.flags = int(h[0])<<16|int(h[1])<<8|int(h[2]), h[3], h[4]
	copy(f.stream[:], h[5:])
	return f, nil
}

// passRequest passes the first request on if it is for v's host: its frames up
// to the end of its fields.
func passRequest(v rules.Verdict, f frame, br *bufio.Reader, up io.Writer) error {
	stream := f.stream
	var raw, fields []byte
	long := false
	for {
		if !long && len(raw)+f.length > shortHead {
			if !takeLong() {
				return errLongHeads
			}
			long = true
			defer giveLong()
		}
		payload := make([]byte, min(f.length, maxHead+1))
		if len(raw)+f.length > maxHead {
			return errHeadTooLong
		}
		if _, err := io.ReadFull(br, payload); err != nil {
			return noEOF(err)
		}
		raw = append(append(raw, f.header[:]...), payload...)
		block, ok := f.block(payload)
		if !ok {
			return errStreams
		}
		fields = append(fields, block...)
		if f.flags&flagEndHeaders != 0 {
			break
		}
		var err error
		if f, err = readFrame(br); err != nil {
			return noEOF(err)
		}
		if f.kind != frameContinuation || f.stream != stream {
			return errStreams
		}
	}
	if err := checkFields(v, fields); err != nil {
		return err
	}
	_, err := up.Write(raw)
	return err
}

// block returns the part of a payload that holds fields, RFC 9113, sections 6.2
// and 6.10.
func (f frame) block(payload []byte) ([]byte, bool) {
	if f.kind == frameContinuation {
		return payload, true
	}
	padding := 0
	if f.flags&flagPadded != 0 {
		if len(payload) == 0 {
			return nil, false
		}
		padding, payload = int(payload[0]), payload[1:]
	}
	if f.flags&flagPriority != 0 {
		if len(payload) < 5 {
			return nil, false
		}
		payload = payload[5:]
	}
	if padding > len(payload) {
		return nil, false
	}
	return payload[:len(payload)-padding], true
}

// misdirected is all that a client hears whose first request was refused: no
// settings, the status 421, and that there is no more (RFC 9113, section 6). The
// stream is 1, as that of every first request.
const misdirected = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
	"\x00\x00\x05\x01\x05\x00\x00\x00\x01" + "\x08\x03421" +
	"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x01\x00\x00\x00\x00"

// turnStreams tells a client that its first request was refused.
func (c *client) turnStreams() {
	if _, err := io.WriteString(c.conn, misdirected); err == nil {
		c.linger()
	}
}
