package rules

import (
	"fmt"
	"iter"
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
	names     map[string][]Rule // kindName, kindBelow and kindTree by their name
	addrs     map[netip.Prefix][]Rule
	bits      []int  // the lengths of the prefixes in addrs
	hosts     []Rule // kindHost and kindLocalhost
	any       []Rule
	inspected []Rule
	texts     []string
	watched   []*Set                 // what one of them allows is inspected if this set allows it
	counted   func(host string) bool // likewise what it says true of; nil for none
}

// New makes a set of rules, whose order means nothing. It expands @github; any
// other group is an error, since only the user's own client knows its hosts. A
// rule for requests that a rule for whole connections makes pointless is an
// error too.
func New(rules ...Rule) (*Set, error) {
	s := &Set{names: make(map[string][]Rule, len(rules)), addrs: make(map[netip.Prefix][]Rule)}
	for _, r := range rules {
		if err := s.add(r); err != nil {
			return nil, err
		}
		if r.ports != nil || r.kind == kindGroup {
			s.texts = append(s.texts, r.spelled())
		}
	}
	for _, r := range s.inspected {
		if r.deny {
			continue
		}
		for c := range s.candidates(r.example(), r.prefix.Addr(), r.ports[0].lo) {
			if !c.deny && !c.Inspects() {
				return nil, fmt.Errorf("rule %q: has no effect, because %q allows every request", r.text, c.text)
			}
		}
	}
	return s, nil
}

func (s *Set) add(r Rule) error {
	if r.Inspects() {
		s.inspected = append(s.inspected, r)
	}
	switch r.kind {
	case kindAddr:
		s.addrs[r.prefix] = append(s.addrs[r.prefix], r)
		if !slices.Contains(s.bits, r.prefix.Bits()) {
			s.bits = append(s.bits, r.prefix.Bits())
		}
	case kindHost, kindLocalhost:
		s.hosts = append(s.hosts, r)
	case kindAny:
		s.any = append(s.any, r)
	case kindGroup:
		if r.name != "github" {
			return fmt.Errorf("rule %q: the hosts of this group are unknown here; name the host of your client, e.g. --allow HOST", r.text)
		}
		for _, name := range githubHosts {
			m := Rule{text: r.text, deny: r.deny, name: name, ports: []portRange{{443, 443}}}
			if r.deny {
				m.kind, m.ports = kindTree, []portRange{{0, 65535}}
			}
			s.names[name] = append(s.names[name], m)
		}
	default:
		if r.name == "" {
			return nil // the zero Rule
		}
		s.names[r.name] = append(s.names[r.name], r)
	}
	return nil
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
func (s *Set) Inspected() []Rule {
	if s == nil {
		return nil
	}
	return slices.Clone(s.inspected)
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
func (s *Set) Empty() bool {
	if s == nil {
		return true
	}
	allows := func(r Rule) bool { return !r.deny }
	for _, rs := range s.names {
		if slices.ContainsFunc(rs, allows) {
			return false
		}
	}
	for _, rs := range s.addrs {
		if slices.ContainsFunc(rs, allows) {
			return false
		}
	}
	return !slices.ContainsFunc(s.hosts, allows)
}

// candidates yields the rules that match a connection to name, or to addr
// where name is empty.
func (s *Set) candidates(name string, addr netip.Addr, port uint16) iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		if name == "" {
			for r := range s.covering(addr, port) {
				if !yield(r) {
					return
				}
			}
		}
		for rest, below := name, false; rest != ""; below = true {
			for _, r := range s.names[rest] {
				if r.hasPort(port) && (below && r.kind != kindName || !below && r.kind != kindBelow) && !yield(r) {
					return
				}
			}
			_, rest, _ = strings.Cut(rest, ".")
		}
		for _, r := range s.any {
			if r.hasPort(port) && !yield(r) {
				return
			}
		}
	}
}

// covering yields the rules for addr, and for the address that it leads to.
func (s *Set) covering(addr netip.Addr, port uint16) iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		in := Inner(addr)
		for _, bits := range s.bits {
			prefix, _ := addr.Prefix(bits) // too long for IPv4: in no map
			for _, r := range s.addrs[prefix] {
				if r.hasPort(port) && !yield(r) {
					return
				}
			}
			if in == addr {
				continue
			}
			prefix, _ = in.Prefix(bits)
			for _, r := range s.addrs[prefix] {
				if r.hasPort(port) && !yield(r) {
					return
				}
			}
		}
	}
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
		return s.conclude(v, s.candidates("", v.Addr, port))
	}
	name, err := canonical(host)
	if err != nil {
		v.Reason, v.Detail = BadHost, err.Error()
		v.Host = host[:min(len(host), 255)]
		return v
	}
	v.Host = name
	if name == HostName || isLocalhost(name) {
		return s.decideLocal(v)
	}
	return s.conclude(v, s.candidates(name, netip.Addr{}, port))
}

// decideLocal answers for the names and addresses of loopbacks.
func (s *Set) decideLocal(v Verdict) Verdict {
	v.Local = true
	isHost := v.Host == HostName
	v = s.conclude(v, func(yield func(Rule) bool) {
		if s == nil {
			return
		}
		for _, list := range [...][]Rule{s.any, s.hosts} {
			for _, r := range list {
				matches := isHost || r.kind == kindLocalhost || r.deny
				if matches && r.hasPort(v.Port) && !yield(r) {
					return
				}
			}
		}
	})
	if v.Action == Deny {
		v.Local = false
		if v.Reason == ByDefault && isHost {
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
func (s *Set) conclude(v Verdict, matching iter.Seq[Rule]) Verdict {
	if s != nil {
		for r := range matching {
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
	}
	if v.Action == Inspect && !s.allowsSome(matching) {
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

// allows says whether the set allows the connection that v is about.
func (s *Set) allows(v Verdict) bool {
	name := v.Host
	if v.Addr.IsValid() {
		name = ""
	}
	return s.conclude(Verdict{Host: v.Host, Port: v.Port, Addr: v.Addr}, s.candidates(name, v.Addr, v.Port)).Action == Allow
}

// allowsSome says whether any rule allows, so that a deny of some requests
// alone opens nothing.
func (s *Set) allowsSome(matching iter.Seq[Rule]) bool {
	for r := range matching {
		if !r.deny {
			return true
		}
	}
	return false
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
	if v.Action == Deny || s == nil {
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
	for r := range s.covering(addr, v.Port) {
		if r.deny && !r.Inspects() {
			return no(BadAddr, r.text, fmt.Sprintf("%s is denied by the rule", addr), "")
		}
	}
	v.Addr = addr
	in := Inner(addr)
	g := guardOf(in)
	if own && !g.never {
		g = guard{class: "the host's own address", block: netip.PrefixFrom(in, in.BitLen())}
	}
	if g.class == "" || g.private && v.private || s.lifts(g, in, v.Port) {
		return v
	}
	with := "--allow " + target(in.String(), in, v.Port)
	switch {
	case g.never:
		with = ""
	case g.fake && !v.IsLiteral():
		with = "--allow " + target(g.block.String(), netip.Addr{}, v.Port)
	case g.private && !v.IsLiteral():
		with = allowPrivate(v)
	}
	return no(BadAddr, v.Rule, fmt.Sprintf("%s is guarded: %s", addr, g.class), with)
}

// lifts says whether a rule names the guarded address closely enough.
func (s *Set) lifts(g guard, in netip.Addr, port uint16) bool {
	if g.never {
		return false
	}
	for r := range s.covering(in, port) {
		if !r.deny && r.prefix.Bits() >= g.block.Bits() {
			return true
		}
	}
	return false
}

func (v Verdict) checkLocal(addr netip.Addr) Verdict {
	if !addr.IsLoopback() || addr.Zone() != "" {
		v.Action, v.Reason, v.Detail = Deny, BadAddr, "not a loopback address"
	}
	v.Addr = addr
	return v
}
