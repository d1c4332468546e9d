package escape

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

func linkUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

func attribute(kind int, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, uint16(kind))
	b = append(b, value...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

func request(kind, flags int, body ...[]byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	message := make([]byte, unix.NLMSG_HDRLEN)
	for _, b := range body {
		message = append(message, b...)
	}
	*(*unix.NlMsghdr)(unsafe.Pointer(&message[0])) = unix.NlMsghdr{
		Len: uint32(len(message)), Type: uint16(kind), Flags: uint16(unix.NLM_F_REQUEST | unix.NLM_F_ACK | flags), Seq: 1,
	}
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 {
		return unix.EPROTO
	}
	if errno := -int32(binary.NativeEndian.Uint32(reply[unix.NLMSG_HDRLEN:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

func makePair(name, peer string, peerNS int) error {
	message := func(name string, more ...[]byte) []byte {
		b := make([]byte, unix.SizeofIfInfomsg)
		b = append(b, attribute(unix.IFLA_IFNAME, append([]byte(name), 0))...)
		for _, m := range more {
			b = append(b, m...)
		}
		return b
	}
	ns := attribute(unix.IFLA_NET_NS_FD, binary.NativeEndian.AppendUint32(nil, uint32(peerNS)))
	const vethInfoPeer = 1
	info := append(attribute(unix.IFLA_INFO_KIND, []byte("veth")),
		attribute(unix.IFLA_INFO_DATA, attribute(vethInfoPeer, message(peer, ns)))...)
	return request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, message(name, attribute(unix.IFLA_LINKINFO, info)))
}

func addAddress(link, cidr string) error {
	p := netip.MustParsePrefix(cidr)
	i, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	body := []byte{family(p.Addr()), byte(p.Bits()), unix.IFA_F_NODAD, 0}
	body = binary.NativeEndian.AppendUint32(body, uint32(i.Index))
	address := p.Addr().AsSlice()
	err = request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body, attribute(unix.IFA_LOCAL, address), attribute(unix.IFA_ADDRESS, address))
	if p.Addr().Is6() && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)) {
		return nil // a host without IPv6
	}
	return err
}

func addRoute(link, gateway string) error {
	a := netip.MustParseAddr(gateway)
	i, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	body := []byte{family(a), 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}
	oif := binary.NativeEndian.AppendUint32(nil, uint32(i.Index))
	err = request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body, attribute(unix.RTA_GATEWAY, a.AsSlice()), attribute(unix.RTA_OIF, oif))
	if a.Is6() && err != nil {
		return nil
	}
	return err
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
