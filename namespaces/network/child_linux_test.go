package network

import (
	"encoding/json"
	"errors"
	"fmt"
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

// A child is a process in a network namespace of its own, as the sandbox's
// pid 1 is: it opens the sockets, hands them out, and then does what it is told.
type child struct {
	t       *testing.T
	control int
	cmd     *exec.Cmd
}

// A task is what the child is told to do.
type task struct {
	Network, Address string // net.Dial
	Send             string
	As               packets // other than the usual ones
	Listen           string  // a server in the namespace, for the child to talk to
	Timeout          time.Duration
}

// An outcome is what became of it.
type outcome struct {
	Errno  syscall.Errno
	Error  string
	Answer string
	From   string
	Shows  bool // the connection has the property that its packets were to have
}

func startChild(t *testing.T, p *Plan) (*child, []int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	theirs := os.NewFile(uintptr(pair[1]), "theirs")
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestChild$")
	sockets, err := json.Marshal(p.Sockets())
	require.NoError(t, err)
	cmd.Env = []string{"NETWORK_TEST_SOCKETS=" + string(sockets)}
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
	c := &child{t, pair[0], cmd}
	t.Cleanup(func() {
		unix.Close(c.control)
		cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	require.NoError(t, unix.SetsockoptTimeval(c.control, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(await.Patience / time.Second)}))
	b, oob := make([]byte, 1), make([]byte, 256)
	_, n, _, _, err := unix.Recvmsg(c.control, b, oob, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR { // with a timeout it is not begun again, signal(7)
		_, n, _, _, err = unix.Recvmsg(c.control, b, oob, unix.MSG_CMSG_CLOEXEC)
	}
	require.NoError(t, err)
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	require.NoError(t, err)
	require.Len(t, messages, 1, out.String())
	fds, err := unix.ParseUnixRights(&messages[0])
	require.NoError(t, err)
	return c, fds
}

// do has the child carry out a task.
func (c *child) do(k task) outcome {
	c.t.Helper()
	b, err := json.Marshal(k)
	require.NoError(c.t, err)
	require.NoError(c.t, unix.Send(c.control, b, 0))
	buf := make([]byte, 64<<10)
	n, err := unix.Read(c.control, buf)
	for err == unix.EINTR {
		n, err = unix.Read(c.control, buf)
	}
	require.NoError(c.t, err)
	var o outcome
	require.NoError(c.t, json.Unmarshal(buf[:n], &o))
	return o
}

// TestChild is the child.
func TestChild(t *testing.T) {
	text := os.Getenv("NETWORK_TEST_SOCKETS")
	if text == "" {
		t.Skip("needs startChild, which runs it in a namespace")
	}
	lo, err := netlink.LinkByName("lo")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetUp(lo))
	anyFastOpen()
	var sockets []Socket
	require.NoError(t, json.Unmarshal([]byte(text), &sockets))
	var fds []int
	for _, s := range sockets {
		fd, err := unix.Socket(s.Domain, s.Type|unix.SOCK_CLOEXEC, s.Protocol)
		require.NoError(t, err)
		fds = append(fds, fd)
	}
	require.NoError(t, unix.Sendmsg(3, []byte{0}, unix.UnixRights(fds...), nil, 0))
	for _, fd := range fds {
		unix.Close(fd)
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(3, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		var k task
		require.NoError(t, json.Unmarshal(buf[:n], &k))
		b, err := json.Marshal(k.run())
		require.NoError(t, err)
		require.NoError(t, unix.Send(3, b, 0))
	}
}

func (k task) run() (o outcome) {
	fail := func(err error) outcome {
		o.Error = err.Error()
		errors.As(err, &o.Errno)
		return o
	}
	if k.Timeout == 0 {
		k.Timeout = await.Patience
	}
	if k.Listen != "" {
		l, err := net.Listen(k.Network, k.Listen)
		if err != nil {
			return fail(err)
		}
		go func() {
			c, err := l.Accept()
			if err == nil {
				fmt.Fprint(c, "own")
				c.Close()
			}
			l.Close()
		}()
		k.Address = l.Addr().String()
	}
	if k.As.raw() {
		return k.knock()
	}
	c, err := k.dial()
	if err != nil {
		return fail(err)
	}
	defer c.Close()
	o.Shows = k.As.shows(c)
	o.From = c.LocalAddr().String()
	c.SetDeadline(time.Now().Add(k.Timeout))
	fmt.Fprint(c, k.Send)
	buf := make([]byte, 1024)
	n, err := c.Read(buf)
	if o.Answer = string(buf[:n]); n == 0 && err != nil {
		return fail(err)
	}
	return o
}
