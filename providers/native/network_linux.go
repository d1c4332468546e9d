package native

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"

	"github.com/pccrun/pccrun/namespaces/network"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
)

// maxCaptured is how many ports are captured where the kernel has no packet
// rules.
const maxCaptured = 16

// capture plans the way out for programs that know nothing of the proxy.
func (r *Run) capture() {
	plan := &network.Plan{Range: network.NewRange(rand.Uint64()), Allowed: r.Rules.Prefixes()}
	plan.Capture, _ = r.Rules.Ports(maxCaptured)
	for _, at := range r.Plan.Listen {
		plan.Ports = append(plan.Ports, at.Port())
	}
	r.Plan.Network = plan
}

// names is where the names of the sandbox have their addresses.
func (s *Started) names() *netproxy.Names {
	if s.Net == nil {
		return nil
	}
	var six netip.Prefix
	if s.Net.IPv6 {
		six = s.run.Plan.Network.Range.Names6()
	}
	return netproxy.NewNames(network.Names4, six)
}

// serveNetwork serves what programs do without knowing of the proxy.
func (s *Started) serveNetwork(ctx context.Context) {
	if s.Net == nil {
		return
	}
	for _, l := range s.Net.Captured {
		go s.proxy.ServeCaptured(ctx, l)
	}
	go s.proxy.ServeQuestions(ctx, s.Net.Questions)
	go s.Net.KeepAlive(ctx)
	s.refusals = make(chan struct{})
	go func() {
		defer close(s.refusals)
		s.Net.Refused(ctx, func(r network.Refusal) { s.proxy.Refused(r.Protocol, r.To) })
	}()
}

// Weaker says how the network of this run is less than was planned, if it is.
func (s *Started) Weaker() (a profiles.Answer, is bool) {
	a.Guarantee = profiles.NetTransparent
	switch {
	case s.run.Plan.Network == nil:
		return a, false
	case s.Net == nil:
		a.State, a.Cause = profiles.Missing, s.NetError.Error()
	case s.Net.Rules != network.Reported:
		a.State, a.Mechanism, a.Cause = profiles.Weak, s.Net.Rules.String(), s.Net.Cause.Error()
	default:
		return a, false
	}
	return a, true
}

// Resume lets a stopped command go on. The kernel may have taken the launcher
// for stopped as well.
func (s *Started) Resume(foreground bool) {
	if s.Net != nil {
		s.Net.Renew()
	}
	s.Sandbox.Resume(foreground)
}

// A published port is one inside that the host reaches at its own loopback.
type published struct {
	net.Listener
	port uint16
}

// publish opens the host's ports. It comes before the command, so that one
// that is taken is no surprise later.
func (r *Run) publish() error {
	for _, p := range r.Policy.Network.Publish {
		port, err := strconv.ParseUint(p.Text, 10, 16)
		if err != nil {
			return &profiles.Error{Origin: p.Origin, Cause: "publish: want a port"}
		}
		for i, address := range [...]string{"127.0.0.1", "::1"} {
			l, err := net.Listen("tcp", net.JoinHostPort(address, p.Text))
			if err != nil && i == 0 {
				return &profiles.Error{Origin: p.Origin, Cause: "publish: " + err.Error(), Hint: "publish a port that is free on this machine"}
			}
			if err == nil {
				r.published = append(r.published, published{l, uint16(port)})
			}
		}
	}
	return nil
}

// servePublished carries connections from the host's ports inside.
func (s *Started) servePublished(ctx context.Context, decided func(netproxy.Event)) {
	if len(s.run.published) == 0 {
		return
	}
	s.inward = netproxy.New(netproxy.Config{Event: decided})
	for _, p := range s.run.published {
		go s.inward.ServePublished(ctx, p, p.port, func() (net.Conn, error) { return s.Dial(p.port) })
	}
}
