package namespaces

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/profiles"
)

// connection returns one end of a TCP connection over loopback, and the port of
// its listener.
func connection(t *testing.T) (*os.File, int) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp4", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	f, err := c.(*net.TCPConn).File()
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f, l.Addr().(*net.TCPAddr).Port
}

// handedRole uses a socket that it was handed: "anew" takes it off its peer and
// connects it to a port of the loopback, "send" sends to a unix socket by its name.
func handedRole(args []string) error {
	fd, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if args[0] == "send" {
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: args[2]})
	}
	port, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	var none unix.RawSockaddrInet4 // of no family
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none)); errno != 0 {
		return errno
	}
	return unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
}

// A socket of the host's network reaches all that the host does, whatever network
// the command has: it is refused.
func TestHandedNetwork(t *testing.T) {
	_, secret := connection(t) // what the command may not reach
	b := newBench(t, nil)
	stream, _ := connection(t)
	port := strconv.Itoa(secret)
	b.plan.PassFDs = []int{int(stream.Fd())}
	require.Zero(t, b.in("handed", "anew", strconv.Itoa(int(stream.Fd())), port).run().Status, "control: a connection that was handed in is made anew")
	b.plan.PassFDs = nil
	require.NotZero(t, b.in("connect", port).run().Status, "the sandbox's own do not")

	datagrams, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer datagrams.Close()
	d, err := datagrams.(*net.UDPConn).File()
	require.NoError(t, err)
	defer d.Close()
	for _, f := range []*os.File{stream, d} {
		err := b.plan.JudgePassing([]int{int(f.Fd())})
		var refused *hint.Error
		require.ErrorAs(t, err, &refused)
		require.ErrorContains(t, err, fmt.Sprintf("--pass-fd %d: a network socket", f.Fd()))
		require.NotEmpty(t, refused.Hint())
	}
	b.plan.Without = []profiles.Layer{profiles.LayerNetns}
	require.NoError(t, b.plan.JudgePassing([]int{int(d.Fd())}), "what the command has anyway")
}

// A unix socket for datagrams reaches abstract names of the host's, but for
// Landlock.
func TestHandedDatagrams(t *testing.T) {
	const name = "\x00pccrun-test-handed"
	far, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(far)
	at := fmt.Sprintf("%s-%d", name, os.Getpid())
	require.NoError(t, unix.Bind(far, &unix.SockaddrUnix{Name: "@" + at[1:]}))
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	stream, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(stream[0])
	defer unix.Close(stream[1])

	b := newBench(t, nil)
	reaches := func() bool {
		b.plan.PassFDs = pair[:1]
		return b.in("handed", "send", strconv.Itoa(pair[0]), "@"+at[1:]).run().Status == 0
	}
	if b.plan.Landlock >= landlockScope {
		require.NoError(t, b.plan.JudgePassing(pair[:1]))
		require.False(t, reaches())
	}
	b.plan.Without = []profiles.Layer{profiles.LayerLandlock}
	require.ErrorContains(t, b.plan.JudgePassing(pair[:1]), "a unix socket, which the command could connect to other")
	require.True(t, reaches(), "control")
	require.NoError(t, b.plan.JudgePassing(stream[:1]), "one that is connected stays so")
	alone, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(alone)
	require.Error(t, b.plan.JudgePassing([]int{alone}))
}

// The same for the standard descriptors.
func TestHandedStandard(t *testing.T) {
	b := newBench(t, nil)
	d, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer d.Close()
	f, err := d.(*net.UDPConn).File()
	require.NoError(t, err)
	defer f.Close()
	saved, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3)
	require.NoError(t, err)
	defer func() {
		require.NoError(t, unix.Dup3(saved, 0, 0))
		unix.Close(saved)
	}()
	require.NoError(t, unix.Dup3(int(f.Fd()), 0, 0))
	err = b.plan.JudgeHanded(&Stdio{Fds: [3]int{0, 40, Terminal}})
	require.ErrorContains(t, err, "standard input: a network socket")
	require.NoError(t, b.plan.JudgeHanded(&Stdio{Fds: [3]int{41, 40, Terminal}}), "a pipe stands in its place")
}
