package netproxy

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
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
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	first, second := netip.MustParseAddr("52.1.1.1"), netip.MustParseAddr("52.1.1.2")
	for _, at := range []struct {
		name string
		addr netip.Addr
	}{{"lo", netip.Addr{}}, {"lo:1", first}, {"lo:2", second}} {
		ifr, err := unix.NewIfreq(at.name)
		require.NoError(t, err)
		if !at.addr.IsValid() {
			ifr.SetUint16(unix.IFF_UP)
			require.NoError(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
			continue
		}
		require.NoError(t, ifr.SetInet4Addr(at.addr.AsSlice()))
		require.NoError(t, unix.IoctlIfreq(fd, unix.SIOCSIFADDR, ifr))
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

// FuzzLocalRoute: what is no answer makes an address the host's own, and so
// refused.
func FuzzLocalRoute(f *testing.F) {
	message := func(kind uint16, body ...byte) []byte {
		b := make([]byte, 16)
		binary.NativeEndian.PutUint16(b[4:], kind)
		return append(b, body...)
	}
	f.Add(message(unix.RTM_NEWROUTE, 2, 32, 0, 0, 254, 0, 0, 2, 0, 0, 0, 0))
	f.Add(message(unix.NLMSG_ERROR, binary.NativeEndian.AppendUint32(nil, uint32(0x100000000-int64(unix.ENETUNREACH)))...))
	f.Add(message(unix.NLMSG_ERROR, bytes.Repeat([]byte{0xff}, 4)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if isLocalRoute(b) {
			return
		}
		kind := binary.NativeEndian.Uint16(b[4:])
		require.True(t, kind == unix.RTM_NEWROUTE && len(b) >= 28 || kind == unix.NLMSG_ERROR && len(b) >= 20)
	})
}
