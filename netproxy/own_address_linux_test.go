package netproxy

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestOwnSecondAddress: a machine with two addresses in one network has both.
func TestOwnSecondAddress(t *testing.T) {
	if os.Getenv("NETPROXY_TEST_OWN") == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestOwnSecondAddress$", "-test.v")
		cmd.Env = []string{"NETPROXY_TEST_OWN=1"}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	lo, err := netlink.LinkByName("lo")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetUp(lo))
	first, second := netip.MustParseAddr("52.1.1.1"), netip.MustParseAddr("52.1.1.2")
	for _, own := range []netip.Addr{first, second} {
		address, err := netlink.ParseAddr(own.String() + "/8")
		require.NoError(t, err)
		require.NoError(t, netlink.AddrAdd(lo, address))
	}

	require.False(t, isSource(second), "the control: a socket toward it has the first for its source")
	require.True(t, isSource(first))
	require.True(t, isOwn(first))
	require.True(t, isOwn(second))
	require.True(t, isOwn(netip.MustParseAddr("::1")))
	require.False(t, isOwn(netip.MustParseAddr("53.1.1.1")), "there is no way there")
	require.False(t, isOwn(netip.MustParseAddr("2606:4700::1")))

	// Without a descriptor nobody can say, and there may be one for the dial.
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}))
	own := []bool{isOwn(first), isOwn(second), isOwn(netip.MustParseAddr("53.1.1.1"))}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.Equal(t, []bool{true, true, true}, own)
}

// TestLocalRoute: a route that leads all addresses back makes none the machine's own.
func TestLocalRoute(t *testing.T) {
	for text, own := range map[string]bool{"52.1.1.1/32": true, "52.1.1.0/24": true, "0.0.0.0/0": false, "::1/128": true, "::/0": false} {
		_, to, err := net.ParseCIDR(text)
		require.NoError(t, err)
		require.Equal(t, own, isLocalRoute(&netlink.Route{Dst: to, Type: unix.RTN_LOCAL}), text)
		require.Equal(t, own, isLocalRoute(&netlink.Route{Dst: to, Type: unix.RTN_ANYCAST}), text)
		require.False(t, isLocalRoute(&netlink.Route{Dst: to, Type: unix.RTN_UNICAST}), text)
	}
	require.False(t, isLocalRoute(&netlink.Route{Type: unix.RTN_LOCAL}))
}
