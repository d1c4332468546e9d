package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// How much the network's figures move.
const (
	bulkBytes   = 1 << 30
	connections = 2000
	shorter     = 7 // runs of connections for one of bulk: they take a tenth of a second, and scatter by a quarter
)

// network measures the way out that programs take without knowing of a proxy,
// to a server of this machine, ÷ the same without a sandbox. The goals are
// times: 0.6 of the rate is 1.67 of the time.
func (b *bench) network(ctx context.Context) ([]figure, error) {
	port, stop, err := workServer()
	if err != nil {
		return nil, err
	}
	defer stop()
	var figures []figure
	for _, w := range []struct {
		name string
		goal float64
		runs int // for a round of bulk
		args []string
	}{
		{"bulk down one captured connection, time", 1.67, 1, []string{"down", strconv.Itoa(bulkBytes)}},
		{"bulk up one captured connection, time", 2, 1, []string{"up", strconv.Itoa(bulkBytes)}},
		{"new connections one at a time, time", 3.33, shorter, []string{"connect", strconv.Itoa(connections), "1"}},
		{"new connections eight at a time, time", 2.5, shorter, []string{"connect", strconv.Itoa(connections), "8"}},
	} {
		var times [2][]time.Duration
		for range w.runs * max(3, b.rounds/40) {
			for i, prefix := range [2][]string{nil, b.pccrun("--local", port)} {
				host := [2]string{"127.0.0.1", "host.pccrun.internal"}[i]
				argv := append(append(prefix, b.worker, "work", "net", net.JoinHostPort(host, port)), w.args...)
				cmd := b.command(ctx, b.empty, argv...)
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil {
					return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
				}
				ns, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
				if err != nil {
					return nil, err
				}
				times[i] = append(times[i], time.Duration(ns))
			}
		}
		in, out := median(times[1]), median(times[0])
		figures = append(figures, figure{name: w.name, value: ratio(in, out), unit: "× direct", goal: w.goal, detail: fmt.Sprintf("%s to %s", ms(in), ms(out))})
	}
	more, err := b.tunnels(ctx, port)
	if err != nil {
		return nil, err
	}
	figures = append(figures, more...)
	late, err := b.latency(ctx, port)
	return append(figures, late...), err
}

// workServer serves the clients of netWork on a port of the loopback, until stop.
func workServer() (port string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go serveWork(l)
	_, port, err = net.SplitHostPort(l.Addr().String())
	return port, func() { l.Close() }, err
}

// serveWork answers the clients of netWork: a first byte says what they want.
func serveWork(l net.Listener) {
	defer l.Close() // one that accepts no more lets nobody wait
	chunk := make([]byte, 256<<10)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var want [1]byte
			if _, err := io.ReadFull(c, want[:]); err != nil {
				return
			}
			switch want[0] {
			case 'd':
				for err == nil {
					_, err = c.Write(chunk)
				}
			case 'u':
				io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, chunk)
			case 'c':
				c.Write(want[:])
			case 'e':
				io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) // not splice(2): two descriptors more for each of many
			}
		}()
	}
}

// dialWork is how the client connects: nil is to the address itself.
var dialWork func(address string) (net.Conn, error)

// netWork is the client: it moves bytes down or up one connection, makes many,
// each with a byte there and back, holds many, or sends at a rate.
func netWork(address string, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("net: want ADDRESS down|up|connect|hold|echo N [AT-ONCE]")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if dialWork == nil {
		to, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			return err
		}
		address = to.String()
		dialWork = func(address string) (net.Conn, error) { return net.Dial("tcp", address) }
	}
	switch args[0] {
	case "hold":
		return hold(address, n)
	case "echo":
		return echo(address, n)
	}
	if args[0] == "connect" {
		atOnce, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return connect(address, n/atOnce, atOnce)
	}
	c, err := dialWork(address)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, args[0][:1]); err != nil {
		return err
	}
	chunk := make([]byte, 256<<10)
	for n > 0 && err == nil {
		moved := 0
		if args[0] == "down" {
			moved, err = c.Read(chunk)
		} else {
			moved, err = c.Write(chunk)
		}
		n -= moved
	}
	return err
}

// connect makes n connections in each of several goroutines.
func connect(address string, n, atOnce int) error {
	errs := make(chan error, atOnce)
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for range n {
				c, err := dialWork(address)
				if err == nil {
					_, err = io.WriteString(c, "c")
				}
				if err == nil {
					_, err = io.ReadFull(c, make([]byte, 1))
				}
				if err != nil {
					errs <- err
					return
				}
				c.Close()
			}
		})
	}
	group.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}
