package docker

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/providers/inside"
)

// door is where pid 1 comes to before the command starts, to hand over its mount namespace,
// where files are lent in it, and the sockets that the command's connections come to: those
// are then served as on this machine itself.
type door struct{ listener *net.UnixListener }

// need plans the door.
func (r *running) need() {
	r.door = &door{}
	r.bind(filepath.Join(r.dir, doorName), doorFile, true, false, 0, 0)
}

// open makes the door in the directory of a run: a socket that nobody else of this machine
// reaches, and nobody at all once pid 1 has come.
func (r *running) open() error {
	if r.door == nil {
		return nil
	}
	dir, err := os.Open(r.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// unix(7) allows a path 107 bytes.
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), doorName)
	if r.door.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"}); err != nil {
		return err
	}
	r.door.listener.SetUnlinkOnClose(false)
	return os.Chmod(filepath.Join(r.dir, doorName), 0o666)
}

// sockets returns those that pid 1 has handed over, and closes the door.
func (r *running) sockets(want int) (files []*os.File, err error) {
	defer func() { err = errors.Join(err, r.shut()) }()
	return r.receive(want)
}

func (r *running) shut() error {
	return errors.Join(r.door.listener.Close(), os.Remove(filepath.Join(r.dir, doorName)))
}

// receive returns what pid 1 hands over in one go.
func (r *running) receive(want int) (files []*os.File, err error) {
	if err := r.door.listener.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	c, err := r.door.listener.AcceptUnix()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	text, rights := make([]byte, 16), make([]byte, unix.CmsgSpace(4*want))
	n, rn, _, _, err := c.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "socket"))
		}
	}
	if said, _ := strconv.Atoi(string(text[:n])); said != want || len(files) != want {
		return files, fmt.Errorf("pid 1 passed %d descriptors, want %d", len(files), want)
	}
	return files, nil
}

// direct serves the sockets that pid 1 hands over.
func (r *running) direct(w *way) error {
	want := len(r.inside.Listen) + len(r.inside.Capture)
	if len(r.inside.Capture) > 0 {
		want++
	}
	files, err := r.sockets(want)
	defer func() {
		for _, f := range files {
			f.Close() // what is served has a copy
		}
	}()
	if err != nil {
		return &EngineError{Text: "take the container's sockets", Err: err}
	}
	var list []net.Listener
	for i, f := range files {
		if names := len(r.inside.Listen); i == names {
			packets, err := net.FilePacketConn(f)
			if err != nil {
				return err
			}
			w.service.Questions(w.ctx, packets)
			continue
		}
		l, err := net.FileListener(f)
		if err != nil {
			return err
		}
		if i < len(r.inside.Listen) {
			list = append(list, l)
		} else {
			w.service.Captured(w.ctx, named{l})
		}
	}
	w.service.Listeners(w.ctx, list)
	return nil
}

// named takes connections to the addresses of names: what was meant for the loopback itself
// finds nobody, as without us.
type named struct{ net.Listener }

// Addr has no port: that of the container is not this machine's, where a server may have it.
func (named) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(inside.Names.Addr(), 0))
}

// Accept returns the next of them.
func (l named) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if at := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(); inside.Names.Contains(at) {
			return c, nil
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}
