package docker

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/pccrun/pccrun/clients"
	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
)

// egress is the way out of a container.
type egress struct {
	proxy   *netproxy.Proxy
	doors   map[uint16]*door
	denials *events.Log
	cancel  context.CancelFunc
}

// door is a listener whose connections pid 1 accepts.
type door struct {
	port  uint16
	taken chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.taken:
		return c, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error {
	d.once.Do(func() { close(d.done) })
	return nil
}

func (d *door) Addr() net.Addr { return address{d.port} }

// address is of no socket of this machine.
type address struct{ port uint16 }

func (address) Network() string { return "container" }
func (a address) String() string {
	return "container"
}

// client is a connection of the command's.
type connection struct{ *yamux.Stream }

// CloseWrite ends the direction to the command; the other goes on.
func (c connection) CloseWrite() error { return c.Stream.Close() }

// Close ends both: what still comes is thrown away, and the command's side ends with that.
func (c connection) Close() error {
	err := c.Stream.Close()
	_ = c.Stream.SetReadDeadline(time.Now().Add(-time.Second)) // whoever reads here is done
	return err
}

// serve begins to decide on what comes.
func (r *running) serve(ctx context.Context) (*egress, error) {
	e := &egress{doors: map[uint16]*door{}}
	if len(r.inside.Listen) == 0 {
		return e, nil
	}
	n := &r.policy.Network
	asker := clients.Asker{Environ: r.provider.host.Environ, Workspace: r.policy.Workspace, StateDir: r.provider.host.StateDir, Note: func(text string) {
		r.observer.Warning(events.Warning{Text: text})
	}}
	set, err := n.Rules(asker.Expand)
	if err != nil {
		return nil, err
	}
	host := profiles.Host{Environ: r.provider.host.Environ}
	proxy := func(name string) string {
		if v := host.Getenv(strings.ToLower(name)); v != "" {
			return v
		}
		return host.Getenv(name)
	}
	upstream, err := netproxy.ParseUpstream(host.Getenv("http_proxy"), proxy("HTTPS_PROXY"), proxy("NO_PROXY"))
	if err != nil {
		return nil, err
	}
	if file, err := os.OpenFile(filepath.Join(r.dir, "denials.jsonl"), os.O_WRONLY|os.O_APPEND, 0); err == nil {
		e.denials = events.NewLog(r.label, events.Denials(file))
		e.denials.Start()
	}
	e.proxy = netproxy.New(netproxy.Config{
		Rules: set, Hostname: namespaces.Hostname, Upstream: upstream, Ask: r.observer.Ask, Event: func(event netproxy.Event) { r.decided(e, event) },
	})
	ctx, e.cancel = context.WithCancel(ctx)
	for _, port := range r.inside.Listen {
		d := &door{port: port, taken: make(chan net.Conn), done: make(chan struct{})}
		e.doors[port] = d
		if port == proxyPort {
			go e.proxy.Serve(ctx, d)
		} else {
			go e.proxy.ServeLocal(ctx, d, port)
		}
	}
	return e, nil
}

// take hands a connection to whom it came to.
func (e *egress) take(s *yamux.Stream) {
	var port [2]byte
	if _, err := io.ReadFull(s, port[:]); err != nil {
		_ = s.Close()
		return
	}
	d := e.doors[binary.BigEndian.Uint16(port[:])]
	if d == nil { // pid 1 listens where it was asked to
		_ = s.Close()
		return
	}
	select {
	case d.taken <- connection{s}:
	case <-d.done:
		_ = s.Close()
	}
}

func (e *egress) close() {
	if e.proxy == nil {
		return
	}
	e.cancel()
	e.proxy.Close()
	if e.denials != nil {
		_ = e.denials.Close(time.Second)
	}
}

// decided turns what the proxy did into events.
func (r *running) decided(e *egress, event netproxy.Event) {
	v := event.Verdict
	addr := ""
	if v.Addr.IsValid() {
		addr = v.Addr.String()
	}
	closed := events.NetClosed{Host: v.Host, Port: int(v.Port), Address: addr, Via: event.Protocol, Up: event.Up, Down: event.Down, DurationMS: event.Duration.Milliseconds()}
	if event.Err != nil {
		closed.Error = event.Err.Error()
	}
	switch event.Kind {
	case netproxy.Full:
		r.observer.Warning(events.Warning{Text: "more connections at once than can be served: those beyond are reset"})
		return
	case netproxy.Closed:
		r.observer.Closed(closed)
		return
	}
	d := events.NetDecision{
		Allowed: event.Kind != netproxy.Denied, Host: v.Host, Port: int(v.Port), Address: addr, Upstream: event.Upstream, Via: event.Protocol, Request: event.Request, Rule: v.Rule, Hint: v.AllowWith,
	}
	if !d.Allowed {
		d.Guarantee = string(profiles.NetAllowlist)
		if d.Address != "" && d.Request == "" {
			d.Guarantee = string(profiles.NetAddress)
		}
		if v.Detail != "" && d.Rule == "" {
			d.Rule = v.Detail
		}
		if e.denials != nil {
			e.denials.Emit(d)
		}
	}
	r.observer.Decision(d)
	if event.Kind == netproxy.Failed {
		closed.DurationMS = time.Since(event.Time).Milliseconds()
		r.observer.Closed(closed)
	}
}
