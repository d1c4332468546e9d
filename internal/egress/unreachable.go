package egress

import (
	"net"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
)

// noWay says why no connection goes to the host of an injection, "" if one may,
// or if it is not one host and one port, and what would mend it: a rule that
// denies is not helped by one that allows.
func noWay(n *profiles.Network, set *rules.Set, host string) (cause, hint string) {
	name, port := host[strings.LastIndexByte(host, ' ')+1:], uint16(443) // behind methods
	path := false
	if rest, is := strings.CutPrefix(name, "https://"); is {
		name, _, path = strings.Cut(rest, "/")
	}
	if at, text, err := net.SplitHostPort(name); err == nil {
		p, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return "", ""
		}
		name, port = at, uint16(p)
	}
	if name = strings.Trim(name, "[]"); strings.ContainsAny(name, "*/") || strings.HasPrefix(name, ".") {
		return "", ""
	}
	v := set.Decide(name, port)
	switch {
	case v.Action != rules.Deny:
		return "", ""
	case v.Rule == "":
		if v.AllowWith == "" || path { // which is less than the host
			v.AllowWith = "--allow " + shell.Quote(host)
		}
		return "no rule allows its host " + host, v.AllowWith
	}
	rule := v.Rule
	for _, d := range n.Deny {
		if d.Text == rule {
			rule += " (" + d.Origin.String() + ")"
			break
		}
	}
	return "its host " + host + " is denied by the rule " + rule,
		"a deny rule wins: remove it, or inject for another host"
}

// unreachable says why what is injected has nowhere to go where there is no
// network at all.
func unreachable(n *profiles.Network) (cause, hint string) {
	// Whatever a group stands for, nothing of it is allowed.
	set, err := n.Rules(func(rules.Rule) ([]rules.Rule, error) { return nil, nil })
	for i := range n.Inject {
		for _, host := range n.Inject[i].Hosts {
			if cause, hint = noWay(n, set, host); err == nil && cause != "" {
				return "there is no network: " + cause, hint
			}
		}
	}
	return "there is no network", "--allow HOST"
}
