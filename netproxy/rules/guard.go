package rules

import "net/netip"

// A guard is a range of addresses that a name must not lead to unless a rule
// names it.
type guard struct {
	class   string
	block   netip.Prefix // a rule lifts the guard only if it is at least as narrow
	private bool         // the word "private" lifts it
	never   bool         // nothing does
	fake    bool         // resolvers of proxies answer every name from it
}

// guardOf returns the guard on an address that has been through [Inner], and
// the zero guard for a public one. Sources: IANA's special-purpose registries
// of both families, RFC 6890, and the clouds' own documentation for metadata.
func guardOf(a netip.Addr) guard {
	if class := metadata(a); class != "" {
		return guard{class: class, block: netip.PrefixFrom(a, a.BitLen())}
	}
	if a.Is4() {
		return guardOf4(a)
	}
	return guardOf6(a)
}

// metadata names the services that hand out a machine's credentials. Most lie
// in ranges that are guarded anyway; here they are narrower, so that a rule
// for the range does not open them.
func metadata(a netip.Addr) string {
	switch a {
	case netip.AddrFrom4([4]byte{169, 254, 169, 254}), // EC2, GCE, Azure, …
		netip.AddrFrom4([4]byte{169, 254, 170, 2}),                                           // ECS tasks
		netip.AddrFrom4([4]byte{169, 254, 170, 23}),                                          // EKS pods
		netip.AddrFrom4([4]byte{168, 63, 129, 16}),                                           // Azure's wire server, a public address
		netip.AddrFrom4([4]byte{100, 100, 100, 200}),                                         // Alibaba
		netip.AddrFrom4([4]byte{192, 0, 0, 192}),                                             // Oracle
		netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x0e, 3: 0xc2, 14: 0x02, 15: 0x54}),            // EC2: fd00:ec2::254
		netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x0e, 3: 0xc2, 15: 0x23}),                      // EKS: fd00:ec2::23
		netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x20, 3: 0xce, 14: 0x02, 15: 0x54}),            // GCE: fd20:ce::254
		netip.AddrFrom16([16]byte{0: 0xfd, 3: 0xc1, 12: 0xa9, 13: 0xfe, 14: 0xa9, 15: 0xfe}), // Oracle: fd00:c1::a9fe:a9fe
		netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x42, 15: 0x42}),                               // Scaleway: fd00:42::42
		netip.AddrFrom16([16]byte{0: 0xfd, 2: 0xa9, 3: 0xfe, 4: 0xa9, 5: 0xfe, 15: 1}):       // Akamai, once Linode: fd00:a9fe:a9fe::1
		return "cloud metadata"
	}
	return ""
}

func guardOf4(a netip.Addr) guard {
	b := a.As4()
	block := func(class string, bits int) guard {
		p, _ := a.Prefix(bits)
		return guard{class: class, block: p}
	}
	private := func(bits int) guard {
		g := block("private", bits)
		g.private = true
		return g
	}
	never := func(class string, bits int) guard {
		g := block(class, bits)
		g.never = true
		return g
	}
	switch {
	case b[0] == 0:
		return never("this host", 8)
	case b[0] == 127:
		return never("loopback", 8)
	case b[0] >= 224 && b[0] < 240:
		return never("multicast", 4)
	case b[0] >= 240:
		return never("reserved", 4)
	case b[0] == 10:
		return private(8)
	case b[0] == 172 && b[1]&0xf0 == 16:
		return private(12)
	case b[0] == 192 && b[1] == 168:
		return private(16)
	case b[0] == 100 && b[1]&0xc0 == 64: // RFC 6598, behind a carrier's NAT and in overlays
		return private(10)
	case b[0] == 169 && b[1] == 254:
		return block("link-local", 16)
	case b[0] == 198 && b[1]&0xfe == 18: // RFC 2544; what Clash and its like resolve every name to
		g := block("benchmark range, from which resolvers such as Clash's answer every name", 15)
		g.fake = true
		return g
	case b[0] == 192 && b[1] == 0 && b[2] == 0:
		return block("protocol assignments", 24)
	case b[0] == 192 && b[1] == 0 && b[2] == 2,
		b[0] == 198 && b[1] == 51 && b[2] == 100,
		b[0] == 203 && b[1] == 0 && b[2] == 113:
		return block("documentation", 24)
	case b[0] == 192 && b[1] == 88 && b[2] == 99: // RFC 7526
		return block("6to4 relay", 24)
	}
	return guard{}
}

// guardOf6 takes as public only what IANA has given out as global unicast,
// 2000::/3, less what it set apart in it.
func guardOf6(a netip.Addr) guard {
	b := a.As16()
	block := func(class string, bits int) guard {
		p, _ := a.Prefix(bits)
		return guard{class: class, block: p}
	}
	switch {
	case a.IsLoopback():
		return guard{class: "loopback", block: netip.PrefixFrom(a, 128), never: true}
	case a.IsUnspecified():
		return guard{class: "this host", block: netip.PrefixFrom(a, 128), never: true}
	case a.IsMulticast():
		g := block("multicast", 8)
		g.never = true
		return g
	case b[0]&0xfe == 0xfc:
		g := block("private", 7)
		g.private = true
		return g
	case a.IsLinkLocalUnicast():
		return block("link-local", 10)
	case b[0]&0xe0 != 0x20:
		return block("reserved", 3)
	case b[0] == 0x20 && b[1] == 0x01 && b[2]&0xfe == 0: // RFC 2928: Teredo, ORCHID, benchmarks
		return block("protocol assignments", 23)
	case b[0] == 0x20 && b[1] == 0x01 && b[2] == 0x0d && b[3] == 0xb8: // RFC 3849
		return block("documentation", 32)
	case b[0] == 0x3f && b[1] == 0xff && b[2]&0xf0 == 0: // RFC 9637
		return block("documentation", 20)
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
