package survey

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

const pem = "-----BEGIN CERTIFICATE-----\n"

func TestPublicTexts(t *testing.T) {
	for text, want := range map[string]bool{
		pem: true, "a comment\n" + pem: true, pem + "-----BEGIN PRIVATE KEY-----\n": false, "": false,
		"ssh-ed25519 AAAA me\n": true, "# x\n\ngithub.com,1.2.3.4 ecdsa-sha2-nistp256 AAAA\n@revoked * ssh-rsa AAAA\n": true,
		"a@b namespaces=\"git\" sk-ssh-ed25519@openssh.com AAAA\n": true, "-----BEGIN OPENSSH PRIVATE KEY-----\n": false,
		"ssh-ed25519 AAAA\npassword\n": false,
	} {
		require.Equal(t, want, isCertificates([]byte(text)) || isPublicKeys([]byte(text)), text)
	}
}

func readSSHConfig(text, home string, agent bool) *sshConfig {
	c := &sshConfig{home: home, agent: agent, left: maxSSHFiles}
	c.read(text, "", 0)
	return c
}

// Of what stands in a configuration only what is on the list is left, under the hosts that it is about.
func TestSSHConfig(t *testing.T) {
	home := fakeHome(t, ".ssh/")
	write := func(name, text string) { require.NoError(t, os.WriteFile(home+"/.ssh/"+name, []byte(text), 0o600)) }
	write("loop", "Include loop\nPort 3\n")
	write("nested", "User in\nHost b\n  User other\n")
	for name, c := range map[string]struct{ text, want string }{
		"none":      {"# nothing\n\n", ""},
		"spellings": {"HOST a b\nhostname=x\n\tPort 2222\nUser\tu\n", "Host a b|hostname=x|Port 2222|User\tu"},
		"dropped":   {"SendEnv X\nHost a\nProxyCommand id\nMatch all\nUser m\nHost b\nUser b\nLocalCommand id\n", "Host a|Host b|User b"},
		"included":  {"Host a\nInclude nested\nPort 22\nHost c\nUser c\n", "Host a|User in|Host a|Port 22|Host c|User c"},
		"nowhere":   {"Include gone ~/gone\nUser x\n", "Host *|User x"},
		"no agent":  {"Host a\nIdentityFile ~/.ssh/k\n", "Host a"},
	} {
		var lines []string
		for line := range strings.Lines(readSSHConfig(c.text, home, false).text.String()) {
			lines = append(lines, strings.TrimSpace(line))
		}
		require.Equal(t, c.want, strings.Join(lines, "|"), name)
	}
	require.NotEmpty(t, readSSHConfig("Include loop\n", home, false).text, "it ends")
	c := readSSHConfig("Port 7999\nUserKnownHostsFile ~/mine \"%d/theirs\"\nIdentityFile ~/.ssh/k.pub\nIdentityFile rel\n", home, true)
	require.Equal(t, []uint16{7999}, c.ports)
	require.Equal(t, []string{home + "/mine", home + "/theirs"}, c.hosts)
	require.Equal(t, []string{home + "/.ssh/k.pub", home + "/.ssh/rel.pub"}, c.keys)
}

// What says where programs are, and what they load, is passed where all that it names can be read.
func TestPlaceVariables(t *testing.T) {
	w := newCountry(t, []string{"home/hidden/", "ws/src/", "data/"}, "read data")
	environ := map[string]string{
		"PYTHONPATH": "src::" + w.path("ws/src"), "LD_LIBRARY_PATH": w.path("data") + ":" + w.path("home/hidden"), "PERL5LIB": w.path("home/hidden"), "PROTO_HOME": w.path("data"), "AWS_PROFILE": "x",
		"NODE_OPTIONS": "--max-old-space-size=4096 --require='" + w.path("data/x.js") + "'", "RUBYOPT": "-r" + w.path("home/hidden"), "JAVA_OPTS": "-javaagent:" + w.path("home/hidden"), "MAVEN_OPTS": "-Dhttp.proxyPassword=x",
	}
	getenv := func(name string) string { return environ[name] }
	var got []string
	for _, v := range (&Options{Getenv: getenv}).placed(w.policy, needs{w.finder()}.readable) {
		name, _, _ := strings.Cut(v.Entry, "=")
		got = append(got, name)
	}
	require.ElementsMatch(t, []string{"PYTHONPATH", "PROTO_HOME", "NODE_OPTIONS"}, got)
	w.policy.Environment.Scrub = []profiles.EnvRule{{Pattern: "*"}}
	require.Empty(t, (&Options{Getenv: getenv}).placed(w.policy, needs{w.finder()}.readable))
}

func TestCertificates(t *testing.T) {
	w := newCountry(t, []string{"home/corp/", "home/certs/", "home/.aws/"})
	for name, text := range map[string]string{"corp/ca.pem": pem, ".aws/ca.pem": pem, "corp/key.pem": pem + "PRIVATE KEY", "certs/a.pem": pem} {
		require.NoError(t, os.WriteFile(w.path("home/"+name), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("corp/ca.pem", w.path("home/link.pem")))
	environ := map[string]string{
		"SSL_CERT_FILE": w.path("home/link.pem"), "AWS_CA_BUNDLE": w.path("home/.aws/ca.pem"), "PIP_CERT": w.path("home/corp/key.pem"),
		"SSL_CERT_DIR": w.path("home/certs") + ":/etc/ssl/certs", "GIT_SSL_CAPATH": w.path("home/.aws"), "CONDA_SSL_VERIFY": "true", "CURL_CA_BUNDLE": w.path("home/gone.pem"),
	}
	o := &Options{Getenv: func(name string) string { return environ[name] }}
	alone := w.finder()
	require.NotEmpty(t, needs{alone}.certificates(o, &workspace.Found{}), "for a server of the command's own")
	require.Empty(t, alone.notes, "without a network what is not passed is not missed")
	w.policy.Network.Allow = []profiles.NetRule{{Text: "a.example"}}
	f := w.finder()
	var names []string
	for _, v := range (needs{f}).certificates(o, &workspace.Found{Certificates: []string{w.path("home/corp/ca.pem")}}) {
		name, _, _ := strings.Cut(v.Entry, "=")
		names = append(names, name)
	}
	require.Equal(t, []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "CONDA_SSL_VERIFY", "SSL_CERT_DIR", "GIT_SSL_CAINFO"}, names)
	require.Len(t, f.notes, 2)
	for path, shown := range map[string]bool{"home/corp/ca.pem": true, "home/.aws/ca.pem": true, "home/certs": true, "home/corp/key.pem": false, "home/.aws": false} {
		_, ok := f.seen[w.path(path)]
		require.Equal(t, shown, ok, path)
	}
	w.policy.Environment.Scrub = []profiles.EnvRule{{Pattern: "*"}}
	require.Empty(t, needs{w.finder()}.certificates(o, &workspace.Found{}))
}

func TestSSHNeedsPort22(t *testing.T) {
	w := newCountry(t, []string{"home/.ssh/"})
	require.NoError(t, os.WriteFile(w.path("home/.ssh/known_hosts"), []byte("h ssh-rsa AAAA\n"), 0o600))
	require.NoError(t, os.WriteFile(w.path("home/.ssh/config"), []byte("Host a\nPort 2222\n"), 0o600))
	for text, want := range map[string]bool{"a.example": false, "a.example:22": true, "a.example:2222": true, "a.example:5432": false, "bad rule": false} {
		w.policy.Network.Allow = []profiles.NetRule{{Text: text}}
		f := w.finder()
		needs{f}.ssh(false)
		_, hosts := f.seen[w.path("home/.ssh/known_hosts")]
		_, config := f.seen[w.path("home/.ssh/config")]
		require.Equal(t, [2]bool{want, want}, [2]bool{hosts, config}, text)
	}
}

func TestNamedSockets(t *testing.T) {
	w := newCountry(t, []string{"home/s"})
	require.NoError(t, os.Symlink("s", w.path("home/l")))
	w.policy.Network.Sockets = []profiles.PathRule{{Path: w.path("home/s")}, {Path: w.path("home"), At: "/x"}}
	got := (&Options{Environ: []string{"A=" + w.path("home/l"), "B=unix://" + w.path("home/s"), "C=" + w.path("home"), "D=x", "E"}}).namedSockets(w.policy)
	require.Len(t, got, 2)
}
