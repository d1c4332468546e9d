package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/network"
)

// relayed is the address that a client behind the bare relay connects to.
const relayed = "198.19.0.1"

// relay is the least that can stand in pccrun's place: a client in a network
// namespace, whose connections are captured as pccrun's are and carried to a
// port of the host's loopback, with no rule, no name and no event. It copies as
// [io.Copy] does between two sockets: by splice(2), with pipes of 1 MiB.
func relay(args []string) error {
	if len(args) < 3 {
		return errors.New("relay: want PORT ADDRESS ARGUMENTS")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "theirs")
	cmd := exec.Command("/proc/self/exe", append([]string{"work", "relayed"}, args[1:]...)...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	theirs.Close()
	n, err := capture(pair[0])
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	defer n.Close()
	for _, l := range n.Captured {
		go carry(l, net.JoinHostPort("127.0.0.1", args[0]))
	}
	if _, err := unix.Write(pair[0], []byte{0}); err != nil {
		return err
	}
	err = cmd.Wait()
	_, _ = os.Stdout.Write(out.Bytes())
	return err
}

func plan() *network.Plan {
	return &network.Plan{Range: network.NewRange(1), Allowed: []netip.Prefix{netip.MustParsePrefix("198.19.0.0/16")}}
}

// capture makes the network out of the sockets that the client sends.
func capture(control int) (*network.Net, error) {
	b, oob := make([]byte, 1), make([]byte, 256)
	_, size, _, _, err := unix.Recvmsg(control, b, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:size])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("sockets of the client: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	n, err := plan().Prepare().Open(fds)
	if err != nil {
		return nil, err
	}
	go n.KeepAlive(context.Background()) // pccrun gives signs of life, too
	return n, n.Adopt()
}

func carry(l net.Listener, to string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			up, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer up.Close()
			go func() {
				_, _ = io.Copy(up, c)
				_ = up.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(c, up)
		}()
	}
}

// behind is the client: it opens the sockets, sends them out, waits for the
// network to be made, and works.
func behind(args []string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	var fds []int
	for _, s := range plan().Sockets() {
		fd, err := unix.Socket(s.Domain, s.Type|unix.SOCK_CLOEXEC, s.Protocol)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(fds...), nil, 0); err != nil {
		return err
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	if n, err := unix.Read(3, make([]byte, 1)); err != nil || n == 0 {
		return errors.New("the network was not made: " + strconv.Itoa(n))
	}
	return nil
}
