package escape

import (
	"errors"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func linkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// makePair makes a cable, the other end of which is in another namespace.
func makePair(name, peer string, peerNS int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer, PeerNamespace: netlink.NsFd(peerNS)})
}

func addAddress(name, cidr string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	a.Flags = unix.IFA_F_NODAD
	err = netlink.AddrAdd(link, a)
	if a.IP.To4() == nil && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)) {
		return nil // a host without IPv6
	}
	return err
}

func addRoute(name, gateway string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	to := net.ParseIP(gateway)
	err = netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: to})
	if to.To4() == nil {
		return nil // a host without IPv6
	}
	return err
}
