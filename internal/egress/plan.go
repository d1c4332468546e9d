// Package egress is the way out of a sandbox, and in through its published ports: which
// hosts the policy allows, by which listeners programs come, what they are told in their
// environment, and what they trust. It asks nobody which provider it serves.
//
// The promise: [New] changes nothing on this machine but what clients, commands for secrets
// and the key of placeholders leave, and its [Plan] is the same for every provider that says
// the same of its sandbox. A [Service] then serves the listeners and connections that a
// provider gives it, wherever they come from, and each is decided by the plan's rules alone.
package egress

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/clients"
	"github.com/pccrun/pccrun/internal/outgoing"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
)

// maxListeners bounds the ports that are served in a sandbox.
const maxListeners = 64

// MaxInward is how many connections to published ports there can be at once.
const MaxInward = 48

// proxyPort is where the proxy listens on the sandbox's loopback, where the provider has no
// other.
const proxyPort = 3128

// Host is what the way out takes from this machine.
type Host struct {
	Environ  []string
	Programs *programs.Finder // of the user; nil for one who has no home here
	StateDir string           // where pccrun keeps what package managers answered, and the key of placeholders; "" for nowhere
	Secrets  *Secrets         // what is injected from files and commands; nil reads none, for a run that is only looked at

	Budget *spending.Budget // what the requests to model APIs count against; nil: nothing is counted

	Certificates []string // files of certificate authorities that git's configuration names

	// Ask asks the user about a host that no rule speaks of; nil asks nobody.
	Ask func(ctx context.Context, host string, port uint16) netproxy.Permission
}

// Getenv returns a variable of the host's environment.
func (h *Host) Getenv(name string) string { return getenv(h.Environ, name) }

func (h *Host) finder() *programs.Finder {
	if h.Programs == nil {
		return &programs.Finder{Environ: h.Environ}
	}
	return h.Programs
}

func getenv(env []string, name string) string { return (&profiles.Host{Environ: env}).Getenv(name) }

// A Sandbox is what a provider says of the place that the command runs in.
type Sandbox struct {
	Hostname string   // what uname(2) says there
	Names    []string // of its loopback, beside localhost
	IPv6     bool     // its loopback has ::1
	Proxy    uint16   // the port of its loopback where the proxy listens; 0 for 3128
	Token    string   // what a client of the proxy has to give, where others than the command reach that port; "" else
	Learn    bool     // there is a network whatever the policy allows: what is tried is to be learned
	Trust    string   // the directory of what is trusted, where nothing can be mounted; "" for /run/pccrun
	Environ  []string // of the command, before it is told of the way out
}

// A Plan is what the policy makes of the way out.
type Plan struct {
	Rules    *rules.Set       // nil: no network at all
	Listen   []netip.AddrPort // on the sandbox's own loopback: the proxy, then each local port; none without a network
	Environ  []string         // of the command
	Warnings []string

	policy   *profiles.Policy
	sandbox  Sandbox
	denied   *rules.Set // where there is no network at all: what denies names
	sends    *outgoing.Settings
	upstream netproxy.Upstream
	reader   *reader // of HTTP; nil without a network
	ask      func(ctx context.Context, host string, port uint16) netproxy.Permission
}

// New plans the way out: nothing, or the proxy on the sandbox's loopback.
func New(policy *profiles.Policy, host Host, sandbox Sandbox) (*Plan, error) {
	n := &policy.Network
	if sandbox.Proxy == 0 {
		sandbox.Proxy = proxyPort
	}
	p := &Plan{policy: policy, sandbox: sandbox, ask: host.Ask, Environ: slices.Clone(sandbox.Environ)}
	if len(n.Allow)+len(n.Local) == 0 && host.Ask == nil && !sandbox.Learn {
		p.warnOfEndpoints(&host, nil)
		p.Environ = netproxy.AddEnvironWithout(p.Environ)
		return p, p.deny()
	}
	host.Programs = host.finder().For(policy.Changes, func(text string) { p.Warnings = append(p.Warnings, text) })
	var err error
	if p.sends, err = outgoing.Read(host.Programs, host.Programs.Note); err != nil {
		return nil, err
	}
	asker := clients.Asker{Programs: host.Programs, Workspace: policy.Workspace, StateDir: host.StateDir, Sends: func() []string {
		p.sends.Trust()
		return p.sends.Lines
	}}
	if p.Rules, err = n.Rules(asker.Expand); err != nil {
		return nil, err
	}
	for _, entry := range asker.Environ { // else it would go to the registry that it comes with, and tell that what is asked for
		name, _, _ := strings.Cut(entry, "=")
		said := slices.ContainsFunc(policy.Environment.Scrub, func(r profiles.EnvRule) bool { return r.Matches(name) })
		if !said && policy.DecideEnv(name).Action != profiles.EnvSetTo && getenv(p.Environ, name) == "" {
			p.Environ = append(p.Environ, entry)
		}
	}
	if err := p.goBy(&host); err != nil {
		return nil, err
	}
	p.warnOfEndpoints(&host, p.Rules)
	if err := p.listen(); err != nil {
		return nil, err
	}
	p.Environ = netproxy.AddEnviron(p.Environ, p.proxyURL(), p.sandbox.Names...)
	return p, p.inspects(&host)
}

// deny plans a run without any network, which may have a name server all the same: it knows
// no name, and who looks one up is told of, with what would allow it.
func (p *Plan) deny() (err error) {
	// No client is asked what its group stands for: that takes longer than a launch.
	p.denied, err = p.policy.Network.Rules(func(group rules.Rule) (list []rules.Rule, err error) {
		if group.Group() == "github" {
			list = append(list, group)
		}
		return list, nil
	})
	return err
}

// goBy plans to go by the proxy that the user's file names, if it names one.
func (p *Plan) goBy(host *Host) (err error) {
	if p.upstream, err = netproxy.ParseUpstream(p.sends.HTTPProxy, p.sends.HTTPSProxy, p.sends.NoProxy); err != nil {
		return fmt.Errorf("~/"+outgoing.File+": %w", err)
	}
	var ports []string // of this machine's loopback that they may have
	for _, l := range p.policy.Network.Local {
		ports = append(ports, strings.TrimPrefix(l.Text, "localhost:"))
	}
	if err := p.upstream.Restrict(func(port string) bool { return slices.Contains(ports, port) }); err != nil {
		return err
	}
	for _, addr := range p.upstream.Addresses() {
		p.Warnings = append(p.Warnings, "connections go through the proxy "+addr+" of ~/"+outgoing.File)
	}
	if host.Getenv("ALL_PROXY")+host.Getenv("all_proxy") != "" && len(p.upstream.Addresses()) == 0 {
		p.Warnings = append(p.Warnings,
			"ALL_PROXY is ignored and connections are direct: HTTPS_PROXY and http_proxy in ~/"+outgoing.File+" name an HTTP proxy")
	}
	return nil
}

// listen plans the ports that are served on the sandbox's own loopback.
func (p *Plan) listen() error {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	p.Listen = []netip.AddrPort{netip.AddrPortFrom(loopback, p.sandbox.Proxy)}
	for _, local := range p.policy.Network.Local {
		rule, err := rules.ParseLocal(local.Text)
		if err != nil {
			return err
		}
		port := rule.LocalPort()
		if p.taken(port) && !strings.HasPrefix(local.Text, "localhost:") {
			continue
		}
		p.Listen = append(p.Listen, netip.AddrPortFrom(loopback, port))
		if p.sandbox.IPv6 {
			p.Listen = append(p.Listen, netip.AddrPortFrom(netip.IPv6Loopback(), port))
		}
		if len(p.Listen) > maxListeners {
			return &profiles.Error{
				Origin: local.Origin,
				Cause:  fmt.Sprintf("more than %d ports of the host's loopback at the loopback inside", maxListeners),
				Hint:   "name only the ports that are used, or use --allow host:PORT and host.pccrun.internal",
			}
		}
	}
	return nil
}

// taken reports whether a port of the loopback inside is another's: the proxy's, the name server's, or that of a
// server of the command's which the host may reach.
func (p *Plan) taken(port uint16) bool {
	return port == p.sandbox.Proxy || port == 53 || slices.ContainsFunc(p.policy.Network.Publish, func(r profiles.NetRule) bool {
		_, inside, err := profiles.PublishedPorts(r.Text)
		return err == nil && inside == port
	})
}

func (p *Plan) proxyURL() string {
	at := "127.0.0.1:" + strconv.Itoa(int(p.sandbox.Proxy))
	if p.sandbox.Token != "" {
		at = netproxy.TokenUser + ":" + p.sandbox.Token + "@" + at
	}
	return "http://" + at
}

// Uncaptured returns the environment of a command that reaches nothing but by the proxy,
// since connections cannot be captured.
func (p *Plan) Uncaptured(env []string) []string {
	return netproxy.AddUncaptured(env, p.proxyURL())
}

// Injects reports whether what the policy injects goes anywhere, and says where it does
// not why, and what mends it.
func (p *Plan) Injects() (ok bool, cause, hint string) {
	if len(p.policy.Network.Inject) == 0 || p.Inspects() {
		return true, "", ""
	}
	cause, hint = unreachable(&p.policy.Network)
	return false, cause, hint
}

// without returns env less a variable.
func without(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, name+"=") })
}
