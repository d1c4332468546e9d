//go:build unix

package docker

import (
	"context"
	"encoding/binary"
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

// way is the way out of a container.
type way struct {
	service *egress.Service
	names   *egress.Streams // connections to the addresses of names
	streams map[netip.AddrPort]*egress.Streams
	denials *events.Log // nil: the command is not told
	full    sync.Once   // said that there are too many connections
	ctx     context.Context
	cancel  context.CancelFunc
}

// leave plans the way out, and puts what belongs to it into the command's environment
// and into what the engine binds. What it serves is served once pid 1 is ready.
func (r *running) leave() (err error) {
	if !r.ruled() {
		r.inside.Env = inside.Texts(r.environ)
		return nil
	}
	host := egress.Host{
		Environ:  r.provider.host.Environ,
		Programs: r.provider.host.Programs,
		StateDir: r.provider.host.StateDir,
		Secrets:  new(egress.Secrets),
	}
	if r.ask {
		host.Ask = r.observer.Ask
	}
	r.egress, err = egress.New(r.policy, host, egress.Sandbox{Hostname: namespaces.Hostname, Environ: r.environ})
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
		if !r.shows(f.Path) {
			continue
		}
		r.own(file{Name: fmt.Sprintf("trust-%d", i), Text: f.Text, Mode: 0o444}, f.Path)
	}
	env := r.egress.Trusting(r.egress.Environ)
	r.inside.Capture, _ = r.egress.Rules.Ports(maxCaptured)
	r.inside.Env = inside.Texts(env)
	for _, at := range r.egress.Listen {
		r.inside.Listen = append(r.inside.Listen, at.Port())
	}
	if len(r.inside.Listen) > 0 && r.handsOver() { // gVisor lets nobody connect to a socket of the host
		r.need()
		r.inside.Socket = doorFile
	}
	return nil
}

// shows reports whether a file of the way out has a place: one of the system's own has
// none where an image is another system.
func (r *plan) shows(path string) bool {
	return strings.HasPrefix(path, filepath.Dir(denialsPath)+"/") ||
		r.provider.options.Image == "" && r.policy.Decide(path).Access == profiles.Read
}

// serve begins to decide on what comes.
func (r *running) serve(ctx context.Context) (*way, error) {
	w := &way{streams: map[netip.AddrPort]*egress.Streams{}}
	if file, err := os.OpenFile(filepath.Join(r.dir, denialsName), os.O_WRONLY|os.O_APPEND, 0); err == nil {
		w.denials = events.NewLog(r.label, events.Denials(file))
		w.denials.Start()
	}
	var err error
	if w.service, err = r.egress.Open(func(e netproxy.Event) { r.decided(w, e) }); err != nil {
		return nil, err
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.service.Begin(netproxy.NewNames(inside.Names, netip.Prefix{}))
	w.ctx = ctx
	if r.inside.Socket != "" {
		if err := r.direct(w); err != nil {
			w.close()
			return nil, err
		}
		return w, nil
	}
	w.names = egress.NewStreams(netip.AddrPortFrom(inside.Names.Addr(), 0))
	w.service.Captured(ctx, w.names)
	var list []net.Listener
	for _, at := range r.egress.Listen {
		w.streams[at] = egress.NewStreams(at)
		list = append(list, w.streams[at])
	}
	w.service.Listeners(ctx, list)
	return w, nil
}

// take hands a connection in, by the port that it came to.
func (w *way) take(ctx context.Context, s *yamux.Stream) {
	var port [2]byte
	_, err := io.ReadFull(s, port[:])
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), binary.BigEndian.Uint16(port[:]))
	if streams := w.streams[at]; err == nil && streams != nil {
		_ = streams.Hand(ctx, connection{s})
		return
	}
	_ = connection{s}.Close()
}

func (w *way) close() {
	w.cancel()
	w.service.Close()
	if w.denials != nil {
		_ = w.denials.Close(time.Second)
	}
}

// takeCaptured hands in a connection to the address of a name.
func (w *way) takeCaptured(s *yamux.Stream) {
	var to [6]byte
	if _, err := io.ReadFull(s, to[:]); err != nil {
		_ = connection{s}.Close()
		return
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte(to[:4])), binary.BigEndian.Uint16(to[4:]))
	_ = w.names.Hand(w.ctx, captured{connection{s}, at})
}

// captured is a connection that says whom it was meant for.
type captured struct {
	connection
	to netip.AddrPort
}

// LocalAddr is where the command connected to.
func (c captured) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to) }

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
type connection struct{ *yamux.Stream }

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

// decided turns what the proxy did into events.
func (r *running) decided(w *way, event netproxy.Event) {
	if event.Kind == netproxy.Full {
		w.full.Do(func() {
			r.observer.Warning(events.Warning{Text: "too many connections at once: further ones are reset"})
		})
		return
	}
	providers.Tell(refusals{r.observer, w.denials}, event)
}

// refusals are an observer before which the command is told of what was denied.
type refusals struct {
	providers.Observer
	denials *events.Log // nil for none
}

func (o refusals) Decision(d events.NetDecision) {
	if !d.Allowed && o.denials != nil {
		o.denials.Emit(d)
	}
	o.Observer.Decision(d)
}
