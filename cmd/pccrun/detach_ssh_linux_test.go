package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
)

// A run goes on when the connection is gone by which it was started, and comes to another one. What was started in that
// connection without --detach, the control, is gone.
//
//test:root
func TestDetachedOutlivesSSH(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 { // sshd writes login records of a terminal, and ends where it may not
		t.Skip("needs root")
	}
	server, err := exec.LookPath("sshd")
	if err != nil {
		server = "/usr/sbin/sshd"
	}
	for _, program := range []string{server, "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs sshd and ssh")
		}
	}
	who, err := user.Current()
	require.NoError(t, err)
	p := newPupil(t)
	for _, name := range []string{"host", "client"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", p.home+"/"+name).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	p.write("sshd", fmt.Sprintf("HostKey %s/host\nAuthorizedKeysFile %s/client.pub\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPidFile none\n", p.home, p.home), 0o600)
	// A server of root's wants it, and where none was ever started by its unit nobody has made it.
	if err := os.Mkdir("/run/sshd", 0o755); err == nil {
		t.Cleanup(func() { os.Remove("/run/sshd") })
	}
	program, err := exec.LookPath("pccrun")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(p.home+"/bin", 0o755))
	require.NoError(t, os.Symlink(program, p.home+"/bin/pccrun"))
	p.write("project/inside.sh", `echo "it lives."
while read line; do echo "read $line."; [ "$line" != end ] || exit 6; done
`, 0o644)

	at, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer at.Close()
	connections := make(chan net.Conn, 2)
	go func() {
		for {
			c, err := at.Accept()
			if err != nil {
				return
			}
			f, err := c.(*net.TCPConn).File()
			if err == nil {
				sshd := exec.Command(server, "-i", "-f", p.home+"/sshd")
				sshd.Stdin, sshd.Stdout = f, f
				err = errors.Join(sshd.Start(), f.Close())
				go sshd.Wait()
			}
			if err != nil {
				c.Close()
			}
			connections <- c
		}
	}()
	_, port, err := net.SplitHostPort(at.Addr().String())
	require.NoError(t, err)
	connect := func(script string) (ssh *exec.Cmd, typed *os.File, shown *printedText) {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() { w.Close() })
		shown = &printedText{}
		ssh = exec.Command("ssh", "-F", "none", "-i", p.home+"/client", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes", "-tt", "-p", port,
			who.Username+"@127.0.0.1", fmt.Sprintf("cd %s && export HOME=%s PATH=%s/bin:$PATH TERM=xterm; %s", p.dir, p.home, p.home, script))
		ssh.Stdin, ssh.Stdout, ssh.Stderr = r, shown, shown
		require.NoError(t, ssh.Start())
		r.Close()
		t.Cleanup(func() { ssh.Process.Kill() })
		return ssh, w, shown
	}

	mark := "control-" + strings.TrimPrefix(p.home, "/")
	first, _, shown := connect("pccrun -q --detach -- sh inside.sh > id; echo status $?; exec sh -c 'echo and \"now.\"; sleep 600' " + mark)
	await.Until(t, "it has started", func() bool { return strings.Contains(shown.String(), "and now.") })
	require.Contains(t, shown.String(), "status 0")
	text, err := os.ReadFile(p.dir + "/id")
	require.NoError(t, err)
	id := strings.TrimSpace(string(text))
	t.Cleanup(func() { p.ends(id) })
	require.NoError(t, first.Process.Kill())
	_ = first.Wait()
	connection := await.Receive(t, "the connection", connections)
	require.NoError(t, connection.Close())
	await.Until(t, "what was in the connection is gone", func() bool { return len(having(mark)) == 0 })

	second, typed, shown := connect("pccrun attach " + id)
	await.Until(t, "it lives", func() bool { return strings.Contains(shown.String(), "it lives.") })
	_, err = typed.WriteString("words\nend\n")
	require.NoError(t, err)
	require.NoError(t, ignoreExit(second.Wait()))
	require.Equal(t, 6, second.ProcessState.ExitCode(), shown.String())
	require.Contains(t, shown.String(), "read words.")
}
