//go:build linux

package cgroups

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const manager = "org.freedesktop.systemd1.Manager"

// shortDir returns a directory whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "cg")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A fakeBus is a bus and a service manager in one.
type fakeBus struct {
	auth    string                      // its answer to AUTH
	answer  func(m message) []message   // its answers to StartTransientUnit
	started chan message                // what it was asked
	conns   func(c net.Conn, m message) // instead of answer, if set
}

const job = "/org/freedesktop/systemd1/job/7"

func body(values ...string) []byte {
	var e encoder
	for _, v := range values {
		e.string(v)
	}
	return e.b
}

func removed(job, result string) message {
	var e encoder
	e.uint32(7)
	e.b = append(e.b, body(job, "x.scope", result)...)
	return message{kind: signal, serial: 1, path: "/org/freedesktop/systemd1", iface: manager, member: "JobRemoved",
		sender: ":1.1", signature: "uoss", body: e.b}
}

func reply(m message, signature string, values ...string) message {
	return message{kind: methodReturn, serial: 1, replyTo: m.serial, sender: ":1.1", signature: signature, body: body(values...)}
}

func (f fakeBus) listen(t *testing.T) string {
	name := shortDir(t) + "/bus"
	l, err := net.Listen("unix", name)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return name
}

func (f fakeBus) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	line, _ := r.ReadString('\n')
	want := fmt.Sprintf("\x00AUTH EXTERNAL %x\r\n", fmt.Sprint(os.Geteuid()))
	if f.auth == "" && line == want {
		f.auth = "OK 1234deadbeef\r\n"
	}
	io.WriteString(c, f.auth)
	if line, _ = r.ReadString('\n'); line != "BEGIN\r\n" {
		return
	}
	for {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		switch m.member {
		case "Hello":
			c.Write(reply(m, "s", ":1.42").marshal())
		case "AddMatch":
			c.Write(reply(m, "").marshal())
		case "StartTransientUnit":
			f.started <- m
			if f.conns != nil {
				f.conns(c, m)
				return
			}
			for _, a := range f.answer(m) {
				c.Write(a.marshal())
			}
		}
	}
}

func TestStartScope(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(m message) []message
		want   string // error
	}{
		{"done after the answer", func(m message) []message {
			return []message{reply(m, "o", job), removed("/other", "failed"), removed(job, "done")}
		}, ""},
		{"done before the answer", func(m message) []message {
			return []message{removed(job, "done"), reply(m, "o", job)}
		}, ""},
		{"failed", func(m message) []message {
			return []message{reply(m, "o", job), removed(job, "failed")}
		}, "job failed"},
		{"refused", func(m message) []message {
			return []message{{kind: methodError, serial: 1, replyTo: m.serial, sender: ":1.1",
				errorName: "org.freedesktop.DBus.Error.AccessDenied", signature: "s", body: body("no")}}
		}, "StartTransientUnit: org.freedesktop.DBus.Error.AccessDenied: no"},
		{"an answer to another call", func(m message) []message {
			return []message{{kind: methodReturn, serial: 1, replyTo: 999}, reply(m, "o", job), removed(job, "done")}
		}, ""},
		{"an answer that is not understood", func(m message) []message {
			return []message{reply(m, "ss", "a", "b")}
		}, "not understood"},
		{"signals of others, and forged ones", func(m message) []message {
			other := removed(job, "done")
			other.iface = "org.example"
			short := removed(job, "done")
			short.body = short.body[:9]
			return []message{other, short, reply(m, "o", job), other, short, removed(job, "canceled")}
		}, "job canceled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := fakeBus{answer: test.answer, started: make(chan message, 1)}
			b, err := dialBus(f.listen(t), time.Now().Add(10*time.Second))
			require.NoError(t, err)
			defer b.f.Close()
			err = b.startScope("pccrun-1-ab.scope", 1234)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
			m := <-f.started
			require.Equal(t, "ssa(sv)a(sa(sv))", m.signature)
			require.Equal(t, "org.freedesktop.systemd1", m.destination)
			require.Equal(t, scopeProperties("pccrun-1-ab.scope", 1234), m.body)
		})
	}
}

func TestBusThatIsNotWell(t *testing.T) {
	for name, f := range map[string]fakeBus{
		"refuses":      {auth: "REJECTED EXTERNAL\r\n"},
		"endless line": {auth: strings.Repeat("x", 1<<16)},
		"says nothing": {auth: " \r"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dialBus(f.listen(t), time.Now().Add(200*time.Millisecond))
			require.ErrorContains(t, err, "d-bus at ")
		})
	}
	for name, conns := range map[string]func(net.Conn, message){
		"hangs up": func(net.Conn, message) {},
		"says nothing": func(c net.Conn, _ message) {
			io.Copy(io.Discard, c)
		},
		"big endian": func(c net.Conn, _ message) { c.Write(append([]byte("B\x02\x00\x01"), make([]byte, 12)...)) },
		"endless body": func(c net.Conn, _ message) {
			c.Write([]byte("l\x02\x00\x01\xff\xff\xff\xff\x01\x00\x00\x00\x00\x00\x00\x00"))
		},
	} {
		t.Run(name+" later", func(t *testing.T) {
			f := fakeBus{conns: conns, started: make(chan message, 1)}
			b, err := dialBus(f.listen(t), time.Now().Add(300*time.Millisecond))
			require.NoError(t, err)
			defer b.f.Close()
			require.Error(t, b.startScope("x.scope", 1))
		})
	}
	_, err := dialBus("/does/not/exist", time.Now().Add(time.Second))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "connect /does/not/exist")
	_, err = startScope("/does/not/exist", "x.scope")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The group is taken from the kernel, not from what the manager says: it may
// have moved another process that has our number where it lives.
func TestScopeHasToBeOurs(t *testing.T) {
	f := fakeBus{started: make(chan message, 1), answer: func(m message) []message {
		return []message{reply(m, "o", job), removed(job, "done")}
	}}
	_, err := startScope(f.listen(t), "x.scope")
	require.ErrorContains(t, err, "start scope x.scope: this process is in ")

	fake := newFake(t, "0::/user.slice/x.scope\n")
	fake.mount("", 0x63677270)
	dir, err := scopeDir(fake.machine(1000), "x.scope")
	require.NoError(t, err)
	require.Equal(t, fake.root+"/cg/user.slice/x.scope", dir)
	_, err = scopeDir(fake.machine(1000), "y.scope")
	require.Error(t, err)
}

// dbus-daemon checks every message that it passes on.
func TestRealBus(t *testing.T) {
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("needs dbus-daemon")
	}
	dir := shortDir(t)
	socket := filepath.Join(dir, "bus")
	config := filepath.Join(dir, "config")
	require.NoError(t, os.WriteFile(config, []byte(`<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path=`+socket+`</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/><allow user="*"/></policy></busconfig>`), 0o644))
	cmd := exec.Command(daemon, "--config-file="+config, "--nofork", "--nopidfile", "--print-address")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = bufio.NewReader(out).ReadString('\n') // it listens
	require.NoError(t, err)

	// The manager is another client of the bus.
	deadline := time.Now().Add(10 * time.Second)
	service, err := dialBus(socket, deadline)
	require.NoError(t, err)
	defer service.f.Close()
	var e encoder
	e.string("org.freedesktop.systemd1")
	e.uint32(0)
	_, err = service.call(message{path: "/org/freedesktop/DBus", iface: "org.freedesktop.DBus", member: "RequestName",
		destination: "org.freedesktop.DBus", signature: "su", body: e.b}, nil)
	require.NoError(t, err)
	asked := make(chan message, 1)
	go func() {
		for {
			m, err := readMessage(service.r)
			if err != nil {
				return
			}
			if m.member != "StartTransientUnit" {
				continue
			}
			asked <- m
			answer := reply(m, "o", job)
			answer.destination, answer.sender = m.sender, ""
			service.f.Write(answer.marshal())
			done := removed(job, "done")
			done.sender, done.serial = "", 2
			service.f.Write(done.marshal())
		}
	}()

	client, err := dialBus(socket, deadline)
	require.NoError(t, err)
	defer client.f.Close()
	require.NoError(t, client.startScope("pccrun-1-ab.scope", os.Getpid()))
	m := <-asked
	require.Equal(t, scopeProperties("pccrun-1-ab.scope", os.Getpid()), m.body)

	// Without a manager the bus says so.
	require.NoError(t, service.f.Close())
	require.ErrorContains(t, client.startScope("x.scope", 1), "org.freedesktop.DBus.Error.")
}

func FuzzReadMessage(f *testing.F) {
	f.Add(removed(job, "done").marshal())
	f.Add(message{kind: methodCall, serial: 1, path: "/x", member: "Hello", destination: "a.b", signature: "s", body: body("x")}.marshal())
	f.Add([]byte("l\x02\x00\x01\xff\xff\xff\xff\x01\x00\x00\x00\xff\xff\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readMessage(bytes.NewReader(b))
		if err != nil {
			return
		}
		_, _ = m.strings()
		if m.serial == 0 {
			return
		}
		again, err := readMessage(bytes.NewReader(m.marshal()))
		require.NoError(t, err)
		require.Equal(t, m.member, again.member)
		require.Equal(t, m.body, again.body)
		require.Equal(t, m.replyTo, again.replyTo)
	})
}

func TestMarshalAligns(t *testing.T) {
	b := message{kind: methodCall, serial: 9, path: "/a", iface: "b.c", member: "D", signature: "s", body: body("x")}.marshal()
	require.Zero(t, (len(b)-6)%8, "the body starts at a multiple of eight")
	require.EqualValues(t, 6, binary.LittleEndian.Uint32(b[4:]))
	m, err := readMessage(bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, "b.c", m.iface)
}
