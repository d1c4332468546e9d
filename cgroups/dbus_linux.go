package cgroups

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// This is as much of the D-Bus specification (version 0.43) as one method call
// needs: the EXTERNAL handshake, messages in little-endian order, which is
// that of every machine this program is built for, and the types that
// org.freedesktop.systemd1(5) uses.

// The types of messages.
const (
	methodCall   = 1
	methodReturn = 2
	methodError  = 3
	signal       = 4
)

// maxMessage bounds what a peer may make us allocate. The answers that are
// waited for have a hundred bytes.
const maxMessage = 1 << 20

// A message is a D-Bus message, as far as it is of use here.
type message struct {
	kind        byte
	serial      uint32
	replyTo     uint32
	path        string
	iface       string
	member      string
	errorName   string
	destination string
	sender      string
	signature   string
	body        []byte
}

// marshal returns the message as it goes over the wire.
func (m message) marshal() []byte {
	var e encoder
	e.b = append(e.b, 'l', m.kind, 0, 1)
	e.uint32(uint32(len(m.body)))
	e.uint32(m.serial)
	e.array(8, func() {
		for _, f := range []struct {
			code  byte
			sig   string
			value string
		}{
			{1, "o", m.path}, {2, "s", m.iface}, {3, "s", m.member}, {4, "s", m.errorName},
			{6, "s", m.destination}, {7, "s", m.sender}, {8, "g", m.signature},
		} {
			if f.value == "" {
				continue
			}
			e.align(8)
			e.b = append(e.b, f.code)
			e.signature(f.sig)
			if f.sig == "g" {
				e.signature(f.value)
			} else {
				e.string(f.value)
			}
		}
		if m.replyTo != 0 {
			e.align(8)
			e.b = append(e.b, 5)
			e.signature("u")
			e.uint32(m.replyTo)
		}
	})
	e.align(8)
	return append(e.b, m.body...)
}

// readMessage reads one message.
func readMessage(r io.Reader) (message, error) {
	head := make([]byte, 16)
	if _, err := io.ReadFull(r, head); err != nil {
		return message{}, err
	}
	if head[0] != 'l' || head[3] != 1 {
		return message{}, fmt.Errorf("d-bus message: byte order %q, version %d: not supported", head[0], head[3])
	}
	bodyLen := binary.LittleEndian.Uint32(head[4:])
	fieldsLen := binary.LittleEndian.Uint32(head[12:])
	if bodyLen > maxMessage || fieldsLen > maxMessage {
		return message{}, fmt.Errorf("d-bus message of %d and %d bytes: too long", fieldsLen, bodyLen)
	}
	fieldsEnd := 16 + int(fieldsLen)
	bodyStart := (fieldsEnd + 7) &^ 7
	all := append(head, make([]byte, bodyStart-16+int(bodyLen))...)
	if _, err := io.ReadFull(r, all[16:]); err != nil {
		return message{}, err
	}
	m := message{kind: all[1], serial: binary.LittleEndian.Uint32(all[8:]), body: all[bodyStart:]}
	d := decoder{b: all[:fieldsEnd], at: 16}
	for d.err == nil && d.at < fieldsEnd {
		d.align(8)
		code := d.byte()
		sig := d.signature()
		var s string
		var u uint32
		switch sig {
		case "s", "o":
			s = d.string()
		case "g":
			s = d.signature()
		case "u":
			u = d.uint32()
		default:
			return message{}, fmt.Errorf("d-bus header field %d: type %q: not supported", code, sig)
		}
		switch code {
		case 1:
			m.path = s
		case 2:
			m.iface = s
		case 3:
			m.member = s
		case 4:
			m.errorName = s
		case 5:
			m.replyTo = u
		case 6:
			m.destination = s
		case 7:
			m.sender = s
		case 8:
			m.signature = s
		}
	}
	return m, d.err
}

// strings decodes a body that is made of strings and object paths, with
// numbers of 32 bits skipped.
func (m message) strings() ([]string, error) {
	d := decoder{b: m.body}
	var all []string
	for _, c := range m.signature {
		switch c {
		case 's', 'o':
			all = append(all, d.string())
		case 'u':
			d.uint32()
		default:
			return nil, fmt.Errorf("d-bus body: type %q: not supported", c)
		}
	}
	return all, d.err
}

// An encoder appends values, each at its natural alignment in the message.
type encoder struct{ b []byte }

func (e *encoder) align(n int) {
	for len(e.b)%n != 0 {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) uint32(u uint32) {
	e.align(4)
	e.b = binary.LittleEndian.AppendUint32(e.b, u)
}

func (e *encoder) string(s string) {
	e.uint32(uint32(len(s)))
	e.b = append(append(e.b, s...), 0)
}

func (e *encoder) signature(s string) {
	e.b = append(e.b, byte(len(s)))
	e.b = append(append(e.b, s...), 0)
}

// array puts the length before what fill appends. The padding up to the first
// element does not count.
func (e *encoder) array(align int, fill func()) {
	e.uint32(0)
	length := len(e.b) - 4
	e.align(align)
	start := len(e.b)
	fill()
	binary.LittleEndian.PutUint32(e.b[length:], uint32(len(e.b)-start))
}

// A decoder takes values from b; after an error it gives zero values.
type decoder struct {
	b   []byte
	at  int
	err error
}

var errShort = errors.New("d-bus message: value out of bounds")

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b)-d.at {
		d.err = errShort
		return nil
	}
	d.at += n
	return d.b[d.at-n : d.at]
}

func (d *decoder) align(n int) { d.take(-d.at & (n - 1)) }

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	d.align(4)
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) string() string {
	n := d.uint32()
	if n > maxMessage {
		d.err = errShort
		return ""
	}
	s := string(d.take(int(n)))
	d.take(1)
	return s
}

func (d *decoder) signature() string {
	s := string(d.take(int(d.byte())))
	d.take(1)
	return s
}

// A bus is a connection to a message bus.
type bus struct {
	f      *os.File
	r      *bufio.Reader
	serial uint32
}

// dialBus connects and says hello. The deadline holds for all that follows.
func dialBus(socket string, deadline time.Time) (*bus, error) {
	f, err := connect(socket, deadline)
	if err != nil {
		return nil, err
	}
	b := &bus{f: f, r: bufio.NewReader(f)}
	if err := b.handshake(); err != nil {
		f.Close()
		return nil, fmt.Errorf("d-bus at %s: %w", socket, err)
	}
	return b, nil
}

// connect does without package net, which a launch has no other use for.
func connect(socket string, deadline time.Time) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	// A peer whose queue is full makes connect wait as long as a send may.
	wait := unix.NsecToTimeval(int64(max(time.Until(deadline), time.Millisecond)))
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait)
	if err == nil {
		_, err = retry(func() (int, error) { return 0, unix.Connect(fd, &unix.SockaddrUnix{Name: socket}) })
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "connect", Path: socket, Err: err}
	}
	f := os.NewFile(uintptr(fd), socket)
	return f, f.SetDeadline(deadline)
}

func (b *bus) handshake() error {
	uid := hex.EncodeToString([]byte(strconv.Itoa(os.Geteuid())))
	if _, err := fmt.Fprintf(b.f, "\x00AUTH EXTERNAL %s\r\n", uid); err != nil {
		return err
	}
	line, err := b.r.ReadSlice('\n') // bounded by the buffer
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(line), "OK ") {
		return fmt.Errorf("authentication refused: %q", line)
	}
	if _, err := io.WriteString(b.f, "BEGIN\r\n"); err != nil {
		return err
	}
	_, err = b.call(message{path: "/org/freedesktop/DBus", iface: "org.freedesktop.DBus", member: "Hello",
		destination: "org.freedesktop.DBus"}, nil)
	return err
}

// call sends a method call and waits for its answer. Signals that come before
// it are given to seen.
func (b *bus) call(m message, seen func(message)) (message, error) {
	b.serial++
	m.kind, m.serial = methodCall, b.serial
	if _, err := b.f.Write(m.marshal()); err != nil {
		return message{}, err
	}
	for {
		answer, err := readMessage(b.r)
		switch {
		case err != nil:
			return message{}, err
		case answer.kind == methodReturn && answer.replyTo == m.serial:
			return answer, nil
		case answer.kind == methodError && answer.replyTo == m.serial:
			text := ""
			if all, err := answer.strings(); err == nil && len(all) > 0 {
				text = ": " + all[0]
			}
			return message{}, fmt.Errorf("%s: %s%s", m.member, answer.errorName, text)
		case answer.kind == signal && seen != nil:
			seen(answer)
		}
	}
}
