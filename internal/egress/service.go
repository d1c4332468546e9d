package egress

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"strconv"

	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
)

// A Service serves a plan: whoever has a listener or a connection of the sandbox hands it in.
type Service struct {
	Hint func(client net.Addr, v rules.Verdict) string // as in [netproxy.Config]; set before Begin

	plan      *Plan
	decided   func(netproxy.Event)
	proxy     *netproxy.Proxy // nil before Begin
	inward    *netproxy.Proxy // serves published ports
	published []published
}

// A published port is one inside that the host reaches at its own loopback.
type published struct {
	net.Listener
	port uint16
}

// Open opens the host's ports for those that are published. It comes before the command, so
// that one that is taken is no surprise later. decided hears of each decision, from many
// goroutines.
func (p *Plan) Open(decided func(netproxy.Event)) (*Service, error) {
	s := &Service{plan: p, decided: decided}
	for _, port := range p.policy.Network.Publish {
		if err := s.publish(port.Text, port.Origin); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *Service) publish(text string, origin profiles.Origin) error {
	at, inside, err := profiles.PublishedPorts(text)
	if err != nil {
		return &profiles.Error{Origin: origin, Cause: err.Error()}
	}
	for i, address := range [...]string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(int(at))))
		if err != nil && i == 0 {
			hint := "--publish FREE:" + strconv.Itoa(int(inside)) + " uses a free port of this machine"
			if errors.Is(err, fs.ErrPermission) {
				hint = "publish a port from 1024 on: lower ports need root, and pccrun has dropped root " +
					"(net.ipv4.ip_unprivileged_port_start)"
			}
			return &profiles.Error{Origin: origin, Cause: "publish: " + err.Error(), Hint: hint}
		}
		if err == nil {
			s.published = append(s.published, published{l, inside})
		}
	}
	return nil
}

// Begin makes what decides, of the plan's rules, or of none where there is no network: then
// it only tells which names are looked up. names is where they have their addresses inside,
// nil where no name has one.
func (s *Service) Begin(names *netproxy.Names) {
	p := s.plan
	cfg := netproxy.Config{Rules: p.denied, Hostname: p.sandbox.Hostname, Token: p.sandbox.Token, Hint: s.Hint, Event: s.decided}
	if p.Rules != nil {
		cfg.Rules, cfg.Names, cfg.Upstream, cfg.Ask, cfg.Learn = p.Rules, names, p.upstream, p.ask, p.sandbox.Learn
	}
	if p.reader != nil {
		cfg.HTTP, cfg.Inspects, cfg.Spending = p.reader.take, p.Inspects(), p.reader.spending
		if cfg.Spending != nil {
			cfg.Spending.Event = s.decided
		}
	}
	s.proxy = netproxy.New(cfg)
}

// Process is the number of the process that serves HTTP, 0 where none was started.
func (s *Service) Process() int {
	if s.plan.reader == nil {
		return 0
	}
	return s.plan.reader.number()
}

// Listeners serves the plan's own, in their order.
func (s *Service) Listeners(ctx context.Context, list []net.Listener) {
	for i, l := range list {
		if i == 0 {
			go s.proxy.Serve(ctx, l)
		} else {
			go s.proxy.ServeLocal(ctx, l, s.plan.Listen[i].Port())
		}
	}
}

// Captured serves connections that were meant for a fake address, or for one that a rule
// names: their own end has it.
func (s *Service) Captured(ctx context.Context, l net.Listener) { go s.proxy.ServeCaptured(ctx, l) }

// Questions answers what names are looked up.
func (s *Service) Questions(ctx context.Context, c net.PacketConn) { go s.proxy.ServeQuestions(ctx, c) }

// Refused tells of a packet that the kernel refused.
func (s *Service) Refused(protocol string, to netip.AddrPort) { s.proxy.Refused(protocol, to) }

// Published carries connections from the host's ports to where dial leads.
func (s *Service) Published(ctx context.Context, dial func(port uint16) (net.Conn, error)) {
	if len(s.published) == 0 {
		return
	}
	s.inward = netproxy.New(netproxy.Config{Event: s.decided})
	for _, p := range s.published {
		go s.inward.ServePublished(ctx, p, p.port, func() (net.Conn, error) { return dial(p.port) })
	}
}

// Close ends every connection, the host's ports, and the process that reads requests, which
// has a moment to report what it had open.
func (s *Service) Close() {
	for _, p := range [...]*netproxy.Proxy{s.proxy, s.inward} {
		if p != nil {
			p.Close()
		}
	}
	for _, p := range s.published {
		p.Close()
	}
	s.plan.Abandon()
}
