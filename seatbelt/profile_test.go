package seatbelt

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/sbpl"
)

const (
	testHome      = "/Users/dev"
	testWorkspace = "/Users/dev/src/project"
)

// policy returns what a profile is on a Mac of which nothing else is known.
func policy(t testing.TB, profile string, change func(*profiles.Request)) *profiles.Policy {
	req := profiles.Request{Profile: profile, Workspace: testWorkspace, Host: profiles.Host{Home: testHome,
		Elsewhere: true, Memory: 16 << 30}}
	if change != nil {
		change(&req)
	}
	p, err := profiles.Resolve(req)
	require.NoError(t, err)
	return p
}

// TestText holds what can be said of every text: small, plain, the same each time, and
// without a path of the user's.
func TestText(t *testing.T) {
	address := regexp.MustCompile(`"(localhost|\*):[1-9][0-9]*"`)
	for _, name := range profiles.Builtin() {
		p := policy(t, name, func(r *profiles.Request) {
			r.Local, r.Publish, r.Sockets = []string{"localhost:5433", "8080"}, []string{"3000"}, []string{"/Users/dev/s.sock"}
			r.Files = []profiles.FileFlag{{Path: "/opt/own", Access: profiles.Write}, {Path: "./sub/**/*.key",
				Access: profiles.Hide}}
			r.Host.Cwd = testWorkspace
		})
		d, err := Profile(p, Example(testHome))
		require.NoError(t, err, name)
		again, err := Profile(p, Example(testHome))
		require.NoError(t, err)
		require.Equal(t, d, again)
		assert.True(t, strings.HasPrefix(d.Text, "(version 1)\n"))
		for _, own := range []string{"/Users/", "src/project", "/opt/own", "s.sock"} {
			assert.NotContains(t, d.Text, own, name)
		}
		for i, line := range strings.Split(d.Text, "\n") {
			if strings.Contains(line, " ip ") && !strings.HasPrefix(strings.TrimSpace(line), ";") {
				assert.Regexp(t, address, line)
			}
			rest := regexp.MustCompile(`#?"[^"]*"`).ReplaceAllString(line, "")
			assert.False(t, strings.Contains(rest, ";") && !strings.HasPrefix(strings.TrimSpace(line), ";"),
				"%s: line %d has a comment behind something", name, i+1)
			for _, c := range line {
				assert.True(t, c >= ' ' && c <= '~')
			}
		}
		rules, err := parse(d)
		require.NoError(t, err)
		for _, r := range rules.List {
			if r.Filters() == 0 {
				assert.Subset(t, []string{"process-fork", "ipc-posix-sem", "pseudo-tty"}, r.Operations)
			}
		}
		seen := map[string]bool{}
		for _, param := range d.Params {
			assert.Regexp(t, `^[A-Z]+(_[A-Z]+)?(_[0-9]+)?$`, param.Name)
			assert.False(t, seen[param.Name] || seen[param.Value], param)
			seen[param.Name], seen[param.Value] = true, true
			assert.Contains(t, d.Text, `(param "`+param.Name+`")`, "nobody asks for it")
		}
		d, err = Profile(policy(t, name, nil), Example(testHome))
		require.NoError(t, err)
		assert.LessOrEqual(t, len(d.Text), 40_000, name)
	}
}

// TestAgainstTheTable holds the text to the policy's own answer, on tables and paths
// that are made at random.
func TestAgainstTheTable(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 41))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	name := func() string { return pick("a", "b", "ab", "key.pem", ".env", ".env.example", "x.key") }
	somewhere := func(most int) string {
		path := testWorkspace
		if random.IntN(4) == 0 {
			path = pick(testHome, "/opt", "/Users/dev/src")
		}
		for range random.IntN(most) {
			path += "/" + name()
		}
		return path
	}
	access := func() profiles.Access {
		return []profiles.Access{profiles.Hide, profiles.Private, profiles.Read, profiles.Write}[random.IntN(4)]
	}
	for round := range 300 {
		p := policy(t, "default", nil)
		p.Protect = nil
		for range random.IntN(6) {
			p.Files = append(p.Files, profiles.FileRule{Path: somewhere(4), Access: access()})
		}
		if random.IntN(2) == 0 {
			rule := profiles.FileRule{Path: somewhere(2), Glob: pick("**/*.key", "a/*.pem", "**/a/**", "?", "[ab]",
				"**/b/*.key"), Access: access()}
			// Of two patterns the stricter holds, and not the longer: docs/policy.md.
			p.Files = slices.DeleteFunc(p.Files, func(r profiles.FileRule) bool { return r.Glob != "" })
			p.Files = append(p.Files, rule)
		}
		for range random.IntN(3) {
			p.Tighten = append(p.Tighten, profiles.FileRule{Path: somewhere(4), Access: access(),
				Origin: profiles.Origin{Source: "own"}})
		}
		rules := rulesOf(t, p, Survey{})
		for range 60 {
			path := somewhere(5)
			if strings.Count(path, ".env.example") > 1 {
				continue // hidden here: a template below a template
			}
			for word, right := range map[string]class{"read": readable, "write": writable} {
				v, err := sbpl.Evaluate(rules, words[word], sbpl.Target{Path: path})
				require.NoError(t, err)
				d := p.Decide(path)
				require.Equal(t, right(d.Access), v.Allowed, "round %d: %s %s: %s %s of %v %v", round, word, path, d.Access,
					d.Rule.Text(), p.Files, p.Tighten)
			}
		}
	}
}

// TestProtectedNames tries each pattern of the protect list, in the workspace and in
// another case.
func TestProtectedNames(t *testing.T) {
	p := policy(t, "protect-more", nil)
	rules := rulesOf(t, p, Example(testHome))
	denied := func(path string) bool {
		v, err := sbpl.Evaluate(rules, "file-write-create", sbpl.Target{Path: path})
		require.NoError(t, err)
		return !v.Allowed
	}
	require.False(t, denied(testWorkspace+"/plain/name"), "the control")
	tried := 0
	for i := range p.Protect {
		r := &p.Protect[i]
		if r.Review {
			continue
		}
		path := r.Pattern
		switch {
		case strings.HasPrefix(path, "/"):
		case strings.HasPrefix(path, ".git/") || !strings.Contains(path, "/"):
			path = testWorkspace + "/deep/er/" + path
		default:
			path = testWorkspace + "/" + strings.Replace(path, "**", "deep/er", 1)
		}
		path = strings.ReplaceAll(path, "*", "x")
		require.True(t, r.Matches(p.Workspace, path), "%s %s", r.Pattern, path)
		dir := testHome
		if within(testWorkspace, path) {
			dir = testWorkspace
		}
		for _, path := range []string{path, path + "/below", dir + strings.ToUpper(path[len(dir):])} {
			assert.True(t, denied(path), path)
			tried++
		}
	}
	assert.Greater(t, tried, 700)
}

func TestSurvey(t *testing.T) {
	p := policy(t, "default", func(r *profiles.Request) {
		r.Files = []profiles.FileFlag{{Path: "/Users/dev/.toolrc", Access: profiles.Read},
			{Path: testWorkspace + "/data/secret", Access: profiles.Hide},
			{Path: testWorkspace + "/keys/*.pem", Access: profiles.Hide}, {Path: "/tmp/shared", Access: profiles.Write},
			{Path: "/opt/beside", Access: profiles.Write}}
		r.Protect = []string{"scripts/deploy.sh"}
	})
	s := Example(testHome)
	s.Places = []Place{{"/Users/dev/.nvm/v22", profiles.Read, "PATH"}, {"/Users/dev/main/.git", profiles.Write,
		"the worktree's repository"}}
	s.Links = []Link{{"/Users/dev/.toolrc", "/Users/dev/dotfiles/toolrc"}, {"/Users/dev/.nvm", "/Volumes/Big/nvm"}}
	s.Protect = []string{"/Users/dev/main/.git/hooks"}
	s.Standing = []string{testWorkspace + "/sub/deep/.envrc"}
	s.Terminal = "/dev/ttys042"
	rules := rulesOf(t, p, s)
	for _, c := range []struct {
		allowed    bool
		word, path string
	}{
		{true, "read", "/Users/dev/dotfiles/toolrc"}, {false, "read", "/Users/dev/dotfiles/other"}, {true, "stat",
			"/Users/dev/.toolrc"}, {false, "read", "/Users/dev/.toolrc"},
		{true, "exec", "/Volumes/Big/nvm/v22/bin/node"}, {false, "read", "/Volumes/Big/nvm/other"}, {true, "stat",
			"/Users/dev/.nvm"},
		{false, "read", testWorkspace + "/.env.ci"},
		{true, "write", "/Users/dev/main/.git/objects/x"}, {false, "write", "/Users/dev/main/.git/hooks/x"}, {false,
			"remove", "/Users/dev/main/.git"},
		{false, "remove", testWorkspace + "/sub"}, {false, "remove", testWorkspace + "/sub/deep"}, {true, "remove",
			testWorkspace + "/sub/other"},
		{false, "remove", testWorkspace + "/data"}, {false, "read", testWorkspace + "/data/secret"}, {true, "write",
			testWorkspace + "/data/other"},
		{false, "remove", testWorkspace + "/keys"}, {false, "read", testWorkspace + "/keys/a.pem"}, {true, "remove",
			testWorkspace + "/keys2"},
		{false, "write", testWorkspace + "/scripts/deploy.sh"}, {false, "remove", testWorkspace + "/scripts"}, {true,
			"write", testWorkspace + "/scripts/other.sh"},
		{true, "write", "/dev/ttys042"}, {true, "ioctl", "/dev/ttys042"}, {false, "write", "/dev/ttys041"},
		{true, "write", "/private/tmp/shared/x"}, {false, "write", "/private/tmp/x"}, {true, "stat", "/private/tmp"},
		{true, "write", "/opt/beside/x"}, {false, "write", "/opt/beside/.envrc"}, {false, "write",
			"/opt/beside/r/.git/hooks/x"}, {false, "remove", "/opt/beside"},
	} {
		v, err := sbpl.Evaluate(rules, words[c.word], sbpl.Target{Path: c.path})
		require.NoError(t, err)
		assert.Equal(t, c.allowed, v.Allowed, "%s %s: line %d", c.word, c.path, v.Line)
	}
}

// TestWorkspaceBehindALink names the workspace by a link of the system's, and by the
// second name of the disk of the homes.
func TestWorkspaceBehindALink(t *testing.T) {
	for named, real := range map[string]string{"/tmp/work": "/private/tmp/work",
		"/System/Volumes/Data/Users/dev/w": "/Users/dev/w", "/var/tmp/x/w": "/private/var/tmp/x/w"} {
		p := policy(t, "default", func(r *profiles.Request) { r.Workspace = named })
		rules := rulesOf(t, p, Survey{Temp: "/tmp/own"})
		for path, allowed := range map[string]bool{"/private/tmp/own/x": true, real + "/a": true, real + "/.envrc": false,
			real + "/.env": false, real: true} {
			v, err := sbpl.Evaluate(rules, "file-write-data", sbpl.Target{Path: path})
			require.NoError(t, err)
			assert.Equal(t, allowed, v.Allowed, path)
		}
	}
}

// A workspace may lie below a name that is protected in it.
func TestWorkspaceBelowAProtectedName(t *testing.T) {
	p := policy(t, "default", func(r *profiles.Request) { r.Workspace = "/Users/dev/repo/.claude/worktrees/w" })
	rules := rulesOf(t, p, Survey{})
	for path, allowed := range map[string]bool{"/a": true, "/.claude/x": false, "/b/.claude/x": false} {
		v, err := sbpl.Evaluate(rules, "file-write-data", sbpl.Target{Path: p.Workspace + path})
		require.NoError(t, err)
		assert.Equal(t, allowed, v.Allowed, path)
	}
}

// TestTag marks each denial in the system's log, and changes no answer.
func TestTag(t *testing.T) {
	p, s := policy(t, "claude", nil), Example(testHome)
	plain, err := Profile(p, s)
	require.NoError(t, err)
	s.Tag = "pccrun-k2"
	marked, err := Profile(p, s)
	require.NoError(t, err)
	const mark = `(with message "pccrun-k2")`
	require.Equal(t, strings.Count(plain.Text, "(deny "), strings.Count(marked.Text, mark))
	require.NotContains(t, plain.Text, "with message")
	rules, err := parse(marked)
	require.NoError(t, err)
	for _, c := range cases(t, "claude") {
		v, err := sbpl.Evaluate(rules, words[c.word], c.target)
		require.NoError(t, err)
		require.Equal(t, c.allowed, v.Allowed, c.where)
	}
	for _, tag := range []string{`"`, "a b", "a\n", "ä", "*"} {
		s.Tag = tag
		_, err := Profile(p, s)
		require.Error(t, err, tag)
	}
	for _, text := range []string{`(with)`, `(with message)`, `(with message x)`, `(with message "")`, `(with no-log)`, `(with message "a" "b")`, `(with message "a") (with message "b")`} {
		_, err := sbpl.Parse("(version 1)\n(deny default)\n(deny signal (target self) "+text+")", nil)
		require.Error(t, err, text)
		_, err = sbpl.Parse("(version 1)\n(deny default)\n(allow signal (target self) (with message \"a\"))", nil)
		require.Error(t, err, "a message of what is allowed")
	}
}

func TestProfileRefuses(t *testing.T) {
	_, err := Profile(policy(t, "default", nil), Survey{Home: "/Users/dev/a\nb"})
	require.ErrorContains(t, err, "control character")
	p := policy(t, "default", func(r *profiles.Request) {
		r.Files = []profiles.FileFlag{{Path: testWorkspace, Access: profiles.Overlay}}
	})
	_, err = Profile(p, Survey{})
	require.ErrorContains(t, err, testWorkspace+": overlay")
	require.Contains(t, profiles.Hint(err), "--read or --write")
	for pattern, cause := range map[string]string{"a\"*": "no expression", "ä*": "no expression",
		"[!.]*": "all but a sign", `["]`: "no expression"} {
		p := policy(t, "default", func(r *profiles.Request) {
			r.Files = []profiles.FileFlag{{Path: testWorkspace + "/" + pattern, Access: profiles.Hide}}
		})
		_, err := Profile(p, Survey{})
		assert.ErrorContains(t, err, cause, pattern)
		p = policy(t, "default", func(r *profiles.Request) { r.Protect = []string{pattern} })
		_, err = Profile(p, Survey{})
		assert.ErrorContains(t, err, cause, pattern)
	}
}

// TestPatterns holds expressions to the pattern language.
func TestPatterns(t *testing.T) {
	names := []string{"a", "A", "b", "ab", "a.b", "a-b", "a]b", "^", "x/a", "x/y/a", "a/b", "a/x/b", "a/x/y/b", "[ab]",
		"k1", "k2", "k-", "pages/[id].js", "pages/i.js", "$x"}
	for _, pattern := range []string{"a", "*", "?", "a*b", "**/a", "a/**/b", "**/a/**", "[ab]", "[!a]", "k[0-9]",
		"k[1-]", "[]^]", "a[]]b", "pages/[id].js", "**", "a/**", "**/**/a", "$x", "^"} {
		rule := profiles.FileRule{Path: "/w", Glob: pattern, Access: profiles.Read}
		globs, err := globsOf(pattern)
		require.NoError(t, err, pattern)
		for _, name := range names {
			got, folded := false, false
			for _, g := range globs {
				got = got || regexp.MustCompile(below("/w", g.expression()+"$")).MatchString("/w/"+name)
			}
			for _, same := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
				folded = folded || rule.Matches("/w/"+same)
			}
			if strings.HasSuffix(pattern, "/**") { // what it matches covers what lies below
				continue
			}
			if strings.Contains(pattern, "[!") { // all but a member, in the case in which it is written
				folded = rule.Matches("/w/" + name)
			}
			if pattern == "**" {
				folded = !strings.Contains(name, "/")
			}
			assert.Equal(t, folded, got, "%s %s", pattern, name)
		}
	}
}

// TestHiddenStaysWhereItIs tries to rename, exchange, link and clone what is hidden, named and by a
// pattern, and to rename and exchange each directory above it: that asks for file-write-unlink.
func TestHiddenStaysWhereItIs(t *testing.T) {
	for _, name := range profiles.Builtin() {
		hidden := []string{testWorkspace + "/data/deep/secret", testWorkspace + "/sub/deep/er/.env"}
		p := policy(t, name, func(r *profiles.Request) { r.Files = []profiles.FileFlag{{Path: hidden[0], Access: profiles.Hide}} })
		s := Example(testHome)
		s.Standing = hidden[1:]
		rules := rulesOf(t, p, s)
		denied := func(op, path string) {
			v, err := sbpl.Evaluate(rules, op, sbpl.Target{Path: path})
			require.NoError(t, err)
			assert.False(t, v.Allowed, "%s: %s %s: line %d", name, op, path, v.Line)
		}
		for _, file := range hidden {
			for _, op := range []string{"file-link", "file-clone", "file-read-data", "file-write-create", "file-write-unlink"} {
				denied(op, file)
			}
			for dir := file; dir != "/"; dir = dir[:strings.LastIndexByte(dir, '/')] {
				if denied("file-write-unlink", dir); dir == "/Users" {
					break
				}
			}
		}
		v, err := sbpl.Evaluate(rules, "file-write-unlink", sbpl.Target{Path: testWorkspace + "/other/deep"})
		require.NoError(t, err)
		assert.True(t, v.Allowed, "the control")
	}
}

// FuzzProfile puts what a user may write into a policy: the text stays a profile, and
// what he wrote as a path stays out of it.
func FuzzProfile(f *testing.F) {
	f.Add("/Users/dev/x", "**/*.pem", "secret/[a-z]x?")
	f.Add("/Users/dev/\") (allow default) (\"", "[!a]*", "**")
	f.Add("/tmp/a;b", "a\")(allow file-write* (subpath \"/", "$x^y\\z")
	f.Fuzz(func(t *testing.T, path, hide, protect string) {
		req := profiles.Request{Profile: "default", Workspace: testWorkspace, Host: profiles.Host{Home: testHome,
			Elsewhere: true, Memory: 1 << 30, Cwd: testWorkspace},
			Files:   []profiles.FileFlag{{Path: path, Access: profiles.Write}, {Path: "./" + hide, Access: profiles.Hide}},
			Protect: []string{protect}, Sockets: []string{path}}
		p, err := profiles.Resolve(req)
		if err != nil {
			return
		}
		p.Protect = slices.DeleteFunc(p.Protect,
			func(r profiles.ProtectRule) bool { return r.Origin.Source != "flag" }) // some hundreds
		d, err := Profile(p, Example(testHome))
		if err != nil {
			return
		}
		rules, err := parse(d)
		require.NoError(t, err)
		require.False(t, rules.Default)
		if strings.HasPrefix(path, "/Users/dev/") {
			require.NotContains(t, d.Text, "/Users/dev")
		}
	})
}
