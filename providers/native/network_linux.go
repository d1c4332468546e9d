package native

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/namespaces/network"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
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

// serveAfter is how long a run lasts before its network is served: no program
// that has to be loaded and linked first has connected by then, or else it waits,
// and what is over sooner pays for nothing. That is a third of a millisecond of
// both processors, in which pid 1 and the command would wait.
const serveAfter = 2 * time.Millisecond

// unconnected plans a run without any network, which has a name server all the same:
// it knows no name, and who looks one up is told of, with what would allow it.
func (r *Run) unconnected() (err error) {
	r.Plan.Questions = !slices.Contains(r.Policy.Without, profiles.LayerNetns)
	// No client is asked what its group stands for: that takes longer than a launch.
	r.denied, err = r.Policy.Network.Rules(func(group rules.Rule) (list []rules.Rule, err error) {
		if group.Group() == "github" {
			list = append(list, group)
		}
		return list, nil
	})
	return err
}

// answerSoon begins to tell in a moment which names the command looks up, in a run
// without any network: to none of them there is an address.
func (s *Started) answerSoon(ctx context.Context, decided func(netproxy.Event)) {
	s.soonServe(func() {
		s.proxy = netproxy.New(netproxy.Config{Rules: s.run.denied, Hostname: namespaces.Hostname, Event: decided})
		go s.proxy.ServeQuestions(ctx, s.Questions)
	})
}

// soonServe has what arrives from inside served in a moment.
func (s *Started) soonServe(serve func()) {
	s.serve = sync.OnceFunc(func() {
		if err := s.Adopt(); err != nil {
			select {
			case s.broken <- err:
			default:
			}
			s.Kill() // nobody would say why there is no way out
			return
		}
		serve()
	})
	s.soon = time.AfterFunc(s.run.serveAfter, s.serve)
}

// serveSoon begins to serve the sandbox's network in a moment.
func (s *Started) serveSoon(ctx context.Context, decided func(netproxy.Event)) {
	r := s.run
	cfg := netproxy.Config{Rules: r.Rules, Hostname: namespaces.Hostname, Names: s.names(), Upstream: r.upstream, Ask: r.ask, Event: decided, Learn: r.learn != nil}
	if r.inspection != nil {
		cfg.Inspect = r.inspection.take
	}
	s.proxy = netproxy.New(cfg)
	s.soonServe(func() {
		go s.proxy.Serve(ctx, s.Listeners[0])
		for i, l := range s.Listeners[1:] {
			go s.proxy.ServeLocal(ctx, l, r.Plan.Listen[1+i].Port())
		}
		s.serveNetwork(ctx)
	})
}

// servedBefore wraps what is called when all of the run is dead: what a run that
// was over before it was served was refused is told all the same.
func (s *Started) servedBefore(gone func(*namespaces.Result)) func(*namespaces.Result) {
	return func(r *namespaces.Result) {
		switch {
		case s.serve == nil:
		case !s.soon.Stop():
			s.serve() // is being done, or was: it is over when this returns
		case s.Net != nil:
			s.Net.Untold(s.refused)
		}
		if gone != nil {
			gone(r)
		}
	}
}

func (s *Started) refused(r network.Refusal) { s.proxy.Refused(r.Protocol, r.To) }

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
		s.Net.Refused(ctx, s.refused)
	}()
}

// byProxyAlone says what a run is that has no other way out.
const byProxyAlone = "--allow-missing " + string(profiles.NetTransparent) + " runs with the proxy alone, for programs that know of one"

// weaker says how the network of a sandbox is less than was planned, if it is.
func (r *Run) weaker(box *namespaces.Sandbox) (a profiles.Answer, is bool) {
	a.Guarantee = profiles.NetTransparent
	switch {
	case r.Plan.Network == nil:
		return a, false
	case box.Net == nil:
		a.State, a.Cause, a.Hint = profiles.Missing, box.NetError.Error(), byProxyAlone
	case box.Net.Rules != network.Reported:
		a.State, a.Mechanism, a.Cause = profiles.Weak, box.Net.Rules.String(), box.Net.Cause.Error()
	default:
		return a, false
	}
	return a, true
}

// connected judges what became of the way out, before the command runs: what the
// policy requires of it was not to be had, or the command is told by variables
// what it would have needed none for.
func (r *Run) connected(box *namespaces.Sandbox) error {
	a, is := r.weaker(box)
	if !is {
		return nil
	}
	i := slices.IndexFunc(r.Answers, func(planned profiles.Answer) bool { return planned.Guarantee == a.Guarantee })
	if r.Answers[i].State != profiles.Missing { // by --without, say
		r.Answers[i] = a
	}
	for _, q := range r.Policy.Requirements {
		if q.Guarantee == a.Guarantee && q.Required && (a.State == profiles.Missing || q.Strong) && !providers.GivenUp(r.Policy, q.Guarantee, r.Answers[i]) {
			return &providers.MissingError{Answer: a, Origin: q.Origin}
		}
	}
	if a.State == profiles.Missing {
		box.Environ(netproxy.AddUncaptured(r.Plan.Command.Env, proxyURL))
	}
	return nil
}

// Weaker says how the network of this run is less than was planned, if it is.
func (s *Started) Weaker() (a profiles.Answer, is bool) { return s.run.weaker(s.Sandbox) }

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
		at, inside, err := profiles.PublishedPorts(p.Text)
		if err != nil {
			return &profiles.Error{Origin: p.Origin, Cause: err.Error()}
		}
		for i, address := range [...]string{"127.0.0.1", "::1"} {
			l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(int(at))))
			if err != nil && i == 0 {
				hint := "--publish FREE:" + strconv.Itoa(int(inside)) + " takes a port that is free on this machine"
				if errors.Is(err, unix.EACCES) {
					hint = "publish a port from 1024 on: those below are root's, which pccrun is not by then (net.ipv4.ip_unprivileged_port_start)"
				}
				return &profiles.Error{Origin: p.Origin, Cause: "publish: " + err.Error(), Hint: hint}
			}
			if err == nil {
				r.published = append(r.published, published{l, inside})
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
