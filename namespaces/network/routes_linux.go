package network

import (
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// loopback is the index of lo, the first device of every network namespace.
const loopback = 1

// bigTCP lets one packet on the loopback carry this much (Linux 5.19; IPv4
// 6.3). It is for speed alone.
const bigTCP = 512000

// routes leads every address to the loopback. What the kernel may lack comes
// first and may fail: large packets, and IPv6, whose route is the step that
// haveIPv6 looks at.
func (p *Plan) routes() *batch {
	w := &batch{optional: true}
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = loopback
	w.message("raise the MTU", unix.RTM_NEWLINK, 0, header, ne32(unix.IFLA_GSO_MAX_SIZE, bigTCP), ne32(unix.IFLA_GRO_MAX_SIZE, bigTCP),
		ne32(unix.IFLA_GSO_IPV4_MAX_SIZE, bigTCP), ne32(unix.IFLA_GRO_IPV4_MAX_SIZE, bigTCP))
	if HasIPv6() {
		w.route(unix.AF_INET6, p.Range.own())
	}
	w.optional = false
	w.route(unix.AF_INET, own4)
	w.acknowledge()
	return w
}

func haveIPv6(sent *batch) bool {
	for _, s := range sent.steps[1:] { // the first is the size of packets
		if s.err != nil {
			return false
		}
	}
	return HasIPv6()
}

// route gives the loopback an address and leads all of its family there. The
// address is not of the loopback's range: a resolver that asks which families
// the machine has (AI_ADDRCONFIG) would find none.
func (w *batch) route(family byte, own netip.Addr) {
	address := own.AsSlice()
	a := nl.NewIfAddrmsg(int(family))
	a.Prefixlen, a.Scope, a.Index = uint8(own.BitLen()), unix.RT_SCOPE_UNIVERSE, loopback
	// Without a route of its own: that would be there before the kernel's work
	// on the address is done, and lead nowhere until then.
	w.message("give the sandbox the address "+own.String(), unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, a,
		attr(unix.IFA_LOCAL, address...), attr(unix.IFA_ADDRESS, address...), ne32(unix.IFA_FLAGS, unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE))
	r := nl.NewRtMsg()
	r.Family, r.Protocol, r.Scope, r.Type = family, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL
	w.message("route every address to the sandbox's loopback", unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, r,
		ne32(unix.RTA_OIF, loopback), attr(unix.RTA_PREFSRC, address...))
}
