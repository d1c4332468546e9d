package profiles

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func rule(path, glob string, a Access) FileRule {
	return FileRule{Path: path, Glob: glob, Access: a, Origin: Origin{Source: "test", Key: path + " " + glob}}
}

func TestDecide(t *testing.T) {
	p := &Policy{Files: []FileRule{
		rule("/", "", Read),
		rule("/home", "", Hide),
		rule("/home/u", "", Private),
		rule("/home/u/.gitconfig", "", Read),
		rule("/home/u/src", "", Write),
		rule("/home/u/src", "**/.env*", Hide),
		rule("/home/u/src/.env.shown", "", Read),
		rule("/home/u/src", "**/secrets", Hide),
		rule("/home/u/src/a/secrets/public", "", Read),
		rule("/home/u/src", "vendor/**", Read),
		rule("/home/u/src", "vendor/*.go", Overlay),
		rule("/home/u/src", "pages/[id].js", Hide),
	}}
	for path, want := range map[string]Access{
		"/":                                 Read,
		"/etc":                              Read,
		"/homestead":                        Read, // a name that begins like a rule's is not below it
		"/home":                             Hide,
		"/home/v/.ssh":                      Hide,
		"/home/u":                           Private,
		"/home/u/.ssh/id_rsa":               Private,
		"/home/u/.gitconfig":                Read,
		"/home/u/.gitconfig2":               Private,
		"/home/u/src":                       Write,
		"/home/u/src/x":                     Write,
		"/home/u/src/.env":                  Hide,
		"/home/u/src/a/.env.local":          Hide,
		"/home/u/src/a/.envs/deep/file":     Hide, // below what a pattern matches
		"/home/u/src/a/.env.example":        Write,
		"/home/u/src/a/.env.d/x.sample":     Hide, // only the template's own name counts
		"/home/u/src/.env.shown":            Read, // a name beats a pattern
		"/home/u/src/a/secrets":             Hide,
		"/home/u/src/a/secrets/key":         Hide,
		"/home/u/src/a/secrets/public/x":    Read, // deeper beats shallower
		"/home/u/src/vendor":                Read,
		"/home/u/src/vendor/m/x.go":         Read,
		"/home/u/src/vendor/x.go":           Read, // of two patterns the stricter
		"/home/u/src/pages/i.js":            Hide,
		"/home/u/src/pages/[id].js":         Hide, // a pattern's own spelling
		"/home/u/src/pages/x.js":            Write,
		"/home/u/src/a/b/c/d/e/f/g/secrets": Hide,
	} {
		d := p.Decide(path)
		require.Equal(t, want, d.Access, path)
		require.Equal(t, "test", d.Rule.Origin.Source, path)
	}
	require.Equal(t, Hide, (&Policy{}).Decide("/etc").Access, "an empty policy shows nothing")
	require.Equal(t, Hide, p.Decide("relative").Access)
	require.Equal(t, Hide, p.Decide("").Access)
}

func TestDecideTies(t *testing.T) {
	for _, order := range [][]FileRule{
		{rule("/w", "**/x*", Hide), rule("/w", "**/*y", Write), rule("/", "", Read)},
		{rule("/w", "**/*y", Write), rule("/", "", Read), rule("/w", "**/x*", Hide)},
	} {
		p := &Policy{Files: order}
		require.Equal(t, Hide, p.Decide("/w/xy").Access)
		require.Equal(t, Write, p.Decide("/w/zy").Access)
	}
}

func TestTemplatesNamed(t *testing.T) {
	p := &Policy{Files: []FileRule{rule("/w", "", Write), rule("/w", "**/.env*.example", Hide)}}
	require.Equal(t, Hide, p.Decide("/w/.env.example").Access, "a pattern that ends so means it")
	p.Files[1] = rule("/w", "**/.env*", Read)
	require.Equal(t, Read, p.Decide("/w/.env.example").Access, "only hiding leaves templates alone")
}

func TestTighten(t *testing.T) {
	p := &Policy{
		Files: []FileRule{rule("/", "", Read), rule("/h", "", Private), rule("/w", "", Write), rule("/w/dist", "", Read)},
		Tighten: []FileRule{
			rule("/w/docs", "", Read), rule("/h/.ssh", "", Read), rule("/w/dist", "", Write), rule("/w", "**/*.pem", Hide), rule("/w/docs/x", "", Write),
		},
	}
	for path, want := range map[string]Access{
		"/w/a":        Write,
		"/w/docs/y":   Read,
		"/w/docs/x/y": Write, // the same file's own exception
		"/h/.ssh/id":  Private,
		"/w/dist/x":   Read,
		"/w/a/k.pem":  Hide,
		"/etc/k.pem":  Read,
	} {
		require.Equal(t, want, p.Decide(path).Access, path)
	}
	require.Equal(t, "/w/docs", p.Decide("/w/docs/y").Rule.Path, "the rule that decided")
	require.Equal(t, "/w/dist", p.Decide("/w/dist/x").Rule.Path)
}

// Rules of one source that may only tighten do not displace another's.
func TestTightenBySource(t *testing.T) {
	from := func(source string, r FileRule) FileRule {
		r.Origin.Source = source
		return r
	}
	p := &Policy{
		Files: []FileRule{rule("/", "", Write)},
		Tighten: []FileRule{
			from("default", rule("/h/.config/pccrun", "", Hide)),
			from("settings", rule("/w/infra", "", Read)),
			from("workspace", rule("/h/.config/pccrun/profiles", "", Write)), from("workspace", rule("/w/infra/sub", "", Write)), from("workspace", rule("/w/infra", "", Write)),
		},
	}
	require.Equal(t, Write, p.Decide("/w/x").Access, "control")
	require.Equal(t, Hide, p.Decide("/h/.config/pccrun/profiles/default.jsonc").Access)
	require.Equal(t, Read, p.Decide("/w/infra/sub/f").Access)
	require.Equal(t, Read, p.Decide("/w/infra").Access)
}

func TestProtected(t *testing.T) {
	p := &Policy{Workspace: "/w", Protect: []ProtectRule{
		{Pattern: ".git/hooks"}, {Pattern: ".git/config", Review: true}, {Pattern: ".envrc"}, {Pattern: "ci/*.yml"}, {Pattern: "Makefile", Review: true},
		{Pattern: "/h/.claude/settings.json"}, {Pattern: "*.lock", Review: true}, {Pattern: "a.lock"},
	}}
	for path, want := range map[string]string{
		"/w/.git/hooks":                    "deny",
		"/w/.git/hooks/pre-commit":         "deny",
		"/w/sub/repo/.git/hooks/x":         "deny",
		"/w/.git/modules/a/b/hooks/x":      "deny",
		"/w/.git/worktrees/x/config":       "review",
		"/w/.git/hooksx":                   "",
		"/w/.git/objects":                  "",
		"/w/.git/config":                   "review",
		"/w/a/b/.envrc":                    "deny",
		"/w/a/.envrc/below":                "deny",
		"/w/ci/x.yml":                      "deny",
		"/w/sub/ci/x.yml":                  "",
		"/w/sub/Makefile":                  "review",
		"/h/.claude/settings.json":         "deny",
		"/h/.claude/settings.json.bak":     "",
		"/w/x.lock":                        "review",
		"/w/a.lock":                        "deny", // deny before review
		"/elsewhere/.envrc":                "",
		"/w":                               "",
		"/w/h/.claude/settings.json/extra": "",
	} {
		r, ok := p.Protected(path)
		got := ""
		if ok {
			got = "deny"
			if r.Review {
				got = "review"
			}
		}
		require.Equal(t, want, got, path)
	}
}

func TestEnvironment(t *testing.T) {
	p := &Policy{Home: "/h", Environment: Environment{
		Pass:  []EnvRule{{Pattern: "PATH"}, {Pattern: "LC_*"}, {Pattern: "KEY"}, {Pattern: "HOME"}, {Pattern: "OUT"}},
		Set:   map[string]EnvSet{"CI": {Value: "1"}, "PATH": {Value: "/bin"}, "KEY": {Value: "no"}, "OUT": {Value: "no"}},
		Scrub: []EnvRule{{Pattern: "OUT"}, {Pattern: "LC_SECRET"}},
	}, Network: Network{Inject: []Injection{{Env: "KEY", Hosts: []string{"a.example"}}}}}
	host := []string{"LC_ALL=C", "PATH=/evil", "SECRET=1", "KEY=real", "LC_SECRET=x", "HOME=/elsewhere", "OUT=1", "broken", "=x", "LC_ALL=again"}
	require.Equal(t, []string{"LC_ALL=C", "HOME=/h", "CI=1", "PATH=/bin"}, p.Environ(host))
	for name, want := range map[string]EnvAction{
		"PATH": EnvSetTo, "LC_ALL": EnvPassed, "LC_": EnvPassed, "LC": EnvScrubbed, "KEY": EnvInjected, "OUT": EnvScrubbed, "LC_SECRET": EnvScrubbed, "": EnvScrubbed,
	} {
		require.Equal(t, want, p.DecideEnv(name).Action, name)
	}
}

func BenchmarkDecide(b *testing.B) {
	p := &Policy{}
	for i := range 500 {
		p.Files = append(p.Files, rule("/home/u/src/project/dir"+itoa(i), "", Read))
	}
	p.Files = append(p.Files, rule("/", "", Read), rule("/home/u/src/project", "**/.env*", Hide))
	for b.Loop() {
		p.Decide("/home/u/src/project/dir499/a/b/c")
	}
}

func FuzzDecide(f *testing.F) {
	f.Add("/a/b", "**/x*", "/a/b/c/xy")
	f.Add("/", "", "/")
	f.Add("/w", "[", "/w/[")
	f.Fuzz(func(t *testing.T, dir, glob, path string) {
		if len(dir) > 64 || len(glob) > 32 || len(path) > 128 {
			return
		}
		p := &Policy{Files: []FileRule{rule("/", "", Read), rule(dir, glob, Write)}, Tighten: []FileRule{rule(dir, glob, Private)}}
		d := p.Decide(path)
		// What the one rule opens, the same rule in the other table closes.
		require.LessOrEqual(t, d.Access, Read)
	})
}
