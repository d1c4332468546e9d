//go:build linux || darwin

package profiles

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWarnOfSockets: who shows an engine's socket is told what that is worth, each
// time; who shows another one is not.
func TestWarnOfSockets(t *testing.T) {
	w := newWorld(t)
	for socket, as := range map[string]string{
		"/run/docker.sock": "root", "/var/run/docker.sock": "root", "/run/user/1000/docker.sock": "you", w.home + "/.docker/run/docker.sock": "you",
		"/run/podman/podman.sock": "root", "/run/containerd/containerd.sock": "root", "/run/dbus/system_bus_socket": "root", "/run/user/1000/bus": "you",
		"/var/lib/incus/unix.socket":    "root",
		"/run/postgresql/.s.PGSQL.5432": "", "/tmp/ssh-abc/agent.1": "", "/srv/app/unix.socket": "", "/srv/docker.sock.d/x": "",
	} {
		p := w.policy(func(r *Request) { r.Sockets = []string{socket} })
		if as == "" {
			require.Empty(t, p.Warnings, socket)
			continue
		}
		require.Len(t, p.Warnings, 1, socket)
		require.Contains(t, p.Warnings[0], "the socket "+socket+" is shown")
		require.Contains(t, p.Warnings[0], "as "+as+" (")
		require.Contains(t, p.Warnings[0], "--socket")
	}
}
