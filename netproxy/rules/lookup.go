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
	for _, r := range s.matching(Verdict{Host: denied.Host, Port: anyPort, Local: isLocal(denied.Host)}) {
		for _, p := range r.ports {
			if !r.deny {
				ports = append(ports, max(p.lo, 1)) // "*" begins with 0
			} else if p.hi < 65535 {
				ports = append(ports, p.hi+1)
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

// Prefixes returns the addresses that rules allow, in no order.
func (s *Set) Prefixes() (list []netip.Prefix) {
	for _, r := range s.allowing() {
		if r.kind == kindAddr && !slices.Contains(list, r.prefix) {
			list = append(list, r.prefix)
		}
	}
	return list
}

// Ports returns the ports that rules allow, without repetition and in order,
// and whether that is all of them: no more than most are named.
func (s *Set) Ports(most int) (list []uint16, all bool) {
	all = true
	for _, r := range s.allowing() {
		for _, p := range r.ports {
			for port := int(p.lo); port <= int(p.hi) && all; port++ {
				if i, found := slices.BinarySearch(list, uint16(port)); found {
					continue
				} else if all = len(list) < most; all {
					list = slices.Insert(list, i, uint16(port))
				}
			}
		}
	}
	return list, all
}
