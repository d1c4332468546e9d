package escape

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

func netProbes() []Probe {
	refused := errnos("ECONNREFUSED ENETUNREACH EHOSTUNREACH EPERM EACCES EADDRNOTAVAIL")
	return slices.Concat([]Probe{
		{ID: "NET-001", Name: "the host's loopback by TCP", Guarantee: profiles.NetAllowlist, Severity: Critical,
			Expect: "ECONNREFUSED or ENETUNREACH", Errnos: refused, References: refs("CVE-2020-15257"), Key: "network.local",
			Explain: "Databases, debuggers and control ports on 127.0.0.1 trust whoever reaches them.",
			Payload: func(in *Inside) Outcome { return in.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", in.TCP4)) },
			Observe: hitDecides("tcp4")},
		{ID: "NET-002", Name: "the host's loopback by IPv6", Guarantee: profiles.NetAllowlist, Severity: Critical,
			Expect: "ECONNREFUSED or ENETUNREACH", Errnos: refused, References: refs("srt: IPv6 tests"), Key: "network.local",
			Explain: "A rule that was written for IPv4 forgets ::1.",
			Payload: func(in *Inside) Outcome {
				if in.TCP6 == 0 {
					return Needing("IPv6 on the host")
				}
				return in.Dial("tcp6", fmt.Sprintf("[::1]:%d", in.TCP6))
			},
			Observe: hitDecides("tcp6")},
		{ID: "NET-003", Name: "the host's own address, and beyond", Guarantee: profiles.NetAllowlist, Severity: Critical, Setting: Caged,
			Expect: "ENETUNREACH with no network, ECONNREFUSED with any", Errnos: refused, Key: "network.allow",
			Explain: "Services bound to 0.0.0.0, the neighbours in the office, the internet.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Dial("tcp4", in.Address+":8080"), in.Dial("tcp4", in.Peers["evil.test"]+":80"), in.Dial("tcp4", internetAddress+":22"))
			},
			Observe: hitDecides("tcp ", "host address")},
		{ID: "NET-004", Name: "UDP out", Guarantee: profiles.NetAllowlist, Severity: High, Setting: Caged,
			Expect: "no packet arrives", References: refs("QUIC"), Key: "network.allow",
			Explain: "HTTP/3, DNS tunnels and plain datagrams pass by a proxy that knows TCP.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", in.UDP4)), in.Dial("udp4", in.Peers["evil.test"]+":443"), in.Dial("udp4", in.Peers["evil.test"]+":9999"))
			},
			Observe: hitDecides("udp")},
		{ID: "NET-005", Name: "raw sockets and ICMP", Guarantee: profiles.NetAllowlist, Severity: High, Setting: Caged,
			Expect: "EPERM", Errnos: errnos("EPERM EACCES EAFNOSUPPORT ENOSYS EPROTONOSUPPORT"), References: refs("CVE-2025-55284"), Key: "network.allow",
			Explain: "ping carries data out in its payload.",
			Payload: func(in *Inside) Outcome {
				return Any(trySocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, "raw ICMP"), trySocket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6, "raw ICMPv6"), trySocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, "raw IP"))
			}},
		{ID: "NET-006", Name: "ping sockets", Guarantee: profiles.NetAllowlist, Severity: Medium, Setting: Caged,
			Expect: "EACCES, EPERM or no route", Errnos: slices.Concat(refused, errnos("EPROTONOSUPPORT ENOSYS EAFNOSUPPORT")), References: refs("codex: ping test"), Key: "network.allow",
			Explain: "SOCK_DGRAM with ICMP needs no privilege where ping_group_range allows it.",
			Payload: func(in *Inside) Outcome { return ping(in.Peers["evil.test"]) }},
		{ID: "NET-007", Name: "interfaces of the host", Guarantee: profiles.NetAllowlist, Severity: Medium, Setting: Caged,
			Expect: "loopback only", Key: "network",
			Explain: "An interface that is in sight is one that can be listened on.",
			Payload: func(in *Inside) Outcome {
				list, err := net.Interfaces()
				blockedBy(err)
				for _, i := range list {
					if i.Name == "cage0" {
						return Escaped("%s is in sight", i.Name)
					}
				}
				return Blocked("%d interfaces, none of the host's", len(list))
			}},
		{ID: "NET-008", Name: "TCP fast open without connect", Guarantee: profiles.NetAllowlist, Severity: High, Setting: Caged,
			Expect: "ECONNREFUSED or ENETUNREACH", Errnos: slices.Concat(refused, errnos("EOPNOTSUPP EPIPE EINPROGRESS")), Key: "network.allow",
			Explain: "sendto with MSG_FASTOPEN opens a connection: a filter on connect does not see it.",
			Payload: func(in *Inside) Outcome {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				blockedBy(err, "socket")
				defer unix.Close(fd)
				a := netip.MustParseAddr(in.Peers["evil.test"]).As4()
				unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 1})
				err = unix.Sendto(fd, []byte("hello\n"), unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL, &unix.SockaddrInet4{Port: 2375, Addr: a})
				return Attempt(err, "sendto(MSG_FASTOPEN)")
			},
			Observe: hitDecides("tcp ")},
		sockets("NET-009", "SCTP, DCCP, UDP-Lite", Medium, "Landlock and many proxies know TCP only.", []string{"landlock(7)"},
			[][3]int{{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, {unix.AF_INET, 6, unix.IPPROTO_DCCP}, {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE}}),
		{ID: "NET-010", Name: "multipath TCP", Guarantee: profiles.NetAllowlist, Severity: High, Setting: Caged,
			Expect: "ECONNREFUSED or ENETUNREACH", Errnos: slices.Concat(refused, errnos("EPROTONOSUPPORT")), References: refs("landlock(7)"), Key: "network.allow",
			Explain: "Protocol 262 connects as TCP does; old Landlock did not see it.",
			Payload: func(in *Inside) Outcome {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 262)
				if err == unix.EPROTONOSUPPORT || err == unix.ENOPROTOOPT || err == unix.EINVAL {
					if in.Control {
						return Needing("multipath TCP in the kernel")
					}
					return Blocked("socket: %v", err)
				}
				blockedBy(err, "socket")
				defer unix.Close(fd)
				return Attempt(unix.Connect(fd, &unix.SockaddrInet4{Port: 22, Addr: netip.MustParseAddr(in.Peers["evil.test"]).As4()}), "connect by multipath TCP")
			}},
		{ID: "NET-011", Name: "connect by io_uring", Guarantee: profiles.SysFilter, Severity: Critical,
			Expect: "the ring cannot be made", Errnos: errnos("EPERM ENOSYS"), References: refs("birdcage issue 32"), Key: "syscalls",
			Explain: "IORING_OP_SOCKET and CONNECT pass by a filter of system calls.",
			Payload: func(in *Inside) Outcome { return ringReads(in, "") }},
		{ID: "NET-012", Name: "without the proxy's variables", Guarantee: profiles.NetAllowlist, Severity: Critical, Setting: Caged | Proxy,
			Expect: "as any other destination that is not allowed", Flags: allowTest, References: refs("GHSA-72w7-mf9g-733p"), Key: "network.allow",
			Explain: "A proxy that only variables point to is passed by whoever unsets them.",
			Payload: func(in *Inside) Outcome {
				os.Unsetenv("HTTPS_PROXY")
				os.Unsetenv("ALL_PROXY")
				return Any(in.Dial("tcp4", in.Peers["evil.test"]+":443"), in.Dial("tcp4", in.Peers["evil.test"]+":80"), in.Dial("tcp4", in.Peers["evil.test"]+":22"))
			},
			Observe: hitDecides("tcp 20.0.0.66")},
		{ID: "NET-013", Name: "an empty list allows nothing", Guarantee: profiles.NetAllowlist, Severity: Critical, Setting: Caged,
			Expect: "nothing is reached, by name or address", References: refs("CVE-2025-66479"), Key: "network.allow",
			Explain: "An empty list that is taken for no list is free egress.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Dial("tcp", "allowed.test:80"), in.Dial("tcp", "evil.test:80"), in.Dial("tcp4", in.Peers["allowed.test"]+":443"), in.viaProxy("CONNECT", "evil.test:443"))
			},
			Observe: hitDecides("tcp ", "dns evil", "dns allowed")},
		{ID: "NET-042", Name: "the host reaches a listener inside", Guarantee: profiles.NetAllowlist, Severity: Medium,
			Expect: "unreachable unless published", Key: "network.publish",
			Explain: "A server of the payload's on the host's address answers to the network.",
			Payload: func(in *Inside) Outcome {
				l, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", in.Published))
				blockedBy(err, "listen")
				defer l.Close()
				report(in.Nonce, Blocked("listens"))
				l.(*net.TCPListener).SetDeadline(time.Now().Add(patience(time.Second)))
				c, err := l.Accept()
				if err == nil {
					c.Close()
				}
				return Blocked("listened: %v", cause(err))
			},
			Drive: func(d *Drive) Outcome {
				cmd, out := d.begin()
				defer d.sweep()
				reached := false
				for range 40 {
					c, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", d.Published), patience(time.Second))
					if reached = err == nil; reached {
						c.Close()
						break
					}
					time.Sleep(25 * time.Millisecond)
				}
				o := d.judge(d.wait(cmd, out))
				if o.Kind == DidBlock && reached {
					return Escaped("the host reached port %d", d.Published)
				}
				return o
			}},
		{ID: "NET-045", Name: "git and ssh by their own ways", Guarantee: profiles.NetAllowlist, Severity: High, Setting: Caged,
			Expect: "as NET-003", References: refs("codex: ssh test"), Key: "network.allow",
			Explain: "Port 22 with a banner, as ssh would begin; git's own protocol on 9418 falls to the same rule.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Dial("tcp4", in.Peers["evil.test"]+":22"), in.viaProxy("CONNECT", in.Peers["evil.test"]+":22"))
			},
			Observe: hitDecides("tcp ")},
		{ID: "NET-047", Name: "link-local and scoped addresses", Guarantee: profiles.NetAllowlist, Severity: Medium, Setting: Caged,
			Expect: "as NET-003", Errnos: slices.Concat(refused, errnos("EINVAL ENODEV")), References: refs("CVE-2020-13401"), Key: "network.allow",
			Explain: "Neighbours on the link answer without a route.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Dial("tcp6", "[fd77::1]:22"), in.Dial("tcp6", "[fe80::1%cage0]:22"), in.Dial("tcp4", internetAddress+":25"))
			},
			Observe: hitDecides("tcp ")},
		{ID: "NET-049", Name: "broadcast and multicast", Guarantee: profiles.NetAllowlist, Severity: Medium, Setting: Caged,
			Expect: "ENETUNREACH or EPERM", Key: "network.allow",
			Explain: "SSDP and mDNS speak to everybody on the link.",
			Payload: func(in *Inside) Outcome {
				return each([]string{"10.77.0.255:9999", "239.255.255.250:9999"}, func(address string) Outcome {
					c, err := net.Dial("udp4", address)
					if err == nil {
						if raw, e := c.(*net.UDPConn).SyscallConn(); e == nil {
							raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1) })
						}
						_, err = c.Write([]byte("canary"))
						c.Close()
					}
					return Attempt(err, "send to %s", address)
				})
			}},
		{ID: "NET-050", Name: "change the routes", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged,
			Expect: "EPERM", Errnos: errnos("EPERM ENOSYS EAFNOSUPPORT"), References: refs("rtnetlink(7)"), Key: "network",
			Explain: "Whoever may change addresses and routes turns the capture off.",
			Payload: func(in *Inside) Outcome { return Attempt(addAddress("lo", "203.0.113.9/32"), "add an address") }},
		{ID: "NET-051", Name: "a tunnel device", Guarantee: profiles.NetAllowlist, Severity: High, Setting: Caged,
			Expect: "ENOENT or EPERM", Errnos: errnos("ENOENT EPERM EACCES ENODEV"), Key: "network",
			Explain: "A TUN device makes an interface of the payload's own.",
			Payload: func(in *Inside) Outcome {
				fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
				if err != nil && in.Control {
					return Needing("a /dev/net/tun that users may open")
				}
				blockedBy(err, "open /dev/net/tun")
				defer unix.Close(fd)
				ifr, _ := unix.NewIfreq("tun9")
				ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
				return Attempt(unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr), "make a TUN device")
			}},
		{ID: "NET-052", Name: "privileged ports", Guarantee: profiles.PrivNone, Severity: Low, Setting: Caged, Needs: []Need{NeedDesktop},
			Expect: "as the profile says", Key: "network.publish", Explain: "Not an escape: ports below 1024 inside are the sandbox's own."},
	}, handedProbes(), proxyProbes())
}

// allowTest is the list under which probes attack a proxy.
var allowTest = []string{"--allow", "allowed.test", "--allow", "*.wild.test", "--deny", "denied.test"}

// addressFlags allow names whose addresses must be refused all the same.
var addressFlags = map[string][]string{
	"NET-035": {"--allow", "rebind.test:{port}", "--allow", "mixed.test:{port}", "--allow", "loop.test:{port}"},
	"NET-036": {"--allow", "meta.test:80", "--allow", "metadata.google.internal:80"},
	"NET-037": {
		"--allow", "private.test:80", "--allow", "private192.test:80", "--allow", "cgnat.test:80", "--allow", "meta.test:80", "--allow", "host.test:8080",
		"--allow", "zero.test:8080", "--allow", "loop.test:8080", "--allow", "mapped.test:80", "--allow", "nat64.test:80",
	},
}

// hitDecides looks whether anything arrived at listeners whose names begin so.
func hitDecides(prefixes ...string) func(*Outside, Outcome) Outcome {
	return func(out *Outside, o Outcome) Outcome {
		time.Sleep(20 * time.Millisecond)
		for _, prefix := range prefixes {
			if hits := out.Hits(prefix); len(hits) > 0 {
				return Escaped("arrived outside: %s", hits[0])
			}
		}
		return o
	}
}

func ping(address string) Outcome {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		// ping_group_range shuts it for everybody: the raw socket is the same way out
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	}
	blockedBy(err, "socket")
	defer unix.Close(fd)
	echo := []byte{8, 0, 0, 0, 0, 1, 0, 1, 'c', 'a', 'n', 'a', 'r', 'y', 0, 0}
	var sum uint32
	for i := 0; i < len(echo); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(echo[i:]))
	}
	binary.BigEndian.PutUint16(echo[2:], ^uint16(sum+sum>>16))
	err = unix.Sendto(fd, echo, 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(address).As4()})
	return Attempt(err, "send an echo request to %s", address)
}

// A proxyCase is one request that a proxy must not forward to where it leads.
type proxyCase struct {
	id, name string
	g        profiles.Guarantee
	severity Severity
	expect   string
	refs     []string
	why      string
	try      func(*Inside) Outcome
	observe  []string // beginnings of hits that show an escape; nil: the payload decides
}

func connects(targets ...string) func(*Inside) Outcome {
	return func(in *Inside) Outcome {
		return each(targets, func(target string) Outcome {
			target = strings.ReplaceAll(target, "{port}", strconv.Itoa(in.TCP4))
			target = strings.ReplaceAll(target, "{port6}", strconv.Itoa(in.TCP6))
			return in.viaProxy("CONNECT", target)
		})
	}
}

var resolverSockets = []string{"/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve", "/run/avahi-daemon/socket", "/run/dbus/system_bus_socket", "/run/docker.sock", "/run/containerd/containerd.sock"}
