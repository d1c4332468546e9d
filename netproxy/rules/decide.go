package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// An Action is what becomes of a connection.
type Action uint8

// The actions. Deny is the zero value.
const (
	Deny    Action = iota
	Allow          // dial an address that [Set.DecideAddr] lets pass
	Inspect        // rules for methods or paths apply: only who reads the requests may connect
)

// String returns the action's name as users and JSON see it.
func (a Action) String() string {
	switch a {
	case Allow:
		return "allow"
	case Inspect:
		return "inspect"
	}
	return "deny"
}

// A Reason says which part of the policy refused.
type Reason string

// The reasons for a refusal.
const (
	ByDefault Reason = "default"          // no rule allows it
	ByRule    Reason = "rule"             // a rule denies it
	BadHost   Reason = "invalid-host"     // not a name or address in its one spelling
	BadAddr   Reason = "resolved-address" // the name is allowed, what it resolved to is not
	BadPath   Reason = "400-path"         // a path that servers read in different ways
	BadMatch  Reason = "421-host-mismatch"
	TooMany   Reason = "too-many-names" // which only rules with wildcards allow
	Withheld  Reason = "secret"         // it has the placeholder of a secret that goes out with other requests only
	Budget    Reason = "budget"         // nobody can count what the request costs, or no more may be spent
)

// A Verdict is the answer about one connection. The zero value denies.
type Verdict struct {
	Action    Action
	Host      string // canonical name or address; as asked for where it is invalid, cut at 255 bytes
	Port      uint16
	Addr      netip.Addr // the address that was asked for or decided on, if any
	Local     bool       // the host's loopback: dial 127.0.0.1, then ::1
	Rule      string     // the text of the rule that decided, "" for none
	Reason    Reason     // of a refusal
	Detail    string     // of a refusal, in words, where the reason does not say it all
	AllowWith string     // the flag that would allow it, "" if none would

	private bool // the rule reaches private addresses
	named   bool // a rule names the host itself
}

// IsLiteral says whether the client asked for an address, not a name.
func (v Verdict) IsLiteral() bool { return v.Addr.IsValid() && v.Host == v.Addr.String() }

// IsNamed says whether a rule that allows names the host itself, and not only what
// lies below another name.
func (v Verdict) IsNamed() bool { return v.named }

// TooMany is the refusal of a name that only a wildcard allows, because there were
// too many of them.
func (v Verdict) TooMany(detail string) Verdict {
	return Verdict{Host: v.Host, Port: v.Port, Reason: TooMany, Detail: detail, AllowWith: "--allow " + target(v.Host, v.Addr, v.Port)}
}

// A Set is an immutable set of rules. A nil Set denies everything.
type Set struct {
	rules   []Rule // those for its hosts in the place of @github
	texts   []string
	watched []*Set                 // what one of them allows is inspected if this set allows it
	counted func(host string) bool // likewise what it says true of; nil for none
}

// New makes a set of rules, whose order means nothing. It expands @github; any
// other group is an error, since only the user's own client knows its hosts. A
// rule for requests that a rule for whole connections makes pointless is an
// error too.
func New(rules ...Rule) (*Set, error) {
	s := new(Set)
	for _, r := range rules {
		switch {
		case r.kind != kindGroup && r.ports == nil: // the zero Rule
			continue
		case r.kind != kindGroup:
			s.rules = append(s.rules, r)
		case r.name != "github":
			return nil, fmt.Errorf("rule %q: the hosts of this group are unknown here; name the host of your client, e.g. --allow HOST", r.text)
		default:
			for _, name := range githubHosts {
				m := Rule{text: r.text, name: name, ports: []portRange{{443, 443}}}
				if r.deny {
					m.deny, m.kind, m.ports = true, kindTree, []portRange{{0, 65535}}
				}
				s.rules = append(s.rules, m)
			}
		}
		s.texts = append(s.texts, r.spelled)
	}
	whole := &Set{rules: s.those(func(r *Rule) bool { return !r.deny && !r.Inspects() })}
	for _, r := range s.Inspected() {
		if r.deny {
			continue
		}
		if c := whole.matching(Verdict{Host: r.example(), Addr: r.prefix.Addr(), Port: r.ports[0].lo}); len(c) > 0 {
			return nil, fmt.Errorf("rule %q: has no effect, because %q allows every request", r.text, c[0].text)
		}
	}
	return s, nil
}

// githubHosts is what git over https, LFS, releases, archives and the API use.
var githubHosts = [...]string{
	"github.com",
	"api.github.com",
	"codeload.github.com",
	"lfs.github.com",
	"uploads.github.com",
	"github-cloud.githubusercontent.com",
	"github-cloud.s3.amazonaws.com",
	"github-releases.githubusercontent.com",
	"media.githubusercontent.com",
	"objects.githubusercontent.com",
	"objects-origin.githubusercontent.com",
	"raw.githubusercontent.com",
	"release-assets.githubusercontent.com",
}

// example returns a name that the rule matches, "" for an address.
func (r Rule) example() string {
	if r.kind == kindBelow {
		return "a." + r.name
	}
	return r.name
}

// Inspected returns the rules that speak of methods or paths. A caller that
// cannot read requests has to refuse a set that has any; [Set.Decide] answers
// Inspect for their hosts, never Allow.
func (s *Set) Inspected() []Rule { return s.those((*Rule).Inspects) }

// allowing returns the rules that allow something.
func (s *Set) allowing() []Rule { return s.those(func(r *Rule) bool { return !r.deny }) }

func (s *Set) those(are func(*Rule) bool) (list []Rule) {
	if s == nil {
		return nil
	}
	for i := range s.rules {
		if are(&s.rules[i]) {
			list = append(list, s.rules[i])
		}
	}
	return list
}

// Texts returns rules for [Parse] that make the same decisions, for another
// process that keeps the policy too.
func (s *Set) Texts() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.texts)
}

// Watch returns the same rules, by which each connection that they and hosts
// allow is to be inspected, whatever its requests: a secret goes there.
func (s *Set) Watch(hosts *Set) *Set {
	watching := *s
	watching.watched = append(slices.Clone(s.watched), hosts)
	return &watching
}

// WatchNames returns the same rules, by which each connection that they allow to a host that is says true of is to be
// inspected: what it costs is counted there.
func (s *Set) WatchNames(is func(host string) bool) *Set {
	watching := *s
	watching.counted = is
	return &watching
}

// Empty says whether nothing at all can be allowed, so that the run needs no
// network.
func (s *Set) Empty() bool { return len(s.allowing()) == 0 }

// anyPort stands for all ports of what rules are looked up for. No connection has it.
const anyPort = 0

// matches reports whether the rule is for the connection that v is about.
func (r *Rule) matches(v Verdict) bool {
	if v.Port != anyPort && !r.hasPort(v.Port) {
		return false
	}
	named := !v.Addr.IsValid() && !v.Local
	is, below := named && v.Host == r.name, named && strings.HasSuffix(v.Host, r.name) && strings.HasSuffix(v.Host[:len(v.Host)-len(r.name)], ".")
	switch r.kind {
	case kindName:
		return is
	case kindBelow:
		return below
	case kindTree:
		return is || below
	case kindAddr:
		return v.Addr.IsValid() && !v.Local && (r.prefix.Contains(v.Addr) || r.prefix.Contains(Inner(v.Addr)))
	case kindHost:
		return v.Local && (v.Host == HostName || r.deny)
	case kindLocalhost:
		return v.Local
	}
	return r.kind == kindAny
}

// matching returns the rules for the connection that v is about.
func (s *Set) matching(v Verdict) []Rule { return s.those(func(r *Rule) bool { return r.matches(v) }) }

// covering returns the rules for addr, and for the address that it leads to.
func (s *Set) covering(addr netip.Addr, port uint16) []Rule {
	v := Verdict{Addr: addr, Port: port}
	return s.those(func(r *Rule) bool { return r.kind == kindAddr && r.matches(v) })
}

// Decide answers for a connection to host, a name or an address without
// brackets, as a client asked for it. It is pure and answers for any input.
func (s *Set) Decide(host string, port uint16) Verdict {
	v := Verdict{Host: host, Port: port, Reason: ByDefault}
	if port == 0 {
		v.Reason, v.Detail = BadHost, "port 0"
		return v
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		v.Addr = a.Unmap()
		v.Host = v.Addr.String()
		if v.Addr.IsLoopback() || v.Addr.IsUnspecified() {
			return s.decideLocal(v)
		}
		return s.conclude(v, s.matching(v))
	}
	name, err := canonical(host)
	if err != nil {
		v.Reason, v.Detail = BadHost, err.Error()
		v.Host = host[:min(len(host), 255)]
		return v
	}
	v.Host = name
	if isLocal(name) {
		return s.decideLocal(v)
	}
	return s.conclude(v, s.matching(v))
}

// decideLocal answers for the names and addresses of loopbacks.
func (s *Set) decideLocal(v Verdict) Verdict {
	v.Local = true
	v = s.conclude(v, s.matching(v))
	if v.Action == Deny {
		v.Local = false
		if v.Reason == ByDefault && v.Host == HostName {
			v.AllowWith = "--local " + strconv.Itoa(int(v.Port))
		} else if v.Reason == ByDefault {
			v.AllowWith = "--local localhost:" + strconv.Itoa(int(v.Port))
			v.Detail = "the loopback inside needs no proxy; a port of the host's loopback needs a rule"
		}
	}
	return v
}

// conclude weighs the rules that match: a deny wins, then rules about
// requests, then an allow.
func (s *Set) conclude(v Verdict, matching []Rule) Verdict {
	for _, r := range matching {
		switch {
		case r.deny && !r.Inspects():
			return Verdict{Host: v.Host, Port: v.Port, Addr: v.Addr, Rule: r.text, Reason: ByRule}
		case r.Inspects():
			if v.Action != Inspect {
				v.Action, v.Rule = Inspect, r.text
			}
		case v.Action == Deny:
			v.Action, v.Rule = Allow, r.text
		}
		v.private = v.private || r.private
		v.named = v.named || !r.deny && r.name == v.Host
	}
	if !slices.ContainsFunc(matching, func(r Rule) bool { return !r.deny }) { // a deny of some requests alone opens nothing
		v.Action, v.Rule = Deny, ""
	}
	if v.Action == Deny {
		v.AllowWith = "--allow " + target(v.Host, v.Addr, v.Port)
		if !v.Addr.IsValid() && v.Host != HostName && ownTop(v.Host) {
			v.AllowWith = allowPrivate(v)
		}
		return v
	}
	v.Reason = ""
	if v.Action == Allow && !v.Local && s.counted != nil && s.counted(v.Host) {
		v.Action = Inspect
	}
	if v.Action == Allow && !v.Local && slices.ContainsFunc(s.watched, func(w *Set) bool { return w.allows(v) }) {
		v.Action = Inspect
	}
	return v
}

// allows says whether the set allows the connection that v is about, or some requests on it.
func (s *Set) allows(v Verdict) bool {
	return s.conclude(Verdict{Host: v.Host, Port: v.Port, Addr: v.Addr}, s.matching(v)).Action != Deny
}

// target spells a host and port as a rule, without the port where a rule
// without one covers it.
func target(host string, addr netip.Addr, port uint16) string {
	if addr.Is6() {
		host = "[" + host + "]"
	}
	if port == 80 || port == 443 {
		return host
	}
	return host + ":" + strconv.Itoa(int(port))
}

// allowPrivate is the flag for a name, wherever in a private network it leads.
func allowPrivate(v Verdict) string {
	return "--allow 'private " + target(v.Host, netip.Addr{}, v.Port) + "'"
}

// DecideAddr answers for dialling addr, which the host that v allows resolved
// to or is. own says that addr is one of the host's own at this moment. An
// allowed verdict names addr; only that address may be dialled.
func (s *Set) DecideAddr(v Verdict, addr netip.Addr, own bool) Verdict {
	if v.Action == Deny || s == nil || v.Port == anyPort {
		v.Action = Deny
		return v
	}
	addr = addr.Unmap()
	if v.Local {
		return v.checkLocal(addr)
	}
	no := func(reason Reason, rule, detail, with string) Verdict {
		return Verdict{Host: v.Host, Port: v.Port, Addr: addr, Reason: reason, Rule: rule, Detail: detail, AllowWith: with}
	}
	if !addr.IsValid() || addr.Zone() != "" || v.Addr.IsValid() && v.Addr != addr {
		return no(BadAddr, v.Rule, "not the address that was checked", "")
	}
	for _, r := range s.covering(addr, v.Port) {
		if r.deny && !r.Inspects() {
			return no(BadAddr, r.text, fmt.Sprintf("%s is denied by the rule", addr), "")
		}
	}
	v.Addr = addr
	in := Inner(addr)
	g := guardOf(in)
	if own && g.lift != never {
		g = guard{class: "the host's own address", block: netip.PrefixFrom(in, in.BitLen())}
	}
	if g.class == "" || g.lift == byWord && v.private || s.lifts(g, in, v.Port) {
		return v
	}
	with := "--allow " + target(in.String(), in, v.Port)
	switch {
	case g.lift == never:
		with = ""
	case g.lift == byRange && !v.IsLiteral():
		with = "--allow " + target(g.block.String(), netip.Addr{}, v.Port)
	case g.lift == byWord && !v.IsLiteral():
		with = allowPrivate(v)
	}
	return no(BadAddr, v.Rule, fmt.Sprintf("%s is guarded: %s", addr, g.class), with)
}

// lifts says whether a rule names the guarded address closely enough.
func (s *Set) lifts(g guard, in netip.Addr, port uint16) bool {
	return g.lift != never && slices.ContainsFunc(s.covering(in, port), func(r Rule) bool {
		return !r.deny && r.prefix.Bits() >= g.block.Bits()
	})
}

func (v Verdict) checkLocal(addr netip.Addr) Verdict {
	if !addr.IsLoopback() || addr.Zone() != "" {
		v.Action, v.Reason, v.Detail = Deny, BadAddr, "not a loopback address"
	}
	v.Addr = addr
	return v
}
