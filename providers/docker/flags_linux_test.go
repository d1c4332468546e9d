package docker

import (
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/mount"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/seccomp"
)

// others are fields of a request in which a provider has no part: what reads them comes before
// the plan, or after it. test/docker tries them with the program.
var others = strings.Fields("Conversation Install Detach Terminal Command Profile Settings Provider Keep E2BTemplate Size Region Target PassFDs Events DryRun JSON Log Verbose Quiet From Learn Draft Resolved Seeds Host " +
	"GitHubToken InjectFiles InjectRun FreshHome NoLogin Review Deny Budget Spending")

// A flagRow says what becomes of a flag in the plan, or with which words it is refused.
type flagRow struct {
	field   string // of [profiles.Request]
	ask     profiles.Request
	options Options
	want    func(p *plan) bool
	refused string
}

// TestFlags walks all that a command line can ask for: it is in the plan, or is refused by name.
// The control of each is the plan without the flag, of which the same does not hold.
func TestFlags(t *testing.T) {
	home := t.TempDir()
	work := filepath.Join(home, "w")
	other := filepath.Join(home, "other")
	for _, dir := range []string{work + "/d", other} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	calls := filepath.Join(home, "calls.json")
	require.NoError(t, os.WriteFile(calls, []byte(`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["ptrace"], "action": "SCMP_ACT_ERRNO"}]}`), 0o644))
	require.NoError(t, os.WriteFile(work+"/Makefile.mine", nil, 0o644))
	resolved := func(t *testing.T, o Options, r profiles.Request) (*plan, error) {
		environ := []string{"HOME=" + home, "PATH=/usr/bin", "TOKEN=secret", "SSH_AUTH_SOCK=" + home + "/agent"}
		r.Host = profiles.Host{UID: 1000, Home: home, Environ: environ, Cwd: work, Memory: 1 << 33}
		r.Command = []string{"true"}
		policy, err := profiles.Resolve(r)
		require.NoError(t, err)
		look, err := survey.Look(policy, survey.Options{Getenv: r.Host.Getenv, Environ: environ})
		require.NoError(t, err)
		made, err := provider(t, o).Plan(policy, &providers.Survey{UID: 1000, GID: 1001, Places: look.Places}, facts(),
			providers.Command{Argv: []string{"true"}, Env: policy.Environ(environ), Dir: policy.Workspace, Label: "abc", Ask: r.Ask})
		if err == nil {
			_, err = providers.Check(policy, made.Answers())
		}
		p, _ := made.(*plan)
		return p, err
	}
	file := func(path string, access profiles.Access) profiles.Request {
		return profiles.Request{Files: []profiles.FileFlag{{Path: path, Access: access}}}
	}
	bound := func(target string, like func(m mount.Mount) bool) func(p *plan) bool {
		return func(p *plan) bool {
			return slices.ContainsFunc(p.host.Mounts, func(m mount.Mount) bool { return m.Target == target && like(m) })
		}
	}
	kept := func(m mount.Mount) bool { return m.ReadOnly && m.Source == m.Target }
	covered := func(m mount.Mount) bool { return m.ReadOnly && strings.HasPrefix(m.Source, "/state/docker/abc/") }
	writable := func(m mount.Mount) bool { return !m.ReadOnly && m.Source == m.Target }
	answers := func(g profiles.Guarantee, mechanism string) func(p *plan) bool {
		return func(p *plan) bool {
			return slices.ContainsFunc(p.answers, func(a profiles.Answer) bool { return a.Guarantee == g && a.Mechanism == mechanism })
		}
	}
	limit := func(i int, value string, want func(p *plan) bool) flagRow {
		r := flagRow{field: "Limits", want: want}
		r.ask.Limits[i] = value
		return r
	}
	rlimit := func(resource int, n uint64) func(p *plan) bool {
		return func(p *plan) bool {
			return slices.Contains(p.inside.Rlimits, inside.Rlimit{Resource: resource, Soft: n, Hard: n})
		}
	}
	reaches := answers(profiles.NetAllowlist, "no network, a proxy over the container's stream")
	given := func(line string) func(p *plan) bool {
		return func(p *plan) bool { return slices.Contains(p.environ, line) }
	}
	gvisor := Options{Runtime: Runsc}
	rows := []flagRow{
		{field: "Workspace", ask: profiles.Request{Workspace: other}, want: bound(other, writable)},
		{field: "Files", ask: file(work+"/d", profiles.Hide), want: bound(work+"/d", covered)},
		{field: "Files", ask: file(work+"/d", profiles.Private), want: func(p *plan) bool { return p.host.Tmpfs[work+"/d"] != "" }},
		{field: "Files", ask: file(work+"/d", profiles.Read), want: bound(work+"/d", kept)},
		{field: "Files", ask: file(work+"/d", profiles.Overlay), refused: "fs.overlay"},
		{field: "Files", ask: file(other, profiles.Write), want: bound(other, writable)},
		{field: "AllowMissing", ask: profiles.Request{Files: file(work+"/d", profiles.Overlay).Files, AllowMissing: []string{"fs.overlay"}}, want: func(p *plan) bool {
			return slices.Contains(p.policy.AllowMissing, profiles.FSOverlay)
		}},
		{field: "Home", ask: profiles.Request{Home: "persist"}, want: func(p *plan) bool { return p.host.Tmpfs[home] == "" }},
		{field: "Protect", ask: profiles.Request{Protect: []string{"Makefile.mine"}}, want: bound(work+"/Makefile.mine", kept)},
		{field: "ProtectStrict", ask: profiles.Request{ProtectStrict: true}, refused: "protect.strict"},
		{field: "Allow", ask: profiles.Request{Allow: []string{"example.com"}}, want: reaches},
		{field: "Local", ask: profiles.Request{Local: []string{"5432"}}, want: reaches},
		{field: "Ask", ask: profiles.Request{Ask: true}, want: reaches},
		{field: "Ask", ask: profiles.Request{Ask: true}, options: Options{Network: bridgeNetwork}, refused: "--ask"},
		{field: "DockerNetwork", options: Options{Network: bridgeNetwork}, refused: "net.allowlist"},
		{field: "Publish", ask: profiles.Request{Publish: []string{"8080:3000"}}, want: func(p *plan) bool { return slices.Equal([]uint16{3000}, p.inside.Reach) }},
		{field: "Publish", ask: profiles.Request{Publish: []string{"3000"}}, options: Options{Network: bridgeNetwork}, refused: "publish"},
		{field: "Sockets", ask: profiles.Request{Sockets: []string{home + "/agent"}}, want: bound(home+"/agent", func(mount.Mount) bool { return true })},
		{field: "Sockets", ask: profiles.Request{Sockets: []string{home + "/agent"}}, options: gvisor, refused: "gVisor prevents connections"},
		{field: "Use", ask: profiles.Request{Use: []string{"ssh-agent"}}, want: bound(home+"/agent", func(mount.Mount) bool { return true })},
		{field: "Use", ask: profiles.Request{Use: []string{"ssh-agent"}}, options: gvisor, refused: "gVisor prevents connections"},
		{field: "Env", ask: profiles.Request{Env: []string{"GIVEN=1"}}, want: given("GIVEN=1")},
		{field: "Inject", ask: profiles.Request{Inject: []string{"TOKEN=example.com"}}, refused: "net.inject"},
		{field: "Inject", ask: profiles.Request{Inject: []string{"TOKEN=example.com"}, Allow: []string{"example.com"}}, want: func(p *plan) bool {
			return len(p.policy.Network.Inject) == 1 && !given("TOKEN=secret")(p)
		}},
		limit(0, "1g", func(p *plan) bool { return p.host.Memory == 1<<30 && p.host.MemorySwap == 1<<30 }),
		limit(1, "1.5", func(p *plan) bool { return p.host.NanoCPUs == 1_500_000_000 }),
		limit(2, "100", func(p *plan) bool { return *p.host.PidsLimit == 100+ownTasks }),
		limit(3, "512", rlimit(rlimitNofile, 512)),
		limit(4, "1m", rlimit(rlimitFsize, 1<<20)),
		limit(5, "64m", func(p *plan) bool { return strings.Contains(p.host.Tmpfs["/tmp"], "size=67108864") }),
		limit(6, "3s", func(p *plan) bool { return p.inside.Deadline.Seconds() == 3 }),
		{field: "Limits", ask: profiles.Request{Limits: [7]string{2: "100"}}, options: gvisor, refused: "res.pids"},
		{field: "Syscalls", ask: profiles.Request{Syscalls: calls}, want: func(p *plan) bool { return !reflect.DeepEqual(seccomp.Default(), p.inside.Filter) }},
		{field: "Syscalls", ask: profiles.Request{Syscalls: home + "/none"}, refused: home + "/none"},
		{field: "Nested", ask: profiles.Request{Nested: true}, refused: "nested"},
		{field: "Strict", ask: profiles.Request{Strict: true}, refused: "only weakly kept"},
		{field: "Report", ask: profiles.Request{Report: "attempts"}, want: func(p *plan) bool {
			return strings.Contains(strings.Join(p.Warnings(), "\n"), "denied file accesses are not reported")
		}},
		{field: "Without", ask: profiles.Request{Without: []string{"seccomp"}}, refused: "--without"},
		{field: "Runtime", options: Options{Runtime: "kata"}, refused: "no runtime kata"},
		{field: "Runtime", options: gvisor, ask: profiles.Request{Limits: [7]string{2: "none"}}, want: func(p *plan) bool { return p.host.Runtime == Runsc }},
		{field: "Image", options: Options{Image: "debian:12"}, want: func(p *plan) bool { return p.config.Image == "debian:12" }},
		{field: "DockerImage", options: Options{Image: "debian:12"}, want: func(p *plan) bool { return p.config.Image == "debian:12" }},
	}
	l, err := net.Listen("unix", home+"/agent")
	require.NoError(t, err)
	defer l.Close()
	without, err := resolved(t, Options{}, profiles.Request{})
	require.NoError(t, err, "the control")
	had := map[string]bool{}
	for _, r := range rows {
		had[r.field] = true
		p, err := resolved(t, r.options, r.ask)
		if r.refused != "" {
			assert.ErrorContains(t, err, r.refused, r.field)
			continue
		}
		if assert.NoError(t, err, r.field); err == nil {
			assert.True(t, r.want(p), "%s: %+v", r.field, r.ask)
			assert.False(t, r.want(without), "the control: %s: %+v", r.field, r.ask)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[profiles.Request]()) {
		assert.NotEqual(t, had[f.Name], slices.Contains(others, f.Name), "%s: a row, or no part of a provider's", f.Name)
	}
}
