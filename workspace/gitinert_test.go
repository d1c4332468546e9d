package workspace

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is taken for harmless is not what is known to execute.
func TestInertKeysRunNothing(t *testing.T) {
	for _, name := range inertKeys {
		section, key, _ := strings.Cut(name, ".")
		if key == "*" {
			key = "anything"
		}
		for _, value := range []string{"x", "!x"} {
			s := setting{section: section, key: key, value: value}
			require.Equal(t, useNone, s.use(), name)
			require.True(t, s.inert(), name)
		}
	}
	for _, s := range []setting{
		{section: "alias", key: "co", value: "checkout"}, {section: "remote", sub: "o", key: "url", value: "ext::sh -c x"}, {section: "remote", sub: "o", key: "url", value: "-x"},
		{section: "submodule", sub: "s", key: "update", value: "!x"}, {section: "protocol", sub: "ext", key: "allow", value: "always"}, {section: "lfs", sub: "x", key: "path", value: "x"},
		{section: "commit", key: "gpgsign", value: "true"}, {section: "commit", key: "gpgsign"}, {section: "tag", sub: "x", key: "gpgsign", value: "false"},
		{section: "core", key: "hookspath", value: "x"}, {section: "url", sub: "ext::sh", key: "insteadof", value: "x"}, {section: "of", key: "tomorrow"}, {section: "remote", sub: "o", key: "vcs", value: "x"},
	} {
		require.False(t, s.inert(), s.name())
	}
	require.True(t, (&setting{section: "submodule", sub: "s", key: "update", value: "rebase"}).inert())
	require.True(t, (&setting{section: "commit", key: "gpgsign", value: "false"}).inert())
	for url, inert := range map[string]bool{
		"https://example.com/a.git": true, "git@example.com:a/b.git": true, "../o": true, "/o/.git": true, "file:///o": true, "https://example.com/a%20b": true, "origin": true,
		"/o/.git/objects/x": false, ".git/refs/x": false, "file:///o/%2egit/objects/x": false, "file:///o/.git/logs/x": false, "/k/objects/0f/x": false,
	} {
		for _, name := range []string{"remote.o.url", "remote.o.pushurl", "remote..pushdefault", "branch.m.remote", "branch.m.pushremote", "submodule.s.url"} {
			part := strings.Split(name, ".")
			s := setting{section: part[0], sub: part[1], key: part[2], value: url}
			require.Equal(t, inert, s.inert(), "%s=%s", name, url)
		}
	}
}

func TestStrip(t *testing.T) {
	drop := func(s *setting) bool { return !s.inert() }
	for text, want := range map[string]string{
		"[core]\n\tbare = false\n\tfsmonitor = x ; y\n\tfilemode = true\n": "[core]\n\tbare = false\n\tfilemode = true\n",
		"[core] fsmonitor = x\n[user]\n\tname = me\n":                      "[core] [user]\n\tname = me\n",
		"[alias]\n\tx = \"!a\\\n b\"\n# c\n":                               "[alias]\n# c\n",
		"\uFEFF[core]\r\n\teditor = x\r\n\tbare = true\r\n":                "\uFEFF[core]\r\n\tbare = true\r\n",
		"[core]\n\tfsmonitor":                                              "[core]\n",
		"[core]\n\tfsmonitor = false\n\tfsmonitor = 0\n":                   "[core]\n\tfsmonitor = false\n",
	} {
		got, dropped, ok := strip([]byte(text), drop)
		require.True(t, ok, text)
		require.NotEmpty(t, dropped, text)
		require.Equal(t, want, string(got), text)
	}
	for _, bad := range []string{"[core", "x = y\n", "[core]\n\tx = \"a\n", "[core]\n\tx = a\x00b\n", "[core]\rx = y\n"} {
		_, _, ok := strip([]byte(bad), drop)
		require.False(t, ok, "%q", bad)
	}
}

// What is left of a configuration has, to git itself, none of what was dropped.
func FuzzStrip(f *testing.F) {
	gitPath, err := exec.LookPath("git")
	if err != nil {
		f.Skip("needs git")
	}
	for _, seed := range []string{"[core]\n\tfsmonitor = x\n", "[a \"b\"] c = d # e\n\tf\n[core] pager=x\n", "[alias]\n\tx = !y\\\nz\n", "\uFEFF[core]\neditor=\"a ; b\" c\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		left, dropped, ok := strip([]byte(text), func(s *setting) bool { return !s.inert() })
		if !ok || len(dropped) == 0 {
			return
		}
		file := t.TempDir() + "/config"
		require.NoError(t, os.WriteFile(file, left, 0o600))
		out, err := exec.Command(gitPath, "config", "--no-includes", "-z", "--name-only", "-l", "-f", file).Output()
		if err != nil {
			return // git stops at it
		}
		for name := range strings.SplitSeq(string(out), "\x00") {
			require.False(t, slices.Contains(dropped, name) && !strings.Contains(name, "url") && !strings.Contains(name, "update"), "%q: git still sees %s", text, name)
		}
	})
}

func FuzzParseStanding(f *testing.F) {
	s := Standing{Session: "s", Root: "/w", Names: []string{"a\nb"}, Commands: []string{"./x y"}, Formats: map[string]format{"/r/.git": formatSHA256}, Recent: map[string]string{"a b": "../c\n"}, Keys: map[string][]string{"/w/.git/config": {"a.b=c"}}, Known: []Known{{Node: Node{Path: "/w/x", Kind: File, Dev: 1, Ino: 2}, Ctime: 3, Pin: true, Why: "y"}}}
	f.Add(string(s.Append(nil)))
	f.Add("pccrun rec")
	f.Fuzz(func(t *testing.T, text string) {
		one, _, err := ParseStanding(text)
		if err != nil {
			return
		}
		again, rest, err := ParseStanding(string(one.Append(nil)))
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, string(one.Append(nil)), string(again.Append(nil)))
	})
}

func TestParseStanding(t *testing.T) {
	s := Standing{Session: "s", Root: "/w", Names: []string{"a"}}
	text := string(s.Append(nil))
	for i := range len(text) - 1 {
		_, _, err := ParseStanding(text[:i])
		require.True(t, Unfinished(err), "cut at %d: %v", i, err)
	}
	for _, bad := range []string{"x", standingMagic + "name\n", standingMagic + "name \"a\" \"b\"\n", standingMagic + "pin 1 2 3 \"x\"\n", standingMagic + "file 9 \"a\" \"\"\n", standingMagic + "key \"a\" \"b\"\n", standingMagic + "review 9 1 1 1 \"a\" \"b\"\n"} {
		_, _, err := ParseStanding(bad + "end\n")
		require.Error(t, err, bad)
		require.False(t, Unfinished(err), bad)
	}
}

func FuzzParseJournal(f *testing.F) {
	f.Add(journalMagic + string(Finding{Kind: Stashed, Path: "/a\nb", Why: "w", What: "x", Stash: "12", Mode: 0o100644}.append(nil)))
	f.Add(journalMagic + "review 0 \"\" \"/x\" \"\" \"\"\nstash")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseJournal(text)
		if err != nil {
			return
		}
		b := []byte(journalMagic)
		for _, c := range list {
			require.True(t, strings.HasPrefix(c.Path, "/"))
			require.Empty(t, strings.Trim(c.Stash, "0123456789"))
			b = c.append(b)
		}
		again, err := ParseJournal(string(b))
		require.NoError(t, err)
		require.Equal(t, list, again)
	})
}
