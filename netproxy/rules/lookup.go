package rules

import (
	"net/netip"
	"slices"
)

// DecideName answers for looking name up: allowed if a connection to one of
// its ports may be. What the verdict says of ports is about the one that
// decided.
func (s *Set) DecideName(name string) Verdict {
	denied := s.Decide(name, 443)
	if denied.Action != Deny || denied.Reason == BadHost || s == nil {
		return denied
	}
	// If any port may be reached, then so may the first of an allowed range,
	// or the first behind a denied one.
	var ports []uint16
	for _, list := range [...][]Rule{s.named(denied.Host), s.hosts, s.any} {
		for _, r := range list {
			for _, p := range r.ports {
				if !r.deny {
					ports = append(ports, p.lo)
				} else if p.hi < 65535 {
					ports = append(ports, p.hi+1)
				}
			}
		}
	}
	for _, port := range ports {
		if v := s.Decide(name, port); v.Action != Deny {
			return v
		}
	}
	denied.Port = 0
	if denied.Host == HostName {
		denied.AllowWith = "--local PORT"
	}
	return denied
}

// named returns the rules for a name and for what it lies below.
func (s *Set) named(name string) (list []Rule) {
	for i := 0; i <= len(name); i++ {
		if i == 0 || name[i-1] == '.' {
			list = append(list, s.names[name[i:]]...)
		}
	}
	return list
}

// Prefixes returns the addresses that rules allow, in no order.
func (s *Set) Prefixes() (list []netip.Prefix) {
	if s == nil {
		return nil
	}
	for prefix, rules := range s.addrs {
		if slices.ContainsFunc(rules, func(r Rule) bool { return !r.deny }) {
			list = append(list, prefix)
		}
	}
	return list
}

// Ports returns the ports that rules allow, without repetition and in order,
// and whether that is all of them: no more than most are named.
func (s *Set) Ports(most int) (list []uint16, all bool) {
	if s == nil {
		return nil, true
	}
	seen := map[uint16]bool{}
	all = true
	add := func(rules []Rule) {
		for _, r := range rules {
			for _, p := range r.ports {
				for port := int(p.lo); !r.deny && port <= int(p.hi); port++ {
					switch {
					case seen[uint16(port)]:
					case len(list) == most:
						all = false
						return
					default:
						seen[uint16(port)] = true
						list = append(list, uint16(port))
					}
				}
			}
		}
	}
	add(s.hosts)
	for _, rules := range s.names {
		add(rules)
	}
	for _, rules := range s.addrs {
		add(rules)
	}
	slices.Sort(list)
	return list, all
}
