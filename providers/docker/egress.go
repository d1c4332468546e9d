//go:build unix

package docker

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/inside"
)

// maxCaptured is how many ports are captured: pid 1 listens at each.
const maxCaptured = 16

// A gateway serves what a container connects to and asks for, by the rules of the policy.
type gateway struct {
	service *egress.Service
	proxies map[netip.AddrPort]*egress.Streams // connections to a listener of the proxy
	names   *egress.Streams                    // connections to the addresses of names
	denials *events.Log                        // nil: the command is not told
	ctx     context.Context
	cancel  context.CancelFunc
}

// planEgress plans the egress, and puts what belongs to it into the command's environment
// and into what the engine binds. It is served once pid 1 is ready.
func (r *running) planEgress() (err error) {
	if !r.plan.ruled() {
		r.plan.inside.Env = inside.Texts(r.plan.environ)
		return nil
	}
	host := egress.Host{
		Environ:  r.plan.provider.host.Environ,
		Programs: r.plan.provider.host.Programs,
		StateDir: r.plan.provider.host.StateDir,
		Secrets:  new(egress.Secrets),
	}
	if r.plan.ask {
		host.Ask = r.observer.Ask
	}
	r.egress, err = egress.New(r.plan.policy, host, egress.Sandbox{Hostname: namespaces.Hostname, Environ: r.plan.environ})
	if err != nil {
		return err
	}
	for _, text := range r.egress.Warnings {
		r.observer.Warning(events.Warning{Text: text})
	}
	files, err := r.egress.StartInspector(func() (*os.File, error) { return os.Open("/proc/self/exe") }, 0, 0)
	if err != nil {
		return err
	}
	for i, f := range files {
		if !r.plan.shows(f.Path) {
			continue
		}
		r.plan.own(file{Name: fmt.Sprintf("trust-%d", i), Text: f.Text, Mode: 0o444}, f.Path)
	}
	r.plan.inside.Capture, _ = r.egress.Rules.Ports(maxCaptured)
	r.plan.inside.Env = inside.Texts(r.egress.Trusting(r.egress.Environ))
	for _, at := range r.egress.Listen {
		r.plan.inside.Listen = append(r.plan.inside.Listen, at.Port())
	}
	return nil
}

// shows reports whether a file of the egress has a place: one of the system's own has
// none where an image is another system.
func (r *plan) shows(path string) bool {
	return strings.HasPrefix(path, filepath.Dir(denialsPath)+"/") ||
		r.provider.options.Image == "" && r.policy.Decide(path).Access == profiles.Read
}

// serve begins to decide on what comes.
func (r *running) serve(ctx context.Context) (*gateway, error) {
	g := &gateway{proxies: map[netip.AddrPort]*egress.Streams{}, names: egress.NewStreams(netip.AddrPortFrom(inside.Names.Addr(), 0))}
	if file, err := os.OpenFile(filepath.Join(r.plan.dir, denialsName), os.O_WRONLY|os.O_APPEND, 0); err == nil {
		g.denials = events.NewLog(r.plan.label, events.Denials(file))
		g.denials.Start()
	}
	var err error
	if g.service, err = r.egress.Open(providers.Telling(r.observer, g.denials)); err != nil {
		return nil, err
	}
	g.ctx, g.cancel = context.WithCancel(ctx)
	g.service.Begin(netproxy.NewNames(inside.Names, netip.Prefix{}))
	g.service.Captured(g.ctx, g.names)
	var list []net.Listener
	for _, at := range r.egress.Listen {
		g.proxies[at] = egress.NewStreams(at)
		list = append(list, g.proxies[at])
	}
	g.service.Listeners(g.ctx, list)
	g.service.Published(g.ctx, func(port uint16) (net.Conn, error) { return inside.Dial(r.session, port) })
	return g, nil
}

func (g *gateway) close() {
	g.cancel()
	g.service.Close()
	if g.denials != nil {
		_ = g.denials.Close(time.Second)
	}
}

// join hands in a connection of the command's, or its questions for names; it reports whether the
// stream is one of these.
func (g *gateway) join(s *yamux.Stream, kind inside.Kind) bool {
	switch kind {
	case inside.Connection:
		go g.connect(s)
	case inside.Questions:
		g.service.Questions(g.ctx, &questions{Stream: s})
	default:
		return false
	}
	return true
}

// connect hands in a connection, by the address that it is meant for: the proxy's, or that of a name.
func (g *gateway) connect(s *yamux.Stream) {
	to, err := inside.ReadAddress(s)
	c, streams := connection{s, to}, g.proxies[to]
	if inside.Names.Contains(to.Addr()) {
		streams = g.names
	}
	if err != nil || streams == nil {
		_ = c.Close()
		return
	}
	_ = streams.Hand(g.ctx, c)
}

// questions are the packets of the command's name server.
type questions struct {
	*yamux.Stream
	writing sync.Mutex
}

// ReadFrom returns the next question.
func (q *questions) ReadFrom(b []byte) (int, net.Addr, error) {
	from, text, err := inside.ReadPacket(q.Stream)
	if err != nil {
		return 0, nil, net.ErrClosed // the stream is over, and with it the command
	}
	return copy(b, text), net.UDPAddrFromAddrPort(from), nil
}

// Close ends it for whoever reads here.
func (q *questions) Close() error {
	_ = q.SetReadDeadline(time.Now())
	return q.Stream.Close()
}

// WriteTo answers it.
func (q *questions) WriteTo(b []byte, to net.Addr) (int, error) {
	q.writing.Lock()
	defer q.writing.Unlock()
	return len(b), inside.WritePacket(q.Stream, to.(*net.UDPAddr).AddrPort(), b)
}

// connection is one of the command's, as a stream.
type connection struct {
	*yamux.Stream
	to netip.AddrPort
}

// LocalAddr is where the command connected to.
func (c connection) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to) }

// CloseWrite ends the direction to the command; the other goes on.
func (c connection) CloseWrite() error { return c.Stream.Close() }

// Close ends both: what still comes is not read, and pid 1 is told of no more than
// that nothing comes from here.
func (c connection) Close() error {
	err := c.Stream.Close()
	_ = c.SetReadDeadline(time.Now())
	go func() { // a stream is forgotten when both of its ends are closed
		_ = c.SetReadDeadline(time.Time{})
		_, _ = io.Copy(io.Discard, c.Stream)
	}()
	return err
}
