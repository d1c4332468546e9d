package native

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/namespaces/network"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// maxCaptured is how many ports are captured where the kernel has no packet
// rules.
const maxCaptured = 16

// names is where the names of the sandbox have their addresses.
func (s *Started) names() *netproxy.Names {
	if s.box.Net == nil || s.run.Plan.Network.Apart {
		return nil
	}
	var six netip.Prefix
	if s.box.Net.IPv6 {
		six = s.run.Plan.Network.Range.Names6()
	}
	return netproxy.NewNames(network.Names4, six)
}

// serve serves the sandbox's network, or reports which names the command looks up where
// there is none. Without it nobody would say why there is no way out.
func (s *Started) serve(ctx context.Context) error {
	if s.run.Egress.Rules == nil && !s.run.Plan.Questions {
		return nil
	}
	if err := s.box.Adopt(); err != nil {
		return err
	}
	s.way.Hint = s.hint
	s.way.Begin(s.names())
	if s.run.Egress.Rules == nil {
		s.way.Questions(ctx, s.box.Questions)
	} else {
		s.way.Listeners(ctx, s.box.Listeners)
	}
	s.serveNetwork(ctx)
	return nil
}

func (s *Started) refused(r network.Refusal) {
	if !r.Closed {
		s.way.Refused(r.Protocol, r.To)
	} else if port := r.To.Port(); procfs.Listens(s.box.Pid, port) { // at ::1, as node does: who tries both addresses got there
		s.run.closed = slices.DeleteFunc(s.run.closed, func(p uint16) bool { return p == port })
	} else if len(s.run.closed) < maxClosed && !slices.Contains(s.run.closed, port) {
		s.run.closed = append(s.run.closed, port)
	}
}

// maxClosed bounds the ports that nobody listened at.
const maxClosed = 64

// serveNetwork serves what programs do without knowing of the proxy, and takes what the kernel
// reports of refused packets.
func (s *Started) serveNetwork(ctx context.Context) {
	if s.box.Net == nil {
		return
	}
	if s.run.Egress.Rules != nil {
		for _, l := range s.box.Net.Captured {
			s.way.Captured(ctx, l)
		}
		s.way.Questions(ctx, s.box.Net.Questions)
		go s.box.Net.KeepAlive(ctx)
	}
	s.refusals = make(chan struct{})
	go func() {
		defer close(s.refusals)
		s.box.Net.Refused(ctx, s.refused)
	}()
}

// byProxyAlone says what a run is that has no other way out.
const byProxyAlone = "--allow-missing " + string(profiles.NetTransparent) + " runs with the proxy only, for programs that honour HTTPS_PROXY"

// weaker says how the network of a sandbox is less than was planned, if it is.
func (r *Run) weaker(box *namespaces.Sandbox) (a profiles.Answer, is bool) {
	a.Guarantee = profiles.NetTransparent
	switch {
	case r.Plan.Network == nil, r.Plan.Network.Apart:
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

// connected judges what became of the way out, before the command runs. It returns the answers with what this start
// has made of them, or what the policy requires and could not be had. Where nothing is captured the command gets an
// environment that leads to the proxy, in place of the plan's.
func (r *Run) connected(box *namespaces.Sandbox) (answers []profiles.Answer, environ []string, err error) {
	a, is := r.weaker(box)
	if !is {
		return r.Answers, nil, nil
	}
	answers = slices.Clone(r.Answers)
	i := slices.IndexFunc(answers, func(planned profiles.Answer) bool { return planned.Guarantee == a.Guarantee })
	if answers[i].State != profiles.Missing { // by --without, say
		answers[i] = a
	}
	for _, q := range r.Policy.Requirements {
		if q.Guarantee == a.Guarantee && q.Required && (a.State == profiles.Missing || q.Strong) && !providers.GivenUp(r.Policy, q.Guarantee, answers[i]) {
			return nil, nil, &providers.MissingError{Answer: a, Origin: q.Origin}
		}
	}
	if a.State == profiles.Missing {
		environ = r.Egress.Uncaptured(r.Plan.Command.Env)
	}
	return answers, environ, nil
}

// leave plans what this machine does for the way out.
func (p *Planned) leave(w *namespaces.With, f *facts) {
	if len(p.Policy.Network.Publish) > 0 {
		w.Dial = egress.MaxInward
	}
	if p.ShowsDenials() {
		w.Told = filepath.Dir(DenialsPath)
	}
	if f.way.Rules == nil {
		if w.Questions = !slices.Contains(p.Policy.Without, profiles.LayerNetns); w.Questions {
			w.Network = &network.Plan{Apart: true}
		}
		return
	}
	w.Listen = f.way.Listen
	w.Network = &network.Plan{Range: f.routes, Allowed: f.way.Rules.Prefixes()} // for programs that know nothing of the proxy
	w.Network.Capture, _ = f.way.Rules.Ports(maxCaptured)
	for _, at := range w.Listen {
		w.Network.Ports = append(w.Network.Ports, at.Port())
	}
}

// bind starts the process that reads requests, if the policy needs one, has what it issues
// trusted inside, and gives the plan what else is this run's own. program returns the whole of
// this program, open; upper is the directory for what overlays change, and stateDir that of pccrun's runs.
func (r *Run) bind(program func() (*os.File, error), upper, stateDir string) error {
	uid, gid := 0, 0
	if id := r.Plan.Identity; id.Root {
		uid, gid = id.HostUID, id.HostGID
	}
	files, err := r.Egress.StartInspector(program, uid, gid)
	if err != nil {
		return err
	}
	b := namespaces.Bound{Upper: upper, Env: r.Egress.Trusting(r.Plan.Command.Env), Staging: r.stage(stateDir)}
	for _, f := range files {
		b.Texts = append(b.Texts, namespaces.TextFile(f))
	}
	r.Plan = r.Plan.Bind(b)
	return nil
}
