// Package inspect is the egress process: it reads what the clients of a sandbox say in HTTP.
// It serves the proxy's clients (CONNECT, and http:// requests one by one), and the connections
// to hosts that rules for requests or secrets speak of: there it ends the client's TLS with a
// certificate of its own and begins another toward the host.
//
// It decides nothing: for each request it asks a [wire.Launcher], who dials too. It promises
// that a request goes nowhere but over a connection that was dialled for it, to the host that
// was decided on, whatever its Host field, :authority or target says; that a secret is put in
// only where the connection, the Host field and the secret's own hosts agree,
// and only into TLS whose certificate was checked; and that the secret does not
// come back. What it does not understand it refuses.
//
// [goproxy] carries the requests, which have their destination by then: it makes no decision
// and dials nothing by itself. On Linux all of this runs in a process of its own, which [Main]
// is, so that the launcher links none of it; elsewhere in the launcher's.
package inspect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/meter"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/netproxy/secrets"
)

// Config is what an [Inspector] needs.
type Config struct {
	Secrets []Secret
	Roots   *x509.CertPool // what hosts are checked against
	Prices  *meter.Table   // by which answers are counted; nil counts none

	// Alive says whether requests may pass at all; nil is always.
	Alive func() bool
}

// A Secret is put into requests to its hosts in the place of its placeholder.
type Secret struct {
	Placeholder string
	Value       string
	Name        string     // for who reads a refusal
	Hosts       *rules.Set // the connections that it goes out on, and with which requests
	Caseless    bool       // the paths of Hosts are in lower case, and its hosts read any as that
	Field       string     // in which alone it goes out, since of others a host may keep or show what they hold; "" for any, and the query

	back []secrets.Pair // what takes its place in what comes back
}

// The time and room that a client has.
const (
	headTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	maxHead     = 64 << 10
	maxIdle     = 256 // connections to hosts that wait for another request

	// The clients are hostile, and no limit of theirs counts what is held here: in
	// all as many requests as this, each with no more of its content than that.
	maxRequests  = 1024
	maxStreams   = 100       // of them on one connection
	frameSize    = 16 << 10  // of HTTP/2, which is read as a whole
	clientBuffer = 512 << 10 // what one client has sent and its hosts have not taken
	hostBuffer   = 512 << 10 // what a host has sent to one request and the client has not taken
	maxAnswer    = 256 << 10 // the head of an answer
)

// An Inspector serves the connections of one session.
type Inspector struct {
	cfg    Config
	ca     *authority
	server *http.Server
	proxy  *goproxy.ProxyHttpServer
	either *http.Transport // speaks HTTP/2 to hosts that offer it
	plain  *http.Transport // speaks HTTP/1.1 to hosts, whatever they offer
	single *http.Transport // sends one request over the connection that its answer came with
	conns  chan net.Conn
	closed chan struct{}

	requests atomic.Int64 // that are being served
	billed   sync.WaitGroup
}

// A target is a client's connection, and what it was made for.
type target struct {
	launcher wire.Launcher
	verdict  rules.Verdict // of the host; of no host where each request names its own
	number   atomic.Uint64 // of the last question
	conn     *counted
}

// own reports whether each request names its own host.
func (t *target) own() bool { return t.verdict.Host == "" }

type targetKey struct{}

// New makes an inspector with an authority of its own. It serves until Close.
func New(cfg Config) (*Inspector, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	cfg.Secrets = slices.Clone(cfg.Secrets)
	for k := range cfg.Secrets {
		s := &cfg.Secrets[k]
		s.back = secrets.Spellings(s.Value, s.Placeholder)
	}
	i := &Inspector{cfg: cfg, ca: ca, conns: make(chan net.Conn), closed: make(chan struct{})}
	i.either, i.plain, i.single = i.transport("h2", "http/1.1"), i.transport("http/1.1"), i.oneRequest()
	i.proxy = i.newProxy()
	i.server = &http.Server{
		Handler:           http.HandlerFunc(i.serve),
		ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHead, // net/http reads some more: see headSize
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: frameSize,
			MaxReceiveBufferPerConnection: clientBuffer, MaxReceiveBufferPerStream: clientBuffer / 4,
		},
		DisableGeneralOptionsHandler: true, // OPTIONS * is a request as any
		ErrorLog:                     log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, targetKey{}, targetOf(c))
		},
	}
	go i.server.Serve((*listener)(i))
	return i, nil
}

// Authority returns the certificate, in PEM, that clients have to trust.
func (i *Inspector) Authority() []byte { return i.ca.pem() }

// Close ends all connections.
func (i *Inspector) Close() {
	close(i.closed)
	i.server.Close()
	i.either.CloseIdleConnections()
	i.plain.CloseIdleConnections()
}

// Serve takes a client's connection over, to its end, which it reports. Closing conn must
// end it for whoever reads it here, and for nobody else.
func (i *Inspector) Serve(conn net.Conn, b wire.Begin, launcher wire.Launcher) {
	c := &counted{Conn: conn, early: b.Early, launcher: launcher}
	t := &target{launcher: launcher, conn: c}
	if b.To != nil {
		t.verdict = *b.To
	}
	i.accept(t)
}

// accept has the server serve a connection: by TLS, if the client begins with it and there is
// one host.
func (i *Inspector) accept(t *target) {
	c := t.conn
	var served net.Conn = &targeted{Conn: c, target: t}
	if !t.own() {
		c.SetReadDeadline(time.Now().Add(headTimeout))
		first, err := c.first()
		if err != nil {
			c.Close()
			return
		}
		c.SetReadDeadline(time.Time{})
		if first == recordHandshake {
			served = tls.Server(served, i.tlsConfig(t))
		}
	}
	select {
	case i.conns <- served:
	case <-i.closed:
		c.Close()
	}
}

// recordHandshake is the first byte of a TLS connection.
const recordHandshake = 22

// unrecognizedName is a fatal alert, as RFC 6066 has it.
const unrecognizedName = "\x15\x03\x01\x00\x02\x02\x70"

// tlsConfig is for one connection: the name that its client asks for has to be
// the host's. An encrypted hello is not for us: the outer name counts.
func (i *Inspector) tlsConfig(t *target) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
			if name == t.verdict.Host || name == "" {
				return nil, nil
			}
			v := t.verdict
			v.Action, v.Reason, v.Detail = rules.Deny, rules.BadMatch, "TLS asks for "+strconv.Quote(name[:min(len(name), 255)])
			t.launcher.Report(wire.Report{Refused: &v})
			t.conn.alert.Store(true)
			return nil, errors.New("not the host of the connection")
		},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.ca.certificate(t.verdict.Host) },
	}
}

// targetOf returns what was noted of a connection that the server accepted.
func targetOf(c net.Conn) *target {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return c.(*targeted).target
}

// A targeted connection knows what it was made for.
type targeted struct {
	net.Conn
	target *target
}

// A counted connection begins with what was read of it before, and counts.
type counted struct {
	net.Conn
	early    []byte
	up, down atomic.Int64
	alert    atomic.Bool // what is written next is the alert of a wrong name
	once     sync.Once
	launcher wire.Launcher
}

// first returns the first byte, which stays to be read.
func (c *counted) first() (byte, error) {
	if len(c.early) == 0 {
		b := make([]byte, 1)
		if _, err := io.ReadFull(c.Conn, b); err != nil {
			return 0, err
		}
		c.early = b
	}
	return c.early[0], nil
}

func (c *counted) Read(b []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(b, c.early)
		c.early = c.early[n:]
		c.up.Add(int64(n))
		return n, nil
	}
	n, err := c.Conn.Read(b)
	c.up.Add(int64(n))
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	if c.alert.Load() {
		_, err := io.WriteString(c.Conn, unrecognizedName)
		return len(b), err
	}
	c.down.Add(int64(len(b))) // before the client has it: its answer may be the end
	n, err := c.Conn.Write(b)
	c.down.Add(int64(n - len(b)))
	return n, err
}

func (c *counted) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.launcher.Report(wire.Report{Closed: true, Up: c.up.Load(), Down: c.down.Load()}) })
	return err
}

// leave gives the connection back to the launcher, for a tunnel.
func (c *counted) leave(early []byte) {
	c.once.Do(func() {
		c.Conn.Close()
		c.launcher.Report(wire.Report{Tunnel: true, Early: early})
	})
}

// A listener hands connections to the server that were accepted elsewhere.
type listener Inspector

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { return nil }
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "inspect", Net: "unix"} }

// replacements returns the secrets that go out with a request to v's host, and what takes the place of what on
// the way back; whether some are bound to some requests to that host, and of these the ones that are withheld
// from this one. None that is bound goes with a request that a field may make another of.
func (i *Inspector) replacements(v rules.Verdict, asked rules.Request, rewritten bool) (out []Secret, back []secrets.Pair, bound bool, withheld []Secret) {
	for _, s := range i.cfg.Secrets {
		host, path := s.Hosts.Decide(v.Host, v.Port).Action, asked
		if s.Caseless {
			path.Path = strings.ToLower(path.Path)
		}
		if host == rules.Deny {
			continue
		}
		back = append(back, s.back...)
		if host == rules.Inspect {
			bound = true
			if rewritten || s.Hosts.DecideRequest(v.Host, v.Port, path).Action != rules.Allow {
				withheld = append(withheld, s)
				continue
			}
		}
		out = append(out, s)
	}
	return out, back, bound, withheld
}
