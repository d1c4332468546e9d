// Package rules is the grammar of the network policy, and the one place that
// says yes to a connection.
//
// It is a leaf and pure: it opens nothing, resolves nothing and reads no
// clock. [Parse] turns the text of a rule into a [Rule] and refuses whatever
// it does not understand; [New] makes a [Set] of rules; [Set.Decide] answers
// for a host and a port, and [Set.DecideAddr] for an address that the host's
// name led to. What is odd is refused, never put right: a name that two
// programs could read in two ways is a way out.
//
//	rule    = ["allow"|"deny"] [methods] target        bare: allow, or deny where the list says so
//	target  = ["private"] host [":" ports] | ("http"|"https") "://" host [":" port] [path]
//	        | "@" group
//	host    = name | "*." name | "." name | IPv4 | "[" IPv6 "]" | CIDR | "host" | "*" (deny only)
//	ports   = "*" | p | p-q | comma list               none: 80,443 for allow, all for deny
//	path    = "*" within a segment, "**" any
//
// `x` is that name alone, `*.x` what lies below it at any depth, `.x` both;
// `deny x` always covers what lies below. The order of rules means nothing: a
// deny that matches wins, else an allow, else the answer is no.
package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// HostName is the name by which a sandbox reaches the ports of its host's
// loopback that "host:PORT" and local rules open.
const HostName = "host.pccrun.internal"

type kind uint8

const (
	kindName      kind = iota // the name alone
	kindBelow                 // what lies below it
	kindTree                  // both
	kindAddr                  // an address or CIDR
	kindHost                  // the host's loopback, by [HostName] alone
	kindLocalhost             // the host's loopback, as localhost too
	kindAny                   // everything
	kindGroup                 // a set of hosts, by name
)

// A Rule is one parsed rule. The zero value matches nothing.
type Rule struct {
	text    string
	spelled string // for [Parse], whatever list the rule was in and whatever client named its host
	deny    bool
	private bool // may lead to private addresses
	kind    kind
	name    string       // canonical; a group's without the @
	prefix  netip.Prefix // kindAddr
	ports   []portRange
	methods []string // none: all
	scheme  string   // of a rule written as URL
	path    string   // "": all
}

type portRange struct{ lo, hi uint16 }

// String returns the rule as it was written.
func (r Rule) String() string { return r.text }

// Deny says whether the rule forbids.
func (r Rule) Deny() bool { return r.deny }

// Group returns the name of the group, without the "@", that the caller has to
// put hosts in the place of, or "". @github is known to [New] and needs no help.
func (r Rule) Group() string {
	if r.kind == kindGroup && r.name != "github" {
		return r.name
	}
	return ""
}

// For returns the rule for one host of the group that r stands for: a name,
// or an address without brackets. The host may have a private address, as the
// mirror of a company does, and never a link-local or metadata one. For a
// loopback it is what [ParseLocal] returns: see [Rule.Local].
func (r Rule) For(host string, port uint16) (Rule, error) {
	if r.kind != kindGroup || port == 0 {
		return Rule{}, fmt.Errorf("rule %q: no group, or no port", r.text)
	}
	a, err := netip.ParseAddr(host)
	literal := err == nil
	if literal && a.IsLoopback() || isLocalhost(host) {
		return localhost(r.text, port, r.deny), nil
	}
	if g := guardOf(Inner(a)); literal && !r.deny && g.class != "" && g.lift != byWord {
		return Rule{}, fmt.Errorf("rule %q: its host %s is %s", r.text, host, g.class)
	}
	spelled := host
	if literal && a.Is6() {
		spelled = "[" + a.String() + "]"
	}
	if !r.deny {
		if spelled += ":" + strconv.Itoa(int(port)); !literal {
			spelled = "private " + spelled
		}
	}
	m := Rule{text: r.text, deny: r.deny}
	if !literal && strings.ContainsAny(host, " /@:[") { // or it would say more than a host
		err = errors.New("not a host")
	} else {
		err = m.parse(spelled, r.deny)
	}
	switch single := m.kind == kindName || m.kind == kindTree && r.deny || m.kind == kindAddr; {
	case err != nil:
		return Rule{}, fmt.Errorf("rule %q: its host %q: %w", r.text, host, err)
	case !single:
		return Rule{}, fmt.Errorf("rule %q: its host %q: not the name of one host", r.text, host)
	}
	return m, nil
}

// Inspects says whether the rule speaks of methods or paths, which can be kept
// only by reading the requests inside a connection.
func (r Rule) Inspects() bool { return len(r.methods) > 0 || r.path != "" }

// LocalPort returns the port of what [ParseLocal] has read.
func (r Rule) LocalPort() uint16 { return r.ports[0].lo }

// Local says whether the rule is for a port of the host's loopback as the sandbox's own.
func (r Rule) Local() bool { return r.kind == kindLocalhost }

// Parse reads one rule. A bare one allows.
func Parse(text string) (Rule, error) { return parse(text, false) }

// ParseDeny reads one rule of a deny list. A bare one denies, and "allow" is
// an error.
func ParseDeny(text string) (Rule, error) { return parse(text, true) }

// ParseLocal reads a port of the host's loopback, "5432" or "localhost:5432", which
// is to be had at the sandbox's own 127.0.0.1 and ::1 too.
func ParseLocal(text string) (Rule, error) {
	n, err := parsePort(strings.TrimPrefix(text, "localhost:"))
	if err != nil {
		return Rule{}, fmt.Errorf("local %q: %w (want PORT or localhost:PORT)", text, err)
	}
	return localhost(text, n, false), nil
}

func localhost(text string, port uint16, deny bool) Rule {
	r := Rule{text: text, spelled: "host:" + strconv.Itoa(int(port)), deny: deny, kind: kindLocalhost, name: HostName, ports: []portRange{{port, port}}}
	if deny {
		r.spelled = "deny " + r.spelled
	}
	return r
}

func parse(text string, denyList bool) (Rule, error) {
	r := Rule{text: text, deny: denyList}
	if err := r.parse(text, denyList); err != nil {
		return Rule{}, fmt.Errorf("rule %q: %w", text, err)
	}
	return r, nil
}

func (r *Rule) parse(text string, denyList bool) error {
	if len(text) > 4096 {
		return errors.New("longer than 4096 bytes")
	}
	if r.spelled = text; denyList && !strings.HasPrefix(text, "deny ") {
		r.spelled = "deny " + text
	}
	fields := strings.Split(text, " ")
	switch fields[0] {
	case "allow":
		if denyList {
			return errors.New(`"allow" in a list of denied hosts`)
		}
		fields = fields[1:]
	case "deny":
		r.deny = true
		fields = fields[1:]
	}
	switch {
	case len(fields) == 0 || slices.Contains(fields, ""):
		return errors.New("want one space between words, and a host")
	case len(fields) > 2:
		return errors.New("too many words")
	}
	target := fields[len(fields)-1]
	if len(fields) == 2 && strings.HasPrefix(target, "@") {
		return errors.New("a group takes no other words")
	}
	if len(fields) == 2 {
		if fields[0] == "private" {
			r.private = true
		} else if err := r.parseMethods(fields[0]); err != nil {
			return err
		}
	}

	if err := r.parseTarget(target); err != nil {
		return err
	}
	if r.private && (r.deny || r.scheme != "" || r.kind > kindTree) {
		return errors.New(`"private" has no effect but before a name that is allowed`)
	}
	return nil
}

func (r *Rule) parseTarget(target string) error {
	if group, ok := strings.CutPrefix(target, "@"); ok {
		if r.kind, r.name = kindGroup, group; !IsGroup(group) {
			return fmt.Errorf("unknown group @%s (want one of @%s)", group, strings.Join(groups[:], " @"))
		}
		return nil
	}
	if scheme, rest, ok := strings.Cut(target, "://"); ok {
		return r.parseURL(scheme, rest)
	}
	if len(r.methods) > 0 {
		return errors.New("methods need a URL, such as GET https://host/path")
	}
	if strings.ContainsAny(target, "?#") || strings.Contains(target, "/") && !strings.HasPrefix(target, "[") && !isCIDR(target) {
		return errors.New("a path needs a URL, such as https://host/path")
	}
	return r.parseHostPorts(target)
}

func isCIDR(target string) bool {
	addr, _, _ := strings.Cut(target, "/")
	_, err := netip.ParseAddr(addr)
	return err == nil
}

func (r *Rule) parseMethods(text string) error {
	for m := range strings.SplitSeq(text, ",") {
		if !isMethod(m) {
			return fmt.Errorf("bad method %q (want upper case, comma between, e.g. GET,HEAD)", m)
		}
		r.methods = append(r.methods, m)
	}
	return nil
}

func isMethod(m string) bool {
	return m != "" && len(m) <= 32 && strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

// groups are the names of groups, without the "@".
var groups = [...]string{"github", "npm", "go", "pip", "cargo", "apt"}

// IsGroup reports whether a name, without the "@", is that of a group.
func IsGroup(name string) bool { return slices.Contains(groups[:], name) }

func (r *Rule) parseURL(scheme, rest string) error {
	port := uint16(0)
	switch scheme {
	case "http":
		port = 80
	case "https":
		port = 443
	default:
		return fmt.Errorf("scheme %q (want http or https)", scheme)
	}
	host := rest
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		host, r.path = rest[:i], rest[i:]
	}
	r.scheme = scheme
	var err error
	if r.path, err = parsePathGlob(r.path); err != nil {
		return err
	}
	if err := r.parseHostPorts(host); err != nil {
		return err
	}
	switch {
	case r.kind == kindHost || r.kind == kindAny || r.prefix.IsValid() && !r.prefix.IsSingleIP():
		return errors.New("a URL needs a name or one address")
	case !strings.HasSuffix(host, "]") && strings.Contains(host[strings.LastIndexByte(host, ']')+1:], ":"):
		if len(r.ports) != 1 || r.ports[0].lo != r.ports[0].hi {
			return errors.New("a URL takes one port")
		}
	default:
		r.ports = []portRange{{port, port}}
	}
	return nil
}

// parseHostPorts reads host [":" ports].
func (r *Rule) parseHostPorts(target string) error {
	host, ports, hasPorts := target, "", false
	if strings.HasPrefix(target, "[") {
		end := strings.IndexByte(target, ']')
		if end < 0 {
			return errors.New(`"[" without "]"`)
		}
		if i := strings.IndexByte(target[end:], ':'); i >= 0 {
			host, ports, hasPorts = target[:end+i], target[end+i+1:], true
		}
	} else if strings.Count(target, ":") > 1 {
		return errors.New("IPv6 must be bracketed: [address]:port")
	} else {
		host, ports, hasPorts = strings.Cut(target, ":")
	}
	if err := r.parseHost(host); err != nil {
		return err
	}
	if !hasPorts {
		switch {
		case r.deny:
			r.ports = []portRange{{0, 65535}}
		case r.kind == kindHost:
			return errors.New("host needs a port: host:PORT")
		default:
			r.ports = []portRange{{80, 80}, {443, 443}}
		}
		return nil
	}
	for p := range strings.SplitSeq(ports, ",") {
		pr, err := parsePortRange(p)
		if err != nil {
			return err
		}
		r.ports = append(r.ports, pr)
	}
	if r.kind == kindHost && !r.deny && slices.Contains(r.ports, portRange{0, 65535}) {
		return errors.New("all ports of the host are not allowed at once: name the ports")
	}
	return nil
}

func parsePortRange(text string) (portRange, error) {
	if text == "*" {
		return portRange{0, 65535}, nil
	}
	lo, hi, isRange := strings.Cut(text, "-")
	if !isRange {
		hi = lo
	}
	a, err := parsePort(lo)
	if err != nil {
		return portRange{}, err
	}
	b, err := parsePort(hi)
	if err != nil {
		return portRange{}, err
	}
	if a > b {
		return portRange{}, fmt.Errorf("bad ports %q: %d is above %d", text, a, b)
	}
	return portRange{a, b}, nil
}

// parsePort reads 1 to 65535 in one spelling: no sign, no leading zero.
func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] == '0' || text[0] == '+' {
		return 0, fmt.Errorf("bad port %q", text)
	}
	return uint16(n), nil
}

func (r *Rule) parseHost(host string) error {
	switch {
	case host == "":
		return errors.New("no host")
	case host == "*":
		if !r.deny {
			return errors.New("allow * is refused: name the hosts")
		}
		r.kind = kindAny
		return nil
	case host == "host" || host == HostName:
		r.kind, r.name = kindHost, HostName
		return nil
	case strings.HasPrefix(host, "[") || strings.Contains(host, "/"):
		return r.parsePrefix(host)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return r.parsePrefix(host)
	}
	name := host
	if after, ok := strings.CutPrefix(host, "*."); ok {
		name, r.kind = after, kindBelow
	} else if after, ok := strings.CutPrefix(host, "."); ok {
		name, r.kind = after, kindTree
	}
	name, err := canonical(name)
	if err != nil {
		return err
	}
	r.name = name
	switch {
	case isLocalhost(name):
		return errors.New("localhost is the sandbox's own loopback; use host:PORT, or --local PORT, for the host's")
	case r.deny && r.kind == kindName:
		r.kind = kindTree
	case r.deny:
	case r.kind != kindName && strangersBelow(name):
		return fmt.Errorf("wildcard on public suffix %s: anybody can have a name below it", name)
	}
	return nil
}

// isLocalhost reports whether a name is one of the loopback's, RFC 6761.
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// isLocal reports whether a name stands for the host's loopback, where a rule opens a port of it.
func isLocal(name string) bool { return name == HostName || isLocalhost(name) }

// parsePrefix reads IPv4, IPv4/bits, [IPv6] or [IPv6]/bits.
func (r *Rule) parsePrefix(text string) error {
	addr, bits, hasBits := strings.Cut(text, "/")
	bracketed := strings.HasPrefix(addr, "[") && strings.HasSuffix(addr, "]")
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]"))
	switch {
	case err != nil || a.Zone() != "" || bracketed != a.Is6():
		return fmt.Errorf("bad address %q (want IPv4 or [IPv6], then /BITS)", addr)
	case a.Is4In6():
		return fmt.Errorf("address %s: write it as IPv4, %s", a, a.Unmap())
	}
	r.kind, r.prefix = kindAddr, netip.PrefixFrom(a, a.BitLen())
	if hasBits {
		n, err := strconv.ParseUint(bits, 10, 8)
		if err != nil || int(n) > a.BitLen() || strconv.FormatUint(n, 10) != bits {
			return fmt.Errorf("bad prefix length %q", bits)
		}
		r.prefix = netip.PrefixFrom(a, int(n))
		if m := r.prefix.Masked(); m != r.prefix {
			return fmt.Errorf("%s has bits set below its length; %s is the range", r.prefix, m)
		}
	}
	if r.deny {
		return nil
	}
	if in := Inner(a); in != a && r.prefix.Bits() >= 16 {
		return fmt.Errorf("%s stands for an IPv4 address: write %s", r.prefix, in)
	}
	if g := guardOf(a); g.lift == never && r.prefix.Bits() >= g.block.Bits() {
		return fmt.Errorf("%s is %s and cannot be allowed; host:PORT allows a port of the host's loopback", r.prefix, g.class)
	}
	return nil
}

// Covers reports whether a rule speaks of a port, of whatever host.
func (r Rule) Covers(port uint16) bool { return r.hasPort(port) }

func (r *Rule) hasPort(port uint16) bool {
	return slices.ContainsFunc(r.ports, func(p portRange) bool { return p.lo <= port && port <= p.hi })
}
