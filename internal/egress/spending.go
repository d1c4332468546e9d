package egress

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
)

// nonPublic reports whether there are no hosts of public APIs at any address of a prefix.
func nonPublic(prefix netip.Prefix) bool {
	return slices.ContainsFunc([]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8", "::1/128", "fc00::/7", "fe80::/10"}, func(text string) bool {
		block := netip.MustParsePrefix(text)
		return block.Contains(prefix.Addr()) && block.Bits() <= prefix.Bits()
	})
}

// meters plans that the requests to model APIs are read and counted, where there is a budget. What would let a request go out
// that nobody reads is an error, and so is a run that reaches no API: its budget would count nothing.
func (p *Plan) meters(in *reader, host *Host) error {
	if host.Budget == nil {
		return nil
	}
	refuse := func(cause, hint string) error {
		return &spending.UncountedError{Err: &profiles.Error{Cause: cause, Hint: hint}}
	}
	if host.Ask != nil {
		return refuse("flag --ask allows hosts whose costs nobody counts", "--allow RULE allows a host")
	}
	if p.sandbox.Learn {
		return refuse("learn tries whatever the command tries", "leave --budget out")
	}
	servers := p.servers(host)
	for _, prefix := range p.Rules.Prefixes() {
		if !nonPublic(prefix) && !slices.ContainsFunc(servers, func(e endpoint) bool { return e.host == prefix.Addr().String() && prefix.IsSingleIP() }) {
			return refuse("the rules allow "+prefix.String()+" by address, and nobody knows which hosts those are", "--allow HOST names a host")
		}
	}
	s := &netproxy.Spending{Files: host.Budget.Files}
	for _, server := range servers {
		switch v := p.Rules.Decide(server.host, server.port); {
		case v.Action == rules.Deny:
		case v.Local:
			at := net.JoinHostPort(server.host, strconv.Itoa(int(server.port)))
			return refuse(server.name+" names "+at+", and requests to this machine's loopback are not read", "a name that a rule allows, in place of the loopback")
		default:
			s.Hosts = append(s.Hosts, v.Host)
		}
	}
	if len(s.Hosts) == 0 && !slices.ContainsFunc(p.policy.Network.Allow, func(r profiles.NetRule) bool { return reaches(r.Text) }) {
		return refuse("the rules allow no model API whose answers are counted: nothing would be", "--allow RULE allows one; ANTHROPIC_BASE_URL, OPENAI_BASE_URL and their like name another server of one")
	}
	if list := p.unread(s); len(list) > 0 {
		p.Warnings = append(p.Warnings, "budget: nobody reads requests to "+strings.Join(list, ", ")+
			": a model's there is not counted; a rule with a path, https://HOST/**, has them read")
	}
	p.Rules = p.Rules.WatchNames(func(host string) bool { return s.Meters(host) || spending.Reaches(host) })
	in.spending, in.setup.Meters, in.setup.Prices = s, true, host.Budget.Prices
	return nil
}

// unread returns the hosts that the user's own rules allow, and whose requests pass unread.
func (p *Plan) unread(s *netproxy.Spending) (list []string) {
	for _, r := range p.policy.Network.Allow {
		rule, err := rules.Parse(r.Text)
		known := err != nil || rule.Inspects() || rule.Group() != "" || reaches(r.Text) || slices.Contains(s.Hosts, nameIn(r.Text))
		if !known && !strings.HasPrefix(r.Origin.Source, "built-in ") {
			list = append(list, r.Text)
		}
	}
	return list
}

// nameIn is the host of a rule, as it is written.
func nameIn(rule string) string {
	rule = strings.TrimPrefix(rule, "private ")
	if _, url, is := strings.Cut(rule, "://"); is {
		rule, _, _ = strings.Cut(url, "/")
	}
	name, _, _ := strings.Cut(rule, ":")
	return name
}

// reaches reports whether a rule that allows reaches the host of an API.
func reaches(rule string) bool {
	name := nameIn(rule)
	below := strings.TrimPrefix(strings.TrimPrefix(name, "*"), ".")
	return spending.Metered(name) || below != name && (spending.Metered("any."+below) ||
		slices.ContainsFunc(spending.Hosts(), func(h string) bool { return strings.HasSuffix(h, "."+below) || h == below && name[0] == '.' }))
}

// An endpoint is a server that the agent is sent to in the place of its maker's, by a variable or a file of its own.
type endpoint struct {
	name, host string
	port       uint16
}

// servers returns those that the command is told of.
func (p *Plan) servers(host *Host) (list []endpoint) {
	for _, name := range slices.Sorted(maps.Keys(endpoints)) {
		if at, port, ok := serverOf(name, getenv(p.Environ, name)); ok {
			list = append(list, endpoint{name, at, port})
		}
	}
	for _, s := range homes.Servers(p.policy) {
		if at, port, ok := serverOf("", s.URL); ok {
			list = append(list, endpoint{s.File, at, port})
		}
	}
	return list
}
