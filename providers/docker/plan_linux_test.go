package docker

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/mount"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// facts are those of an engine that nobody asked.
func facts() *Facts {
	return &Facts{
		Version: "20.10.24", Runtimes: []string{"runc", "runsc"}, DataRoot: "/var/lib/docker", Cgroups: "2", Memory: true, CPUs: true, Pids: true, Landlock: 7,
		Root: []Entry{
			{
				Path: "/bin",
				Link: "usr/bin",
			}, {Path: "/usr", Dir: true, Dev: 1, Ino: 10}, {Path: "/etc", Dir: true, Dev: 1, Ino: 11}, {Path: "/home", Dir: true, Dev: 1, Ino: 12},
			{
				Path: "/tmp",
				Dir:  true,
				Dev:  1,
				Ino:  13,
			}, {Path: "/proc", Dir: true, Dev: 2, Ino: 1}, {Path: "/run", Dir: true, Dev: 1, Ino: 14}, {Path: "/var", Dir: true, Dev: 1, Ino: 15},
			{Path: "/var/cache", Dir: true, Dev: 1, Ino: 16}, {Path: "/var/lib", Dir: true, Dev: 1, Ino: 17}, {Path: "/var/run", Link: "/run"},
			{Path: "/var/lib/docker", Dir: true, Dev: 1, Ino: 18}, {Path: "/var/lib/dpkg", Dir: true, Dev: 1, Ino: 19},
		},
		Submounts: []Submount{
			{"/", "ext4"},
			{"/proc", "proc"},
			{"/usr/local", "ext4"},
			{"/var/spool", "ext4"},
			{"/home/u", "ext4"},
			{"/var/lib/docker/overlay2/x", "overlay"},
			{"/run/lock", "tmpfs"},
			{"/etc/portal", "fuse.portal"},
			{"/etc/resolv.conf", "ext4"},
		},
		Texts: []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"},
	}
}

// places are those of a workspace /home/u/w that a survey would find.
func places() []providers.Place {
	return []providers.Place{
		{Path: "/home", Node: survey.Directory, Access: profiles.Hide, Why: "homes"},
		{Path: "/home/u", Node: survey.Directory, Access: profiles.Private, Why: "~"},
		{Path: "/home/u/w", Node: survey.Directory, Dev: 1, Ino: 100, Access: profiles.Write, Why: "."},
		{Path: "/home/u/w/.env", Node: survey.File, Dev: 1, Ino: 101, Access: profiles.Hide, Why: ".env"},
		{
			Path:    "/home/u/w/.git/hooks",
			Node:    survey.Directory,
			Dev:     1,
			Ino:     102,
			Access:  profiles.Read,
			Pin:     true,
			Protect: true,
			Why:     "protect",
		},
		{
			Path:    "/home/u/w/link",
			Node:    survey.Link,
			Link:    "x",
			Dev:     1,
			Ino:     103,
			Access:  profiles.Read,
			Pin:     true,
			Protect: true,
			Why:     "protect",
		},
		{Path: "/home/u/.config/git/config", Node: survey.File, Dev: 1, Ino: 104, Access: profiles.Read, Why: "git"},
		{Path: "/run", Node: survey.Directory, Access: profiles.Private, Why: "run"},
		{Path: "/tmp", Node: survey.Directory, Access: profiles.Private, Why: "tmp"},
	}
}

// resolve makes a policy of flags.
func resolve(t *testing.T, request profiles.Request) *profiles.Policy {
	t.Helper()
	home := t.TempDir()
	work := filepath.Join(home, "w")
	require.NoError(t, os.Mkdir(work, 0o755))
	request.Host = profiles.Host{
		UID:     os.Getuid(),
		Home:    home,
		Environ: []string{"HOME=" + home, "PATH=/usr/bin"},
		Cwd:     work,
		Memory:  1 << 33,
	}
	request.Command = []string{"true"}
	p, err := profiles.Resolve(request)
	require.NoError(t, err)
	return p
}

func provider(t *testing.T, o Options) *Provider {
	t.Helper()
	p, err := New(
		providers.Host{Environ: []string{"DOCKER_HOST=unix:///none"}, StateDir: "/state", Launcher: "/opt/pccrun"},
		o,
	)
	require.NoError(t, err)
	return p
}

func planned(t *testing.T, o Options, request profiles.Request) (*plan, error) {
	t.Helper()
	made, err := provider(
		t,
		o,
	).Plan(resolve(t, request), &providers.Survey{UID: 1000, GID: 1001, Places: places(), Command: []string{"/usr/bin/true"}, Env: []string{"GOCACHE=/x"}, Notes: []string{"a note"}},
		facts(), providers.Command{Argv: []string{"true", "secret-argument"}, Env: []string{"TOKEN=secret-value", "GOCACHE=/mine"}, Dir: "/home/u/w", Label: "abc"})
	p, _ := made.(*plan)
	return p, err
}

// mounted returns the mount at a path.
func (p *plan) mounted(t *testing.T, target string) mount.Mount {
	t.Helper()
	i := slices.IndexFunc(p.host.Mounts, func(m mount.Mount) bool { return m.Target == target })
	require.GreaterOrEqual(t, i, 0, "nothing is bound at %s", target)
	return p.host.Mounts[i]
}

func TestPlan(t *testing.T) {
	p, err := planned(t, Options{}, profiles.Request{})
	require.NoError(t, err)
	assert.Contains(t, p.Warnings(), "a note")

	assert.Equal(t, "1000:1001", p.config.User)
	assert.Equal(t, []string{"ALL"}, []string(p.host.CapDrop))
	assert.True(t, p.host.ReadonlyRootfs)
	assert.Equal(t, "none", string(p.host.NetworkMode))
	assert.Contains(t, p.host.SecurityOpt, "no-new-privileges")
	assert.Equal(t, []string{"NONE"}, p.config.Healthcheck.Test)
	assert.Equal(t, "abc", p.config.Labels[providers.LabelKey])
	assert.EqualValues(t, p.policy.Resources.Memory.Value, p.host.Memory)
	assert.EqualValues(t, p.policy.Resources.Memory.Value, p.host.MemorySwap)
	assert.EqualValues(t, p.policy.Resources.Pids.Value+ownTasks, *p.host.PidsLimit)

	work := p.mounted(t, "/home/u/w")
	assert.False(t, work.ReadOnly)
	assert.False(t, work.BindOptions.NonRecursive)
	assert.Equal(t, "/state/docker/abc/mask", p.mounted(t, "/home/u/w/.env").Source)
	assert.True(t, p.mounted(t, "/home/u/w/.git/hooks").ReadOnly)
	assert.True(t, p.mounted(t, "/home").ReadOnly)
	for _, path := range []string{"/usr", "/etc", "/usr/local", "/etc/hosts", insideFile} {
		m := p.mounted(t, path)
		assert.True(t, m.ReadOnly, path)
		assert.True(t, m.BindOptions.NonRecursive, path)
	}
	for _, path := range []string{"/home/u", "/home/u/.config", "/home/u/.config/git", "/run", "/tmp"} {
		assert.Contains(t, p.host.Tmpfs[path], "uid=1000,gid=1001", path)
	}
	assert.Equal(t, "/state/docker/abc/own-etc-resolv.conf", p.mounted(t, "/etc/resolv.conf").Source)
	p.facts.Podman = true
	p.tmpfs("/podmans", 0o755)
	assert.Equal(t, "rw,exec,nosuid,nodev,mode=755,U,notmpcopyup", strings.TrimRight(p.host.Tmpfs["/podmans"], ",size=0123456789"))
	for _, m := range p.host.Mounts {
		for _, never := range []string{"/proc", "/bin", "/var/lib/docker/overlay2/x", "/run/lock", "/etc/portal", "/home/u/w/link"} {
			assert.NotEqual(t, never, m.Target)
		}
	}
	assert.Equal(t, "/home/u/w/link", p.unlinked)

	request, err := json.Marshal(p.Describe())
	require.NoError(t, err)
	assert.Contains(t, string(request), "/home/u/w", "the control")
	assert.NotContains(t, string(request), "secret-")
	assert.Contains(t, p.environ, "TOKEN=secret-value")
	assert.Contains(t, p.environ, "GOCACHE=/mine")
	assert.NotContains(t, p.environ, "GOCACHE=/x")

	// Equal arguments give equal plans.
	for _, m := range p.inside.Mounts {
		if m.Path == "/home/u/w" {
			assert.EqualValues(t, 100, m.Ino)
		}
	}
}

// A mount covers one spelling of a name: where there are others it keeps nothing.
func TestPlanOfFoldedNames(t *testing.T) {
	states := func(foldingDir string) map[profiles.Guarantee]profiles.State {
		made, _ := provider(t, Options{}).Plan(
			resolve(t, profiles.Request{}),
			&providers.Survey{UID: 1000, GID: 1001, Places: places(), Machine: &survey.Survey{Folding: survey.Folding{Dir: foldingDir}}},
			facts(), providers.Command{Argv: []string{"true"}, Dir: "/home/u/w"},
		)
		list := map[profiles.Guarantee]profiles.State{}
		for _, a := range made.Answers() {
			list[a.Guarantee] = a.State
		}
		return list
	}
	assert.Equal(t, profiles.Weak, states("")[profiles.FSProtect], "the control")
	assert.Equal(t, profiles.Missing, states("/home/u/w")[profiles.FSProtect])
	assert.Equal(t, profiles.Missing, states("/home/u/w")[profiles.FSHide])
}

// Of an engine in a virtual machine nothing is asked that it could not have of this machine.
func TestPlanInAVirtualMachine(t *testing.T) {
	under := func(o Options, change func(*Facts, *providers.Survey)) (*plan, error) {
		f, s := facts(), &providers.Survey{UID: 1000, GID: 1001, Places: places()}
		f.VM, f.Landlock, f.Root = true, 0, nil
		change(f, s)
		made, err := provider(t, o).Plan(resolve(t, profiles.Request{}), s, f, providers.Command{Argv: []string{"true"}, Dir: "/home/u/w", Label: "abc"})
		p, _ := made.(*plan)
		return p, err
	}
	image := Options{Image: "debian:12"}
	p, err := under(image, func(*Facts, *providers.Survey) {})
	require.NoError(t, err)
	assert.Equal(t, "/state/docker/abc/pccrun", p.mounted(t, insideFile).Source)
	require.NotNil(t, p.inside.Share)
	for _, m := range p.inside.Mounts {
		assert.Zero(t, m.Dev, m.Path)
	}
	for want, refused := range map[string]func() (*plan, error){
		"programs of this machine": func() (*plan, error) { return under(Options{}, func(*Facts, *providers.Survey) {}) },
		"gVisor and Podman":        func() (*plan, error) { return under(image, func(f *Facts, _ *providers.Survey) { f.Podman = true }) },
		"too many paths": func() (*plan, error) {
			return under(image, func(_ *Facts, s *providers.Survey) { s.Machine = &survey.Survey{Layout: &survey.Layout{Crowded: true}} })
		},
	} {
		_, err := refused()
		require.ErrorContains(t, err, want)
	}
}

func TestPlanUnderGVisor(t *testing.T) {
	p, err := planned(t, Options{Runtime: Runsc}, profiles.Request{Limits: [7]string{2: "none"}})
	require.NoError(t, err)
	for _, m := range p.inside.Mounts {
		assert.Zero(t, m.Ino, "it numbers files anew")
	}
	assert.False(t, p.mounted(t, "/usr").BindOptions.NonRecursive)
	assert.False(t, slices.ContainsFunc(p.host.Mounts, func(m mount.Mount) bool { return m.Target == "/usr/local" }))
}

// A persistent home is the user's, and no engine makes it another's.
//
//test:root
func TestPlanOfAPersistentHome(t *testing.T) {
	list := places()
	list[1].Access, list[1].Source = profiles.Persist, "/state/homes/x"
	under := func(asRoot bool) (*plan, error) {
		f, policy := facts(), resolve(t, profiles.Request{})
		f.AsRoot = asRoot
		if os.Getuid() == 0 {
			require.NoError(t, os.Chown(policy.Workspace, 1000, 1001))
		}
		made, err := provider(t, Options{}).Plan(policy, &providers.Survey{UID: 1000, GID: 1001, Places: list}, f, providers.Command{Argv: []string{"true"}, Dir: "/home/u/w", Label: "abc"})
		p, _ := made.(*plan)
		return p, err
	}
	p, err := under(false)
	require.NoError(t, err)
	assert.Equal(t, "/state/homes/x", p.mounted(t, "/home/u").Source)
	_, err = under(true)
	require.ErrorContains(t, err, "the persistent home /home/u is root's")
}

func TestPlanOfAnImage(t *testing.T) {
	p, err := planned(t, Options{Image: "debian:12"}, profiles.Request{})
	require.NoError(t, err)
	assert.Equal(t, "debian:12", p.config.Image)
	assert.Nil(t, p.layer)
	assert.Empty(t, p.inside.Paths, "the image's own programs are looked for")
	p.mounted(t, "/etc/hosts")
	p.mounted(t, "/home/u/w")
	assert.False(t, slices.ContainsFunc(p.host.Mounts, func(m mount.Mount) bool { return m.Target == "/usr" }))
}

// What is protected outside the workspace stays so with an image: no rule of the user's names it.
func TestPlanOfAnImageProtects(t *testing.T) {
	list := append(places(), providers.Place{Path: "/home/u/main/.git", Node: survey.Directory, Access: profiles.Write, Why: "a worktree's"},
		providers.Place{Path: "/home/u/main/.git/config", Node: survey.File, Access: profiles.Read, Pin: true, Protect: true, Why: "protect"},
		providers.Place{Path: "/home/u/tool", Node: survey.Directory, Access: profiles.Read, Why: "the command"})
	made, err := provider(t, Options{Image: "debian:12"}).Plan(resolve(t, profiles.Request{}), &providers.Survey{UID: 1000, GID: 1001, Places: list},
		facts(), providers.Command{Argv: []string{"true"}, Dir: "/home/u/w", Label: "abc"})
	require.NoError(t, err)
	p := made.(*plan)
	assert.False(t, p.mounted(t, "/home/u/main/.git").ReadOnly)
	assert.True(t, p.mounted(t, "/home/u/main/.git/config").ReadOnly)
	assert.False(t, slices.ContainsFunc(p.host.Mounts, func(m mount.Mount) bool { return m.Target == "/home/u/tool" }), "the image has its own programs")
}

// What is refused for what the survey and the engine say: [TestFlags] has what is asked for.
//
//test:root
func TestWhatIsRefused(t *testing.T) {
	plan := func(change func(*providers.Survey, *Facts)) error {
		f, s := facts(), &providers.Survey{UID: 1000, GID: 1000, Places: places()}
		change(s, f)
		_, err := provider(
			t,
			Options{},
		).Plan(resolve(t, profiles.Request{}), s, f, providers.Command{Argv: []string{"true"}, Dir: "/"})
		return err
	}
	require.NoError(t, plan(func(*providers.Survey, *Facts) {}), "the control")
	require.ErrorContains(t, plan(func(s *providers.Survey, _ *Facts) { s.UID = 0 }), "belongs to root")
	if os.Getuid() == 0 { // and so is the workspace, whoever the survey says that runs have
		require.ErrorContains(t, plan(func(_ *providers.Survey, f *Facts) { f.AsRoot = true }), "belongs to root")
	}
	require.ErrorContains(
		t,
		plan(func(_ *providers.Survey, f *Facts) { f.Options = []string{"name=rootless"} }),
		"rootless",
	)
	require.ErrorContains(t, plan(func(s *providers.Survey, _ *Facts) {
		s.Places = append(
			s.Places,
			providers.Place{Path: "/home/u/w/\xff", Node: survey.File, Ino: 1, Access: profiles.Hide},
		)
	}), "not UTF-8")
	_, err := provider(
		t,
		Options{},
	).Plan(resolve(t, profiles.Request{}), &providers.Survey{UID: 1}, "others", providers.Command{})
	require.ErrorContains(t, err, "BUG")
}

// Every guarantee that is not of copies has an answer, by each runtime.
func TestAnswers(t *testing.T) {
	for _, runtime := range []string{Runc, Runsc} {
		p, err := planned(t, Options{Runtime: runtime}, profiles.Request{Limits: [7]string{2: "none"}})
		require.NoError(t, err)
		for _, g := range profiles.Guarantees {
			answered := slices.ContainsFunc(
				p.Answers(),
				func(a profiles.Answer) bool { return a.Guarantee == g.Guarantee },
			)
			assert.Equal(t, !strings.HasPrefix(string(g.Guarantee), "sync."), answered, g.Guarantee)
		}
		for _, a := range p.Answers() {
			assert.True(t, a.State == profiles.Kept || a.Cause != "", a.Guarantee)
		}
	}
}

// What an engine lacks, an answer says.
func TestAnswersOfALesserEngine(t *testing.T) {
	answer := func(o Options, request profiles.Request, change func(*Facts), g profiles.Guarantee) profiles.Answer {
		f, policy := facts(), resolve(t, request)
		change(f)
		made, err := provider(t, o).Plan(policy, &providers.Survey{UID: 1000, GID: 1001, Places: places()}, f, providers.Command{Argv: []string{"true"}, Dir: "/home/u/w"})
		var missing *providers.MissingError
		if err != nil {
			require.ErrorAs(t, err, &missing)
		}
		list := made.(*plan).Answers()
		return list[slices.IndexFunc(list, func(a profiles.Answer) bool { return a.Guarantee == g })]
	}
	same := func(*Facts) {}
	old := func(f *Facts) { f.Landlock = 0 }
	host := Options{Network: hostNetwork}
	require.Equal(t, profiles.Kept, answer(Options{}, profiles.Request{}, same, profiles.FSSpecial).State, "the control")
	require.Equal(t, profiles.Weak, answer(Options{}, profiles.Request{}, old, profiles.FSSpecial).State)
	require.Equal(t, profiles.Kept, answer(Options{}, profiles.Request{}, same, profiles.NetAllowlist).State, "the control")
	require.Equal(t, profiles.Missing, answer(host, profiles.Request{}, same, profiles.NetAllowlist).State)
	require.Equal(t, profiles.Missing, answer(host, profiles.Request{}, old, profiles.IPCUnix).State)
	require.Equal(t, profiles.Kept, answer(Options{}, profiles.Request{}, same, profiles.PrivNone).State, "the control")
	require.Equal(t, profiles.Missing, answer(Options{}, profiles.Request{}, func(f *Facts) { f.Crash = "|/bin/x" }, profiles.PrivNone).State)
	require.Equal(t, profiles.Kept, answer(Options{}, profiles.Request{}, same, profiles.ResMemory).State, "the control")
	require.Equal(t, profiles.Missing, answer(Options{}, profiles.Request{}, func(f *Facts) { f.Memory = false }, profiles.ResMemory).State)
}

func TestRootfs(t *testing.T) {
	f := facts()
	layer, name, err := rootfs(f)
	require.NoError(t, err)
	again, same, err := rootfs(f)
	require.NoError(t, err)
	assert.Equal(t, layer, again)
	assert.Equal(t, name, same)
	f.Root = f.Root[1:]
	_, other, err := rootfs(f)
	require.NoError(t, err)
	assert.NotEqual(t, name, other)
	links := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		links[h.Name] = h.Linkname
	}
	assert.Equal(t, map[string]string{".pccrun/": "", "bin": "usr/bin", "var/": "", "var/lib/": "", "var/lib/docker/": "", "var/run": "/run"}, links)
}

// The engine would show what is mounted later in a directory that its own files are in: such a one
// is never bound, but what is beside them.
func TestPlanBesideTheEnginesFiles(t *testing.T) {
	under := func(more ...providers.Place) (*plan, error) {
		made, err := provider(t, Options{}).Plan(resolve(t, profiles.Request{}), &providers.Survey{UID: 1000, GID: 1001, Places: append(places(), more...)},
			facts(), providers.Command{Argv: []string{"true"}, Dir: "/home/u/w", Label: "abc"})
		p, _ := made.(*plan)
		return p, err
	}
	bound := func(p *plan) (list []string) {
		for _, m := range p.host.Mounts {
			if assert.Equal(t, mount.PropagationRPrivate, m.BindOptions.Propagation); strings.HasPrefix(m.Target, "/var") {
				list = append(list, m.Target)
			}
		}
		return list
	}
	p, err := under()
	require.NoError(t, err)
	assert.Equal(t, []string{"/var/cache", "/var/lib/dpkg", "/var/spool"}, bound(p))
	p, err = under(providers.Place{Path: "/var/lib", Node: survey.Directory, Access: profiles.Hide, Why: "flag --hide"})
	require.NoError(t, err)
	assert.Equal(t, []string{"/var/lib", "/var/cache", "/var/spool"}, bound(p), "in what is hidden nothing is shown")
	for _, dir := range []string{"/var/lib", "/var/lib/docker/w", "/var/lib/docker-too"} {
		_, err = under(providers.Place{Path: dir, Node: survey.Directory, Dev: 1, Ino: 30, Access: profiles.Write, Why: "flag --write"})
		require.ErrorContains(t, err, dir+": the engine takes it for its own files, which are in /var/lib/docker")
	}
}

// A container's own /proc, /sys and /dev know no rule of the user's.
func TestPlanOfTheKernelsTrees(t *testing.T) {
	for path, refused := range map[string]bool{"/proc/kcore": false, "/proc/version": true, "/sys/kernel": true, "/dev/null": true} {
		_, err := provider(t, Options{}).Plan(resolve(t, profiles.Request{}), &providers.Survey{UID: 1000, GID: 1001, Places: append(places(),
			providers.Place{Path: path, Node: survey.File, Access: profiles.Hide, Why: "flag --hide"})}, facts(), providers.Command{Argv: []string{"true"}})
		if !refused {
			require.NoError(t, err, "the control: each container hides it")
			continue
		}
		require.ErrorContains(t, err, path+": a container has its own /")
		require.ErrorContains(t, err, "flag --hide")
	}
}

func TestWhereTheEngineIs(t *testing.T) {
	home := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(home, ".docker", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	at := func(environ ...string) endpoint {
		e, err := findEndpoint(&profiles.Host{Environ: append(environ, "HOME="+home)})
		require.NoError(t, err)
		return e
	}
	assert.Equal(t, endpoint{}, at())
	assert.Equal(t, endpoint{host: "tcp://x:1", certs: "/c"}, at("DOCKER_HOST=tcp://x:1", "DOCKER_CERT_PATH=/c"))
	assert.Equal(
		t,
		endpoint{host: "tcp://x:1", certs: home + "/.docker"},
		at("DOCKER_HOST=tcp://x:1", "DOCKER_TLS_VERIFY=1"),
	)
	write("config.json", `{"currentContext": "far"}`)
	_, err := findEndpoint(&profiles.Host{Environ: []string{"HOME=" + home}})
	require.ErrorContains(t, err, "context far")
	id := contextID("far")
	write("contexts/meta/"+id+"/meta.json", `{"Name": "far", "Endpoints": {"docker": {"Host": "ssh://u@far"}}}`)
	write("contexts/tls/"+id+"/docker/ca.pem", "")
	assert.Equal(t, endpoint{host: "ssh://u@far", certs: home + "/.docker/contexts/tls/" + id + "/docker"}, at())
	assert.Equal(t, endpoint{}, at("DOCKER_CONTEXT=default"))
	_, err = New(providers.Host{Environ: []string{"HOME=" + home}}, Options{})
	require.ErrorContains(t, err, "other files than this machine")
	_, err = New(providers.Host{Environ: []string{"HOME=" + home, "DOCKER_HOST=tcp://x:1", "DOCKER_CERT_PATH=" + home}}, Options{})
	require.ErrorContains(t, err, "the engine tcp://x:1")
	write("config.json", "{")
	_, err = findEndpoint(&profiles.Host{Environ: []string{"HOME=" + home}})
	require.ErrorContains(t, err, "config.json")
}

func TestEngineThatDoesNotAnswer(t *testing.T) {
	examine := func(host string) error {
		p, err := New(providers.Host{Environ: []string{"DOCKER_HOST=" + host}}, Options{})
		require.NoError(t, err)
		_, err = p.Examine(t.Context())
		return err
	}
	err := examine("unix://" + t.TempDir() + "/none")
	require.ErrorContains(t, err, "no engine answers")
	var engine *EngineError
	require.ErrorAs(t, err, &engine)
	assert.Contains(t, engine.Hint(), "DOCKER_HOST")
	require.ErrorContains(t, examine("tcp://127.0.0.1:1"), "does not answer")
}

// TestTable holds docs/providers.md to the answers that are not kept by both;
// PCCRUN_UPDATE=1 writes it.
func TestTable(t *testing.T) {
	const page = "../../docs/providers.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), "<!-- table -->\n")
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, "<!-- end -->\n")
	require.True(t, ok)
	request := profiles.Request{
		Allow:        []string{"example.com"},
		Limits:       [7]string{0: "4g", 2: "512", 5: "1g"},
		AllowMissing: []string{"net.transparent"},
	}
	runc, err := planned(t, Options{}, request)
	require.NoError(t, err)
	runsc, _ := planned(t, Options{Runtime: Runsc}, request)
	cell := func(a profiles.Answer) string {
		if a.Cause == "" {
			return a.State.String()
		}
		return a.State.String() + ": " + a.Cause
	}
	var b strings.Builder
	b.WriteString("| guarantee | docker with runc | docker with runsc |\n|---|---|---|\n")
	for i, a := range runc.Answers() {
		other := cell(runsc.Answers()[i])
		if other == "kept" && a.State == profiles.Kept {
			continue
		}
		if other == cell(a) {
			other = "the same"
		}
		b.WriteString("| `" + string(a.Guarantee) + "` | " + cell(a) + " | " + other + " |\n")
	}
	want := before + "<!-- table -->\n" + b.String() + "<!-- end -->\n" + after
	if os.Getenv("PCCRUN_UPDATE") != "" {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
	}
	assert.Equal(t, want, string(text), "PCCRUN_UPDATE=1 go test ./providers/docker writes it")
}
