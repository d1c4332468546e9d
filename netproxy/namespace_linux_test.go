package netproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// TestOtherNamespace serves a listener that a child made in a network
// namespace of its own, in which there is nothing but a loopback: the client
// is in there, and every dial happens out here. The port is that of the host's
// service, which is no loop.
func TestOtherNamespace(t *testing.T) {
	_, port, _ := net.SplitHostPort(server(t, echo))
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestInsideNamespace$", "-test.v")
	cmd.Env = []string{"NETPROXY_TEST_PORT=" + port}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Skip("needs user and network namespaces: ", err)
	}
	theirs.Close()
	defer cmd.Wait()
	defer cmd.Process.Kill()

	b, oob := make([]byte, 1), make([]byte, 64)
	require.NoError(t, unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(await.Patience / time.Second)}))
	_, n, _, _, err := unix.Recvmsg(pair[0], b, oob, unix.MSG_CMSG_CLOEXEC)
	require.NoError(t, err)
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	require.NoError(t, err)
	require.Len(t, messages, 1)
	fds, err := unix.ParseUnixRights(&messages[0])
	require.NoError(t, err)
	file := os.NewFile(uintptr(fds[0]), "listener")
	ln, err := net.FileListener(file)
	file.Close()
	require.NoError(t, err)
	require.False(t, sameNamespace(ln))
	require.True(t, sameNamespace(listen(t)))

	p := New(Config{HTTP: reader(t), Rules: parse(t, "local "+port)})
	defer p.Close()
	go p.Serve(t.Context(), ln)
	require.NoError(t, cmd.Wait(), "%s", &out)
	require.Contains(t, out.String(), "answer: ping")
}

// TestInsideNamespace is the child of TestOtherNamespace.
func TestInsideNamespace(t *testing.T) {
	port := os.Getenv("NETPROXY_TEST_PORT")
	if port == "" {
		t.Skip("needs TestOtherNamespace, which runs it in a namespace")
	}
	lo, err := netlink.LinkByName("lo")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetUp(lo))
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	require.NoError(t, err)
	file, err := ln.(*net.TCPListener).File()
	require.NoError(t, err)
	require.NoError(t, unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(file.Fd())), nil, 0))
	file.Close()
	addr := ln.Addr().String()
	ln.Close()

	_, err = net.Dial("tcp", "192.0.2.1:443")
	require.ErrorIs(t, err, unix.ENETUNREACH, "no way out but the proxy")
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	c.SetDeadline(await.Deadline())
	fmt.Fprintf(c, "CONNECT host.pccrun.internal:%s HTTP/1.1\r\n\r\nping", port)
	c.(*net.TCPConn).CloseWrite()
	br := bufio.NewReader(c)
	line, err := br.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, " 200 ")
	rest, err := io.ReadAll(br)
	require.NoError(t, err)
	fmt.Println("answer:", strings.TrimSpace(string(rest)))
}
