package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// Streams are a listener whose connections somebody hands in: those that come out of a
// sandbox over a pipe, a stream or another socket than the listener's own. A connection
// that was captured says by its LocalAddr whom it was meant for.
type Streams struct {
	at      netip.AddrPort
	waiting chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// NewStreams returns a listener that says that it listens at an address of the sandbox's.
func NewStreams(at netip.AddrPort) *Streams {
	return &Streams{at: at, waiting: make(chan net.Conn), closed: make(chan struct{})}
}

// Hand hands a connection in. What nobody takes is closed, with an error.
func (s *Streams) Hand(ctx context.Context, c net.Conn) error {
	err := net.ErrClosed
	select {
	case s.waiting <- c:
		return nil
	case <-s.closed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.Close()
	return err
}

// Accept returns the next connection.
func (s *Streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.waiting:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the listener. Connections that were accepted go on.
func (s *Streams) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Addr is where the listener says that it listens.
func (s *Streams) Addr() net.Addr { return streamAddr(s.at.String()) }

// A streamAddr is an address of the sandbox. It is no *net.TCPAddr: no port of this machine.
type streamAddr string

func (streamAddr) Network() string  { return "stream" }
func (a streamAddr) String() string { return string(a) }
