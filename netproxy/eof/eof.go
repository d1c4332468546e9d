// Package eof tells the end of a connection from a connection that was broken off.
//
// The kernel reports that a connection was broken off once, to the next call that reads or
// writes. If that was a write, the reader is told of an end, and half an answer looks whole.
package eof

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
)

// A Conn returns io.EOF only at an end, and ECONNRESET where it was broken off. Go's HTTP
// client needs it: it sends while it reads, and takes every end for that of an answer.
type Conn struct {
	net.Conn
	ended atomic.Bool // what was written came after the end: EPIPE says so
}

func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		c.ended.Store(true)
	}
	return n, err
}

func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == io.EOF && isBrokenOff(c.Conn) && !c.ended.Load() {
		err = syscall.ECONNRESET
	}
	return n, err
}
