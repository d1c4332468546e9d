package egress

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSSH clones by ssh from a real server, with a key, as it would outside:
// nothing tells ssh of a proxy.
func TestSSH(t *testing.T) {
	server, err := exec.LookPath("sshd")
	if err != nil {
		server = "/usr/sbin/sshd"
	}
	for _, program := range []string{server, "ssh", "ssh-keygen", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs sshd, ssh and git")
		}
	}
	who, err := user.Current()
	require.NoError(t, err)
	keys := t.TempDir()
	for _, name := range []string{"host", "client"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(keys, name)).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	config := filepath.Join(keys, "config")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "HostKey %s\nAuthorizedKeysFile %s\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPidFile none\n",
		filepath.Join(keys, "host"), filepath.Join(keys, "client.pub")), 0o600))
	// A server of root's wants it, and where none was ever started by its unit
	// nobody has made it.
	if err := os.Mkdir("/run/sshd", 0o755); err == nil {
		t.Cleanup(func() { os.Remove("/run/sshd") })
	}
	const at, at22 = git4 + ":22", "git.good.example:22"
	theWorld.mu.Lock()
	theWorld.serve[at] = func(c net.Conn) {
		defer c.Close()
		f, err := c.(*net.TCPConn).File()
		if err != nil {
			return
		}
		defer f.Close()
		sshd := exec.Command(server, "-i", "-f", config)
		sshd.Stdin, sshd.Stdout = f, f
		_ = sshd.Run()
	}
	theWorld.mu.Unlock()
	t.Cleanup(func() {
		theWorld.mu.Lock()
		defer theWorld.mu.Unlock()
		delete(theWorld.serve, at)
	})
	for _, allow := range []string{at22, "git.good.example"} {
		b := newBench(t, "--allow", allow)
		key, err := os.ReadFile(filepath.Join(keys, "client"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, "key"), key, 0o600))
		script := fmt.Sprintf(`export GIT_SSH_COMMAND="ssh -F none -i $PWD/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes"
d=$(mktemp -d); git clone -q ssh://%s@git.good.example%s/files/repo.git $d/clone 2>&1 && cat $d/clone/file`, who.Username, shared)
		var out string
		_, reached := theWorld.since(func() { out, _ = b.inside(script) })
		if allow == at22 {
			require.Contains(t, out, "content")
			continue
		}
		require.NotContains(t, out, "content", "port 22 is never implied")
		require.Contains(t, out, "to allow: --allow "+at22, "the user is told")
		require.Empty(t, reached)
	}
}
