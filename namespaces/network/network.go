// Package network gives a sandbox's network namespace its one way out: routes
// that lead every address to its own loopback, rules that hand connections to
// sockets which the launcher holds, and a report of whatever else was tried.
//
// The namespace has no device but its loopback. A connection to a name's fake
// address or to an allowed address arrives at a transparent listener, whose
// accepted sockets know where the client wanted to go; a question to any
// resolver arrives at one responder; everything else is refused by the kernel
// at once, and named on a netlink socket.
//
// The launcher does it all from outside: it owns the user namespace that the
// network namespace belongs to, so a few sockets that were opened inside are
// enough. Acceptance hangs on an element that the launcher has to renew: one
// that is stopped lets nobody out, and nobody waits for it.
//
// It promises that nothing leaves by a socket that is not the launcher's, and
// that traffic of the sandbox with itself stays its own. What may be reached is
// not decided here: a captured connection is only a question.
package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// The addresses of a sandbox. 198.18.0.0/15 is set apart for benchmarks of
// networks (RFC 2544) and routed nowhere; names take the upper half of it.
var (
	Names4    = netip.MustParsePrefix("198.19.0.0/16")
	own4      = netip.AddrFrom4([4]byte{198, 18, 0, 2}) // what the sandbox itself is called
	resolver4 = netip.AddrFrom4([4]byte{198, 18, 0, 53})
)

// capturePort is where captured connections and questions arrive, at every
// address. It is that of name servers, since answers leave from there; what
// asks its own loopback because it found no resolv.conf is answered too.
const capturePort = 53

// Resolver is the name server of the sandbox, for its resolv.conf.
func Resolver() netip.Addr { return resolver4 }

// A Range is the sandbox's own IPv6 prefix of 48 bits, out of those that
// anybody may use at random (RFC 4193).
type Range [6]byte

// NewRange makes a range of 40 random bits.
func NewRange(random uint64) Range {
	r := Range{0xfd, byte(random >> 32)}
	binary.BigEndian.PutUint32(r[2:], uint32(random))
	return r
}

// host returns an address of the range: subnet 0 is the sandbox's own, 1 that
// of the names.
func (r Range) host(subnet, n uint16) netip.Addr {
	a := [16]byte{7: byte(subnet), 14: byte(n >> 8), 15: byte(n)}
	copy(a[:], r[:])
	return netip.AddrFrom16(a)
}

// Names6 is where names have their addresses.
func (r Range) Names6() netip.Prefix { return netip.PrefixFrom(r.host(1, 0), 64) }

func (r Range) own() netip.Addr { return r.host(0, 2) }

// Plan says what the network of a sandbox has to be.
type Plan struct {
	Range   Range
	Allowed []netip.Prefix // addresses that are captured beside those of names
	Ports   []uint16       // of the sandbox's loopback, served by the launcher: refused as well while it is stopped
	Capture []uint16       // ports that are captured where the kernel has no rules for packets
	Rules   Rules          // what to try first
	Apart   bool           // there is no way out: all that is made is the report of closed ports, where the kernel has it
}

// Rules says how packets find their way.
type Rules uint8

// The ways, from the best to the last.
const (
	Reported   Rules = iota // nftables, and what is refused is reported
	Unreported              // nftables, on a kernel that cannot report
	Routes                  // routes alone: only named ports are captured, nothing is reported, a stopped launcher leaves clients waiting
)

// String names the mechanism.
func (r Rules) String() string {
	return [...]string{"nftables", "nftables without a log", "routes"}[r]
}

// maxPrefixes bounds how many address rules a sandbox has.
const maxPrefixes = 4096

// A segment is a run of addresses whose packets go to the same chain.
type segment struct {
	from, to netip.Addr
	chain    string
}

// segments divides the addresses of a family: in order, and without overlap,
// what is the sandbox's own and what is captured.
func (p *Plan) segments(is4 bool) (list []segment) {
	own := []netip.Prefix{netip.PrefixFrom(netip.IPv6Loopback(), 128), netip.PrefixFrom(p.Range.own(), 128)}
	captured := []netip.Prefix{p.Range.Names6()}
	if is4 {
		own = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.PrefixFrom(own4, 32)}
		captured[0] = Names4
	}
	for _, a := range p.Allowed {
		if a.Addr().Is4() == is4 {
			captured = append(captured, a)
		}
	}
	// Two prefixes are apart, or one holds the other: the larger come first.
	slices.SortFunc(captured, func(a, b netip.Prefix) int {
		if c := a.Masked().Addr().Compare(b.Masked().Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	for _, o := range own {
		list = append(list, segment{o.Addr(), last(o), "own"})
	}
	end := netip.Addr{} // of what is captured so far
	for _, a := range captured {
		if from, to := a.Masked().Addr(), last(a); !end.IsValid() || end.Less(from) {
			list, end = append(list, without(own, segment{from, to, "capture"})...), to
		}
	}
	slices.SortFunc(list, func(a, b segment) int { return a.from.Compare(b.from) })
	return list
}

// without cuts holes into a segment.
func without(holes []netip.Prefix, s segment) (list []segment) {
	for i, h := range holes {
		if from, to := h.Addr(), last(h); !to.Less(s.from) && !s.to.Less(from) {
			if s.from.Less(from) {
				list = append(list, without(holes[i+1:], segment{s.from, from.Prev(), s.chain})...)
			}
			if to.Less(s.to) {
				list = append(list, without(holes[i+1:], segment{to.Next(), s.to, s.chain})...)
			}
			return list
		}
	}
	return []segment{s}
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Check says whether the kernel can be told this plan.
func (p *Plan) Check() error {
	if n := len(p.Allowed); n > maxPrefixes {
		return fmt.Errorf("%d rules for addresses: at most %d can be captured", n, maxPrefixes)
	}
	return nil
}
