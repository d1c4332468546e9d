package netproxy

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// isOwn asks the kernel's routes whether a is one of this machine's own at this
// moment: what is sent there comes back in (RTM_GETROUTE, rtnetlink(7)). [isSource]
// does not tell all: toward a second address of the same network the source is the
// first one. It is asked where the kernel knows no route, and where the kernel cannot
// be asked; any other answer makes a its own.
func isOwn(a netip.Addr) bool {
	routes, err := netlink.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	switch {
	case err == nil:
		return len(routes) != 1 || isLocalRoute(&routes[0])
	case isNoRoute(err), isNotAsked(err):
		return isSource(a)
	}
	return true
}

// isNotAsked reports whether an error is that there is no such question here: a filter forbids the
// socket, or the kernel has none of it.
func isNotAsked(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}

// isLocalRoute reports whether a route leads back to this machine. One that leads all
// addresses back makes none its own: a sandbox has such a one, in which pccrun may run.
func isLocalRoute(r *netlink.Route) bool {
	all := r.Dst == nil
	if !all {
		bits, _ := r.Dst.Mask.Size()
		all = bits == 0
	}
	return !all && (r.Type == unix.RTN_LOCAL || r.Type == unix.RTN_ANYCAST)
}
