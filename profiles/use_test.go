//go:build linux || darwin

package profiles

import (
	"crypto/sha1"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUse(t *testing.T) {
	w := newWorld(t)
	dir, err := os.MkdirTemp("/tmp", "use") // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	listen := func(name string) string {
		l, err := net.Listen("unix", name)
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		return name
	}
	agent, docker := listen(dir+"/agent"), listen(dir+"/docker.sock")
	gnupg := dir + "/gnupg"
	require.NoError(t, os.Mkdir(gnupg, 0o700))
	listen(gnupg + "/S.gpg-agent")
	extra := listen(gnupg + "/S.gpg-agent.extra")
	require.NoError(t, os.WriteFile(gnupg+"/pubring.kbx", nil, 0o600))
	use := func(environ []string, names ...string) (*Policy, error) {
		return w.with(func(r *Request) { r.Use, r.Host.UID, r.Host.Environ = names, 4242, append(r.Host.Environ, environ...) })
	}
	p, err := use([]string{"SSH_AUTH_SOCK=" + agent, "DOCKER_HOST=unix://" + docker, "GNUPGHOME=" + gnupg}, "ssh-agent", "docker", "gpg-agent")
	require.NoError(t, err)
	require.True(t, p.Uses("docker"))
	require.Equal(t, agent, p.Network.Sockets[0].Path)
	require.Equal(t, docker, p.Network.Sockets[1].Path)
	require.Equal(t, PathRule{Path: extra, At: gnupg + "/S.gpg-agent", Origin: Origin{Source: "flag", Key: "--use"}}, p.Network.Sockets[3])
	require.Equal(t, Read, p.Decide(gnupg+"/pubring.kbx").Access)
	for _, name := range []string{"SSH_AUTH_SOCK", "DOCKER_HOST", "GNUPGHOME"} {
		require.Equal(t, EnvPassed, p.DecideEnv(name).Action, name)
	}
	for _, c := range []struct{ environ, name, want string }{
		{"X=", "ssh-agent", "no agent runs here"}, {"SSH_AUTH_SOCK=/gone", "ssh-agent", "nothing listens at /gone"}, {"GNUPGHOME=/gone", "gpg-agent", "no agent listens"},
		{"DOCKER_HOST=tcp://x:1", "docker", "no socket"}, {"DOCKER_HOST=unix:///gone", "docker", "nothing listens at /gone"}, {"X=", "x11", "not given"}, {"X=", "ssh", "unknown service"},
	} {
		_, err := use([]string{c.environ}, c.name)
		require.ErrorContains(t, err, c.want)
	}
	_, err = w.with(func(r *Request) { r.Use, r.Host.UID = []string{"ssh-agent"}, 0 })
	require.ErrorContains(t, err, "root")
	sum := sha1.Sum([]byte("/tmp/xx"))
	require.Equal(t, "e95q5mkqb19qu7wzqjp386kr", zbase32(sum[:15]), "as gpgconf --list-dirs has it")
}
