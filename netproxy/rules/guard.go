package rules

import (
	"net/netip"
	"sync"
)

// A guard is a range of addresses that a name must not lead to unless a rule
// names it.
type guard struct {
	block netip.Prefix // a rule lifts the guard only if it is at least as narrow
	class string
	lift  lift
}

// A lift says what lifts a guard beside a rule for the addresses.
type lift uint8

const (
	byRule  lift = iota
	byWord       // the word "private" too
	byRange      // the rule that is proposed is for all of it: resolvers of proxies answer every name from it
	never        // and no rule does either
)

// guards are in the order in which they are looked for. Sources: IANA's special-purpose registries of
// both families, RFC 6890, and the clouds' own documentation for metadata: most of these lie in ranges
// that are guarded anyway; here they are narrower, so that a rule for the range does not open them.
var guards = [...]struct {
	block, class string
	lift         lift
}{
	{"169.254.169.254/32", metadata, byRule},     // EC2, GCE, Azure, …
	{"169.254.170.2/32", metadata, byRule},       // ECS tasks
	{"169.254.170.23/32", metadata, byRule},      // EKS pods
	{"168.63.129.16/32", metadata, byRule},       // Azure's wire server, a public address
	{"100.100.100.200/32", metadata, byRule},     // Alibaba
	{"192.0.0.192/32", metadata, byRule},         // Oracle
	{"fd00:ec2::254/128", metadata, byRule},      // EC2
	{"fd00:ec2::23/128", metadata, byRule},       // EKS
	{"fd20:ce::254/128", metadata, byRule},       // GCE
	{"fd00:c1::a9fe:a9fe/128", metadata, byRule}, // Oracle
	{"fd00:42::42/128", metadata, byRule},        // Scaleway
	{"fd00:a9fe:a9fe::1/128", metadata, byRule},  // Akamai, once Linode
	{"0.0.0.0/8", "this host", never},
	{"127.0.0.0/8", "loopback", never},
	{"224.0.0.0/4", "multicast", never},
	{"240.0.0.0/4", "reserved", never},
	{"10.0.0.0/8", "private", byWord},
	{"172.16.0.0/12", "private", byWord},
	{"192.168.0.0/16", "private", byWord},
	{"100.64.0.0/10", "private", byWord}, // RFC 6598, behind a carrier's NAT and in overlays
	{"169.254.0.0/16", "link-local", byRule},
	{"198.18.0.0/15", "benchmark range, from which resolvers such as Clash's answer every name", byRange}, // RFC 2544
	{"192.0.0.0/24", "protocol assignments", byRule},
	{"192.0.2.0/24", "documentation", byRule},
	{"198.51.100.0/24", "documentation", byRule},
	{"203.0.113.0/24", "documentation", byRule},
	{"192.88.99.0/24", "6to4 relay", byRule}, // RFC 7526
	{"::1/128", "loopback", never},
	{"::/128", "this host", never},
	{"ff00::/8", "multicast", never},
	{"fc00::/7", "private", byWord},
	{"fe80::/10", "link-local", byRule},
	{"2001::/23", "protocol assignments", byRule}, // RFC 2928: Teredo, ORCHID, benchmarks
	{"2001:db8::/32", "documentation", byRule},    // RFC 3849
	{"3fff::/20", "documentation", byRule},        // RFC 9637
}

const metadata = "cloud metadata"

// global is what IANA has given out as global unicast: of IPv6 no more is public.
var global = netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20}), 3)

// parsedGuards are the guards by their ranges.
var parsedGuards = sync.OnceValue(func() (list []guard) {
	for _, g := range guards {
		list = append(list, guard{netip.MustParsePrefix(g.block), g.class, g.lift})
	}
	return list
})

// guardOf returns the guard on an address that has been through [Inner], and
// the zero guard for a public one.
func guardOf(a netip.Addr) guard {
	for _, g := range parsedGuards() {
		if g.block.Contains(a) {
			return g
		}
	}
	if a.Is6() && !global.Contains(a) {
		block, _ := a.WithZone("").Prefix(3)
		return guard{block, "reserved", byRule}
	}
	return guard{}
}

// Inner returns the address that a packet to a ends at: the IPv4 address in a
// v4-mapped, NAT64 (RFC 6052) or 6to4 (RFC 3056) one, else a itself.
func Inner(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is4() {
		return a
	}
	b := a.As16()
	switch {
	case netip.PrefixFrom(netip.AddrFrom16([16]byte{1: 0x64, 2: 0xff, 3: 0x9b}), 96).Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case b[0] == 0x20 && b[1] == 0x02:
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}
