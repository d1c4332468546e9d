package namespaces

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
)

// A survey, and what the kernel says, make a plan on a host as it is.
func TestExamine(t *testing.T) {
	home := fakeHome(t, "ws/f", "ws/.env", "secret")
	p, err := profiles.Resolve(profiles.Request{Workspace: home + "/ws", Host: profiles.Host{
		UID: os.Getuid(), Home: home, Cwd: home + "/ws", Memory: 1 << 30, Environ: []string{"HOME=" + home, "PATH=/usr/bin"}}})
	require.NoError(t, err)
	s, err := survey.Look(p, survey.Options{Getenv: func(string) string { return "" }})
	require.NoError(t, err)
	s.Texts = []survey.Text{{Path: "/etc/passwd", Content: "x"}, {Path: "/nonexistent"}}
	f, err := Examine(p, s)
	require.NoError(t, err)
	require.Equal(t, WhoAmI(), f.Identity)
	require.NotZero(t, f.Files.Max)
	require.Contains(t, texts(f), "/etc/hosts")
	require.Equal(t, f.Identity.Root, strings.Count(texts(f), "/etc/passwd") == 2, "for the identity, and as it is for ssh")
	require.NotContains(t, texts(f), "/nonexistent")
	plan, err := Build(p, s, f, Command{})
	require.NoError(t, err)
	require.Greater(t, len(plan.Mounts), len(f.Texts))
}

func texts(s *Facts) string {
	var names []string
	for _, m := range s.Texts {
		names = append(names, m.Target)
	}
	return strings.Join(names, " ")
}

// What a rule hides is not given a text either.
func TestTextsNeedRead(t *testing.T) {
	policy := &profiles.Policy{Home: "/home/u", Files: []profiles.FileRule{{Path: "/", Access: profiles.Read}}}
	s := &Facts{Identity: Identity{UID: 1000, GID: 1000, Root: true}}
	s.texts(policy, nil, nil)
	optional := strings.NewReplacer("/etc/machine-id ", "", "/etc/resolv.conf ", "", "/var/lib/dbus/machine-id ", "", "/etc/hostname ", "", "/etc/machine-info ", "", "/etc/hostid ", "", "/var/lib/cloud/data/instance-id ", "")
	require.Equal(t, "/etc/hosts /proc/sys/kernel/random/boot_id /etc/passwd /etc/group", optional.Replace(texts(s)))
	require.Contains(t, s.Texts[len(s.Texts)-2].Text, "pccrun:x:1000:1000:pccrun:"+policy.Home)
	policy.Files = append(policy.Files, profiles.FileRule{Path: "/etc/hosts", Access: profiles.Hide})
	s = &Facts{}
	s.texts(policy, nil, nil)
	require.NotContains(t, texts(s), "/etc/hosts")
}

// The name server that the command finds is the one that is there.
func TestTextOfTheNameServer(t *testing.T) {
	var st unix.Stat_t
	if unix.Lstat("/etc/resolv.conf", &st) != nil {
		t.Skip("needs a resolv.conf")
	}
	policy := &profiles.Policy{Home: "/home/u", Files: []profiles.FileRule{{Path: "/", Access: profiles.Read}}}
	server := func() string {
		s := &Facts{}
		s.texts(policy, nil, nil)
		for _, m := range s.Texts {
			if m.Target == "/etc/resolv.conf" {
				return m.Text
			}
		}
		return "the host's"
	}
	require.Equal(t, "nameserver 127.0.0.1\n", server())
	policy.Network.Allow = []profiles.NetRule{{Text: "a.example"}}
	require.Equal(t, "nameserver 198.18.0.53\n", server())
	policy.Network.Allow, policy.Without = nil, []profiles.Layer{profiles.LayerNetns}
	require.Equal(t, "the host's", server())
}

func TestLocalNames(t *testing.T) {
	hosts := "127.0.0.1 localhost app.test\tvm vm.example # a.test\n\n#127.0.0.1 b.test\n::1 localhost\n127.0.1.1 c.test\n192.0.2.1 d.test\n127.0.0.1 e.test app.test f=g"
	four, six := loopbackNames(hosts, "vm.example")
	require.Equal(t, []string{"app.test", "e.test"}, four)
	require.Equal(t, []string{"localhost"}, six)
	for hosts, want := range map[string][]string{
		"":                    {"localhost"},
		"127.0.0.1 localhost": nil, // there node listens at 127.0.0.1
		"127.0.0.1 localhost\n::1 ip6-localhost ip6-loopback six.test": {"six.test"},
		"127.0.0.1 localhost\n::1 localhost ip6-localhost":             {"localhost"},
	} {
		four, six := loopbackNames(hosts, "localhost")
		require.Empty(t, four, hosts)
		require.Equal(t, want, six, hosts)
	}
}
