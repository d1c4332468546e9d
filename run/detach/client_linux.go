package detach

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/providers"
)

// A Client is somebody who wants to see a run.
type Client struct {
	Greeting
	conn *conn
}

// Dial reaches the holder of the run in a directory. The error wraps [ErrNoHolder] if there is none.
func Dial(dir *os.Root) (*Client, error) {
	at, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer at.Close()
	to, err := net.DialUnix("unix", nil, sessions.SocketIn(at, socketName))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoHolder, err)
	}
	c := newConn(to)
	m, err := c.receive()
	switch {
	case err != nil: // it ends at this moment
		err = fmt.Errorf("%w: %w", ErrNoHolder, err)
	case m.End != nil:
		err = errors.New(m.End.Why)
	case m.Greeting == nil:
		err = errors.New("BUG: a holder without a greeting")
	default:
		return &Client{*m.Greeting, c}, nil
	}
	to.Close()
	return nil, err
}

// ErrNoHolder is wrapped by the error where nobody answers.
var ErrNoHolder = errors.New("nobody holds its terminal")

// Detach lets all go that are attached, and returns how many there were.
func (c *Client) Detach() (n int, err error) {
	defer c.conn.Close()
	if err := c.conn.send(message{Detach: true}); err != nil {
		return 0, err
	}
	m, err := c.conn.receive()
	if err != nil || m.End == nil {
		return 0, err
	}
	return m.End.Gone, nil
}

// Show shows the run until its end, or until another terminal takes it, or somebody has typed the keys. With a terminal, in has
// what is typed. An error says that the holder was killed.
func (c *Client) Show(out io.Writer, in io.Reader, terminal *providers.Terminal, keys Keys) (End, error) {
	defer c.conn.Close()
	first := message{Attach: true}
	if terminal != nil {
		first.Size = sizeOf(terminal)
	}
	if err := c.conn.send(first); err != nil {
		return End{}, err
	}
	typed, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	if terminal != nil {
		go c.sizes(terminal, over)
		go func() {
			keys.pass(in, func(b []byte) error { return c.conn.send(message{Keys: b}) })
			close(typed)
			c.conn.Close() // which ends the loop below
		}()
	}
	for {
		m, err := c.conn.receive()
		if err == nil && m.End != nil {
			return *m.End, nil
		}
		if err == nil {
			_, err = out.Write(m.Output)
		}
		if err == nil {
			continue
		}
		select {
		case <-typed:
			return End{Why: "detached"}, nil
		default:
			return End{}, fmt.Errorf("the process that holds the terminal is gone: %w", err)
		}
	}
}

// sizeOf is the size of a terminal, and the usual one of one that has none: with it the terminal types.
func sizeOf(terminal *providers.Terminal) [2]int {
	if columns, rows := terminal.Size(); columns > 0 && rows > 0 {
		return [2]int{columns, rows}
	}
	return [2]int{80, 24}
}

// sizes tells the holder of each new size.
func (c *Client) sizes(terminal *providers.Terminal, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-terminal.Resized:
			_ = c.conn.send(message{Size: sizeOf(terminal)})
		}
	}
}
