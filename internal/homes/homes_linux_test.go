package homes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// A place is a state directory, a user's home and a workspace.
type place struct {
	t                      *testing.T
	state, home, workspace string
}

func newPlace(t *testing.T) *place {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Chmod(top, 0o700))
	p := &place{t, top + "/state", top + "/u", top + "/u/work"}
	require.NoError(t, os.MkdirAll(p.workspace, 0o755))
	return p
}

func (p *place) open() *Home {
	p.t.Helper()
	h, err := Open(p.state, p.workspace, "built-in x", "x")
	require.NoError(p.t, err)
	p.t.Cleanup(func() {
		if h.lock != nil {
			h.Close()
		}
	})
	return h
}

func (p *place) close(h *Home) { h.Close(); h.lock, h.fd, h.asideFD = nil, -1, -1 }

// policy is one with seeds.
func (p *place) policy(seeds ...profiles.Seed) *profiles.Policy {
	for i := range seeds {
		seeds[i].Path = p.home + "/" + seeds[i].Path
	}
	return &profiles.Policy{Home: p.home, Workspace: p.workspace, Seeds: seeds, Files: []profiles.FileRule{
		{Path: p.home, Access: profiles.Persist, Origin: profiles.Origin{Source: "default"}}, {Path: p.workspace, Access: profiles.Write},
	}}
}

func (p *place) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.home, name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(p.t, os.WriteFile(path, []byte(text), 0o600))
}

func inside(t *testing.T, h *Home, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.Path, name))
	require.NoError(t, err)
	return string(text)
}

// A home is there again for the same directory, and another begins for one that was made anew
// under its name.
func TestOpen(t *testing.T) {
	p := newPlace(t)
	h := p.open()
	require.True(t, h.Alone)
	require.NoError(t, os.WriteFile(h.Path+"/kept", nil, 0o600))
	info, err := os.Stat(h.Path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, h.Share())
	second := p.open()
	require.False(t, second.Alone)
	require.Equal(t, h.Ino, second.Ino, "two terminals share a home")
	p.close(second)
	p.close(h)

	h = p.open()
	require.Empty(t, h.Notes)
	require.FileExists(t, h.Path+"/kept")
	p.close(h)
	other, err := Open(p.state, p.workspace, "built-in y", "y")
	require.NoError(t, err)
	require.NoFileExists(t, other.Path+"/kept", "another profile has another")
	other.Close()

	require.NoError(t, os.Remove(p.workspace))
	require.NoError(t, os.Mkdir(p.workspace, 0o755))
	h = p.open()
	require.Len(t, h.Notes, 1)
	require.Contains(t, h.Notes[0], "for a directory that was replaced")
	require.NoFileExists(t, h.Path+"/kept")
	p.close(h)
	list, err := List(p.state)
	require.NoError(t, err)
	require.Len(t, list, 3)

	// A record of another version, or a damaged one, is nobody's.
	record := filepath.Join(p.state, DirName, Key(p.workspace, "built-in x"), recordName)
	require.NoError(t, os.WriteFile(record, []byte("{"), 0o600))
	h = p.open()
	require.Contains(t, h.Notes[0], "without a record")
	p.close(h)
}

// What stands in the way of a mount is moved aside, and nothing leads out of the home.
func TestPrepare(t *testing.T) {
	p := newPlace(t)
	h := p.open()
	outside := filepath.Dir(p.state) + "/outside"
	require.NoError(t, os.MkdirAll(outside, 0o755))
	out, err := exec.Command("sh", "-c", "cd "+h.Path+` && ln -s `+outside+` bin && mkfifo fifo && mkdir -p a/file/in && echo x > a/dir && mkdir closed && chmod 0 closed && ln -s /etc/passwd .gitconfig && ln -s elsewhere link && echo mine > good`).CombinedOutput()
	require.NoError(t, err, string(out))
	needs := []Need{
		{Name: "bin", Dir: true}, {Name: "bin/tool"}, {Name: "fifo"}, {Name: "a/file"}, {Name: "a/dir/deep", Dir: true}, {Name: "closed/in", Dir: true},
		{Name: ".gitconfig"}, {Name: "link", Link: "dot/files"}, {Name: "good"},
	}
	require.NoError(t, h.Prepare(needs))
	require.ElementsMatch(t, []string{"bin", "fifo", "a/file", "a/dir", ".gitconfig", "link"}, h.Aside)
	for _, n := range needs {
		info, err := os.Lstat(filepath.Join(h.Path, n.Name))
		require.NoError(t, err, n.Name)
		require.Equal(t, n.Dir, info.IsDir(), n.Name)
		require.Equal(t, n.Link != "", info.Mode()&os.ModeSymlink != 0, n.Name)
	}
	require.Equal(t, "mine\n", inside(t, h, "good"))
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, entries)

	// What was made for mounts is gone when the next run begins, and what stood is not.
	again := func() {
		p.close(h)
		h = p.open()
		require.NoError(t, h.Clear())
	}
	again()
	require.NoFileExists(t, h.Path+"/bin/tool")
	require.NoFileExists(t, h.Path+"/fifo")
	require.Equal(t, "mine\n", inside(t, h, "good"))
	require.NoError(t, h.Prepare(needs))
	require.NoError(t, os.WriteFile(h.Path+"/fifo", []byte("x"), 0o600))
	again()
	require.FileExists(t, h.Path+"/fifo", "something was written to it")
	require.NoError(t, h.Prepare(needs))

	// The control: nothing is in the way.
	h.Aside = nil
	require.NoError(t, h.Prepare(needs))
	require.Empty(t, h.Aside)
	require.Equal(t, []string{"a", "bin", "closed", "fifo", "good", "link"}, h.Shown("."))
	require.Equal(t, []string{"dir", "file"}, h.Shown("a"))
	require.Empty(t, h.Shown("link"))
}

func TestClear(t *testing.T) {
	p := newPlace(t)
	h := p.open()
	out, err := exec.Command("sh", "-c", "cd "+h.Path+" && echo evil > .bashrc && ln -s x .profile && mkdir -p .config/fish && echo evil > .config/fish/config.fish && : > .npmrc && echo kept > .cache").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, h.Share())
	second := p.open()
	require.NoError(t, second.Clear())
	require.FileExists(t, h.Path+"/.bashrc", "another run uses it")
	p.close(second)
	p.close(h)

	h = p.open()
	require.NoError(t, h.Clear())
	require.ElementsMatch(t, []string{".bashrc", ".profile", ".config/fish"}, h.Aside)
	for _, name := range []string{".bashrc", ".profile", ".config/fish", ".npmrc"} {
		_, err := os.Lstat(filepath.Join(h.Path, name))
		require.ErrorIs(t, err, os.ErrNotExist, name)
	}
	require.FileExists(t, h.Path+"/.cache")
	require.NoError(t, os.RemoveAll(h.Path+"/.config"))
	require.NoError(t, os.Symlink("/etc", h.Path+"/.config"))
	require.NoError(t, h.Clear())
	require.DirExists(t, h.Path+"/.config")
	require.Contains(t, h.Aside, ".config", "a link on the way leads nobody")
	require.NoError(t, os.WriteFile(h.Path+"/.bashrc", []byte("again"), 0o600))
	require.NoError(t, h.Clear(), "what was moved before makes room")
}

// What the user changes on the host comes in, and what was changed inside stays.
func TestSeedFollows(t *testing.T) {
	p := newPlace(t)
	seed := profiles.Seed{
		Path: ".agent.json", Mode: profiles.Follow, Keys: []string{"theme", "servers", "projects.{workspace}", "n"}, Server: []string{"servers"},
		Set: []profiles.SeedValue{{Key: "projects.{workspace}.trusted", Value: true}},
	}
	p.write(".agent.json", `{
		// as the agent has it
		"theme": "dark", "secret": 1, "n": 12345678901234567890,
		"servers": {"a": {"command": "x"}, "b": {"command": "x", "env": {"TOKEN": "t"}}, "c": {"url": "https://u:p@host"}, "d": {"command": "x", "args": ["--api-key", "y"]}},
		"projects": {"`+p.workspace+`": {"history": [1]}, "/other": {"history": [2]}},
	}`)
	run := func(then func(h *Home)) *Home {
		h := p.open()
		require.NoError(t, h.Seed(p.policy(seed)))
		if then != nil {
			then(h)
		}
		p.close(h)
		return h
	}
	h := run(nil)
	require.JSONEq(t, `{"theme": "dark", "n": 12345678901234567890, "servers": {"a": {"command": "x"}}, "projects": {"`+p.workspace+`": {"history": [1], "trusted": true}}}`, inside(t, h, ".agent.json"))
	require.Len(t, h.Notes, 3)
	require.Contains(t, h.Notes[0], `server "b" of`)

	change := func(h *Home) {
		require.NoError(t, os.WriteFile(h.Path+"/.agent.json", []byte(`{"theme": "light", "mine": true, "projects": {"`+p.workspace+`": {"history": [1], "trusted": false}}}`), 0o600))
	}
	run(change)
	h = run(nil)
	require.Contains(t, inside(t, h, ".agent.json"), `"light"`, "the host's is as it was")
	p.write(".agent.json", `{"theme": "dark", "n": 2, "projects": {"`+p.workspace+`": {"history": [1, 2]}}}`)
	h = run(nil)
	require.JSONEq(t, `{"theme": "light", "mine": true, "n": 2, "projects": {"`+p.workspace+`": {"history": [1, 2], "trusted": false}}}`, inside(t, h, ".agent.json"), "what has not changed on the host stays as it is inside")

	// Whatever the command has put there leads nobody out of the home.
	outside := filepath.Dir(p.state) + "/outside.json"
	require.NoError(t, os.WriteFile(outside, []byte(`{"stolen": 1}`), 0o600))
	run(func(h *Home) {
		require.NoError(t, os.Remove(h.Path+"/.agent.json"))
		require.NoError(t, os.Symlink(outside, h.Path+"/.agent.json"))
	})
	p.write(".agent.json", `{"theme": "third"}`)
	h = run(nil)
	require.JSONEq(t, `{"theme": "third", "projects": {"`+p.workspace+`": {"trusted": true}}}`, inside(t, h, ".agent.json"))
	require.Equal(t, []string{".agent.json"}, h.Aside)
	text, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, `{"stolen": 1}`, string(text))

	// What the host has no more is gone inside, where it is as it came.
	require.NoError(t, os.Remove(p.home+"/.agent.json"))
	h = run(nil)
	require.NotContains(t, inside(t, h, ".agent.json"), "third")
	p.write(".agent.json", `{`)
	h = run(nil)
	require.Contains(t, strings.Join(h.Notes, "\n"), "read ")
}

func TestSeedModes(t *testing.T) {
	p := newPlace(t)
	seeds := func() []profiles.Seed {
		return []profiles.Seed{
			{Path: ".d/once", Mode: profiles.Once}, {Path: ".d/login", Mode: profiles.Login}, {Path: ".d/follow", Mode: profiles.Follow},
			{Path: ".d/conf.toml", Mode: profiles.Follow, Drop: []string{"sandbox"}, Set: []profiles.SeedValue{{Key: "mode", Value: "open"}}},
		}
	}
	for _, name := range []string{"once", "login", "follow"} {
		p.write(".d/"+name, "1")
	}
	p.write(".d/conf.toml", "sandbox = \"closed\"\nn = 7\nwhen = 2026-01-02T03:04:05Z\n[a.b]\nx = [1, 2.5]\n")
	h := p.open()
	require.NoError(t, h.Seed(p.policy(seeds()...)))
	require.NoError(t, h.Share())
	require.Equal(t, "a", parsed(t, h, "a"))
	for _, name := range []string{"once", "login", "follow"} {
		p.write(".d/"+name, "2")
	}
	second := p.open()
	require.NoError(t, second.Seed(p.policy(seeds()...)))
	require.Equal(t, "1 2 1", inside(t, h, ".d/once")+" "+inside(t, h, ".d/login")+" "+inside(t, h, ".d/follow"), "another run uses it: only log-ins")
	p.close(second)
	p.close(h)
	p.write(".d/conf.toml", "n = 8\n[a.b]\nx = [1, 2.5]\n")
	h = p.open()
	require.NoError(t, h.Seed(p.policy(seeds()...)))
	require.Equal(t, "1 2 2", inside(t, h, ".d/once")+" "+inside(t, h, ".d/login")+" "+inside(t, h, ".d/follow"))
	text := inside(t, h, ".d/conf.toml")
	require.Contains(t, text, "n = 8\n")
	require.Contains(t, text, "mode = \"open\"")
	require.NotContains(t, text, "when")
	require.NotContains(t, text, "sandbox")
	p.close(h)

	// A fresh home has the same.
	files, notes := Files(p.policy(append(seeds(), profiles.Seed{Path: ".absent"}, profiles.Seed{Path: ".none.json", Set: []profiles.SeedValue{{Key: "a.b", Value: "c"}}})...))
	require.Empty(t, notes)
	require.Len(t, files, 5)
	require.Equal(t, "2", files[p.home+"/.d/login"])
	require.JSONEq(t, `{"a": {"b": "c"}}`, files[p.home+"/.none.json"])
}

// parsed says that TOML came through: its numbers, times and tables.
func parsed(t *testing.T, h *Home, key string) string {
	v, err := parse("c.toml", []byte(inside(t, h, ".d/conf.toml")))
	require.NoError(t, err)
	require.Equal(t, int64(7), v["n"])
	require.IsType(t, time.Time{}, v["when"])
	require.Equal(t, map[string]any{"b": map[string]any{"x": []any{int64(1), 2.5}}}, v[key])
	return key
}

// A link of the user's is followed, unless a run could have made it, or a rule hides what it
// leads to; and only regular files are copied.
func TestSeedLinks(t *testing.T) {
	p := newPlace(t)
	p.write("dots/a", "dotted")
	p.write("work/planted", "planted")
	p.write("hidden/h", "hidden")
	for name, to := range map[string]string{"a": "dots/a", "b": "work/planted", "c": "hidden/h", "d": "/dev/null", "e": "gone"} {
		require.NoError(t, os.Symlink(to, p.home+"/."+name))
	}
	require.NoError(t, unix.Mkfifo(p.home+"/.f", 0o600))
	var seeds []profiles.Seed
	for _, name := range []string{".a", ".b", ".c", ".d", ".e", ".f"} {
		seeds = append(seeds, profiles.Seed{Path: name, Mode: profiles.Login})
	}
	policy := p.policy(seeds...)
	policy.Files = append(policy.Files, profiles.FileRule{Path: p.home + "/hidden", Access: profiles.Hide, Origin: profiles.Origin{Source: "flag", Key: "--hide"}})
	h := p.open()
	require.NoError(t, h.Seed(policy))
	require.Equal(t, "dotted", inside(t, h, ".a"))
	for _, name := range []string{".b", ".c", ".d", ".e", ".f"} {
		require.NoFileExists(t, filepath.Join(h.Path, name))
	}
	require.Len(t, h.Notes, 4)
	require.Contains(t, strings.Join(h.Notes, "\n"), "which is hide (flag --hide)")
}

func TestExport(t *testing.T) {
	p := newPlace(t)
	h := p.open()
	require.NoError(t, h.Share())
	out, err := exec.Command("sh", "-c", "cd "+h.Path+" && mkdir -p d/e && echo x > d/f && chmod 4755 d/f && ln -s /etc/passwd d/l && mkfifo d/p && echo token > d/e/login").CombinedOutput()
	require.NoError(t, err, string(out))
	to := filepath.Dir(p.state) + "/to"
	left, err := Export(p.state, Key(p.workspace, "built-in x"), "d", to, []string{"d/e/login"})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"d/l", "d/p", "d/e/login"}, left)
	info, err := os.Lstat(to + "/f")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode())
	require.NoFileExists(t, to+"/e/login")
	_, err = Export(p.state, Key(p.workspace, "built-in x"), "d", to, nil)
	require.ErrorIs(t, err, os.ErrExist, "nothing is overwritten")
	_, err = Export(p.state, Key(p.workspace, "built-in x"), "d/l", to+"2", nil)
	require.NoError(t, err)
	require.NoFileExists(t, to+"2")
	require.NoError(t, os.Symlink(p.home, h.Path+"/up"))
	_, err = Export(p.state, Key(p.workspace, "built-in x"), "up/work", to+"3", nil)
	require.Error(t, err, "no link is followed")
	require.NoError(t, os.MkdirAll(h.Path+"/deep"+strings.Repeat("/d", exported.Depth+1), 0o700))
	_, err = Export(p.state, Key(p.workspace, "built-in x"), "deep", to+"4", nil)
	require.ErrorContains(t, err, "128 levels of directories")
}

func TestRemove(t *testing.T) {
	p := newPlace(t)
	key := Key(p.workspace, "built-in x")
	require.Error(t, Remove(p.state, key))
	h := p.open()
	require.NoError(t, os.WriteFile(h.Path+"/f", make([]byte, 1<<20), 0o600))
	require.ErrorIs(t, Remove(p.state, key), ErrInUse)
	list, err := List(p.state)
	require.NoError(t, err)
	require.True(t, list[0].InUse)
	require.Zero(t, list[0].Size, "nobody has asked for it")
	deep, err := os.OpenRoot(h.Path)
	require.NoError(t, err)
	for range 6000 { // deeper than the kernel takes a path
		require.NoError(t, deep.Mkdir("deep", 0o700))
		next, err := deep.OpenRoot("deep")
		require.NoError(t, err)
		deep.Close()
		deep = next
	}
	require.NoError(t, deep.WriteFile("f", make([]byte, 1<<20), 0o600))
	deep.Close()
	require.NoError(t, Measure(p.state, &list[0]))
	require.GreaterOrEqual(t, list[0].Size, int64(2<<20), "with what lies deepest")
	require.False(t, list[0].More)
	p.close(h)
	require.NoError(t, os.Mkdir(h.Path+"/closed", 0))
	require.NoError(t, Remove(p.state, key))
	list, err = List(p.state)
	require.NoError(t, err)
	require.Empty(t, list)
	require.Error(t, Remove(p.state, "../x"))

	// A workspace that is gone, and one whose disk is.
	h = p.open()
	p.close(h)
	require.NoError(t, os.Remove(p.workspace))
	removed, err := Collect(p.state, Default, time.Now())
	require.NoError(t, err)
	require.Empty(t, removed, "it has just been used")
	removed, err = Collect(p.state, Default, time.Now().Add(31*24*time.Hour))
	require.NoError(t, err)
	require.Len(t, removed, 1)
}

func TestExpired(t *testing.T) {
	now := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	entry := func(key string, age time.Duration, size int64, change ...func(*Entry)) Entry {
		e := Entry{Key: key, Size: size, Record: Record{Used: now.Add(-age)}}
		for _, c := range change {
			c(&e)
		}
		return e
	}
	gone := func(e *Entry) { e.Gone = true }
	used := func(e *Entry) { e.InUse = true }
	list := []Entry{
		entry("new", day, 4), entry("used", 90*day, 4, used, gone), entry("old", 60*day, 4), entry("gone", 31*day, 4, gone),
		entry("just gone", day, 4, gone), entry("bad", 90*day, 4, func(e *Entry) { e.Bad = "no record" }), entry("replaced", 40*day, 4, func(e *Entry) { e.Old = true }),
	}
	require.Equal(t, []string{"gone", "replaced"}, Expired(list, Limits{30 * day, 100}, now))
	require.Equal(t, []string{"gone", "replaced", "old"}, Expired(list, Limits{30 * day, 18}, now))
	require.Equal(t, []string{"gone", "replaced", "old", "new", "just gone"}, Expired(list, Limits{30 * day, 0}, now), "what is used, or nobody knows, stays")
}

// What looks like a credential keeps a server out: in doubt it is left out.
func TestCredential(t *testing.T) {
	for text, want := range map[string]bool{
		`{"command": "npx", "args": ["-y", "@scope/server"]}`:                          false,
		`{"url": "https://mcp.example.com/sse", "enabled": true, "n": 3}`:              false,
		`{"command": "x", "env": {}, "headers": null, "oauth": "", "environment": []}`: false,
		`{"command": "x", "env": {"A": "b"}}`:                                          true,
		`{"url": "https://mcp.example.com/?key=1"}`:                                    true,
		`{"url": "https://user@mcp.example.com/"}`:                                     true,
		`{"command": ["x", "--token=1"]}`:                                              true,
		`{"command": "x", "options": {"deep": ["ghp_0123"]}}`:                          true,
		`{"command": "x", "args": ["0123456789012345678901234567890123456789"]}`:       true,
		`{"url": "https://x", "headers": {"Authorization": "Bearer y"}}`:               true,
	} {
		v, err := parse("x.json", []byte(text))
		require.NoError(t, err)
		require.Equal(t, want, credential(v), text)
	}
	require.True(t, credential("a string"))
	require.True(t, credential(map[string]any{"args": []string{"--secret"}}))
}

func TestParse(t *testing.T) {
	v, err := parse("x.json", []byte(`{ /* a */ "a": "// no \" comment", // b
		"list": [1, 2, ], }`))
	require.NoError(t, err)
	require.Equal(t, `// no " comment`, v["a"])
	require.Len(t, v["list"], 2)
	v, err = parse("x.json", []byte("  // nothing"))
	require.NoError(t, err)
	require.Empty(t, v)
	for _, bad := range []string{"{} {}", "[]", "{", `{"a": /* `} {
		_, err := parse("x.json", []byte(bad))
		require.Error(t, err, bad)
	}
	_, err = parse("x.toml", []byte("a = ["))
	require.Error(t, err)
}

// TestDeepSettings: a file of settings that a command has nested deeper than a parser can follow is not parsed. What a
// user writes is.
func TestDeepSettings(t *testing.T) {
	for _, name := range []string{"config.toml", "settings.json"} {
		for _, text := range []string{
			strings.Repeat("[", 2<<20), "a = " + strings.Repeat("[", 2<<20), "{\"a\":" + strings.Repeat("[", 2<<20), strings.Repeat("{\"a\":", 1<<19),
			"a = " + strings.Repeat("{a=", 1<<19), strings.Repeat("a.", 1<<20) + "b = 1", "[" + strings.Repeat("a.", 1<<20) + "b]",
			"x = \"\"\"\"a\"\"\"\"\"\na = " + strings.Repeat("[", 2<<20), "x = '''''' # \"\na = " + strings.Repeat("[", 2<<20),
		} {
			_, err := parse(name, []byte(text))
			require.Error(t, err, "%s: %.20s", name, text)
		}
	}
	for name, text := range map[string]string{
		"config.toml": "# [[[\nmodel = \"a.b\"\nlong = \"\"\"\n[[" + strings.Repeat("[.", 99) + "\"\"\"\nraw = '" + strings.Repeat("{.", 99) + "'\nlist = [" +
			strings.Repeat("1.5, ", 999) + "]\n[a.b.c]\nx = { y = [ { z = 1 } ] }\n" + strings.Repeat("[[d.e]]\nv = 1.2\n", 99),
		"settings.json": "{\"a\": \"\\\"" + strings.Repeat("[.", 99) + "\", \"b\": [" + strings.Repeat("{\"c\": 1.5}, ", 999) + "{}]} // [[[",
	} {
		v, err := parse(name, []byte(text))
		require.NoError(t, err, name)
		require.NotEmpty(t, v)
	}
}

// FuzzSettings: what is parsed can be written, and no deeper than is parsed.
func FuzzSettings(f *testing.F) {
	for _, text := range []string{"a.b = 1\n[c]\nd = [{e = 'x'}]", "{\"a\": [1, {\"b\": null}]}", "x = \"\"\"\"a\"\"\"\"\"\ny = [[[]]]", "a = ''''''\n", "# \"\na=1", strings.Repeat("[", 40)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{"x.toml", "x.json"} {
			v, err := parse(name, []byte(text))
			if err != nil {
				continue
			}
			require.LessOrEqual(t, depthOf(v), 2*maxDepth+2, "of a table's name, and of what is in it")
			_, _ = format(name, v)
		}
	})
}

func depthOf(v any) (deepest int) {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, depthOf(e))
		}
	case []any:
		for _, e := range v {
			deepest = max(deepest, depthOf(e))
		}
	case []map[string]any:
		for _, e := range v {
			deepest = max(deepest, depthOf(e))
		}
	default:
		return 0
	}
	return deepest + 1
}
