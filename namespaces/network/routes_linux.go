package network

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// loopback is the index of lo, the first device of every network namespace.
const loopback = 1

// bigTCP lets one packet on the loopback carry this much (Linux 5.19; IPv4
// 6.3). It is for speed alone.
const bigTCP = 512000

// routes leads every address of a family to the loopback. The address of the
// sandbox's own is not of the loopback's range: a resolver that asks which
// families the machine has (AI_ADDRCONFIG) would find none.
func routes(family byte, own netip.Addr) *batch {
	w := &batch{}
	address := own.AsSlice()
	// struct ifaddrmsg, struct rtmsg: rtnetlink(7)
	w.message("give the sandbox the address "+own.String(), unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		family, byte(own.BitLen()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE, loopback, 0, 0, 0)
	w.attr(unix.IFA_LOCAL, address)
	w.attr(unix.IFA_ADDRESS, address)
	w.message("route every address to the sandbox's loopback", unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK,
		family, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0)
	w.attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, loopback))
	w.attr(unix.RTA_PREFSRC, address)
	return w
}

// speed asks for packets as large as the kernel can make them.
func speed() *batch {
	w := &batch{}
	header := [16]byte{unix.AF_UNSPEC, 4: loopback} // struct ifinfomsg; the index is the machine's int32
	binary.NativeEndian.PutUint32(header[4:], loopback)
	w.message("raise the size of packets", unix.RTM_NEWLINK, unix.NLM_F_ACK, header[:]...)
	for _, kind := range [...]uint16{unix.IFLA_GSO_MAX_SIZE, unix.IFLA_GRO_MAX_SIZE, unix.IFLA_GSO_IPV4_MAX_SIZE, unix.IFLA_GRO_IPV4_MAX_SIZE} {
		w.attr(kind, binary.NativeEndian.AppendUint32(nil, bigTCP))
	}
	return w
}
