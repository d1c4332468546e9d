package vcs

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
	for name := range strings.FieldsSeq(inertKeys) {
		section, key, _ := strings.Cut(name, ".")
		if key == "*" {
			key = "anything"
		}
		values := []string{"x", "!x"}
		if key == "refstorage" {
			values = []string{"files", "reftable"}
		}
		for _, value := range values {
			s := Setting{Section: section, Key: key, Value: value}
			require.Equal(t, UseNone, s.Use(), name)
			require.True(t, s.Inert(), name)
		}
	}
	for _, s := range []Setting{
		{Section: "alias", Key: "co", Value: "checkout"}, {Section: "remote", Sub: "o", Key: "url", Value: "ext::sh -c x"}, {Section: "remote", Sub: "o", Key: "url", Value: "-x"},
		{Section: "submodule", Sub: "s", Key: "update", Value: "!x"}, {Section: "protocol", Sub: "ext", Key: "allow", Value: "always"}, {Section: "lfs", Sub: "x", Key: "path", Value: "x"},
		{Section: "commit", Key: "gpgsign", Value: "true"}, {Section: "commit", Key: "gpgsign"}, {Section: "tag", Sub: "x", Key: "gpgsign", Value: "false"},
		{Section: "core", Key: "hookspath", Value: "x"}, {Section: "url", Sub: "ext::sh", Key: "insteadof", Value: "x"}, {Section: "of", Key: "tomorrow"}, {Section: "remote", Sub: "o", Key: "vcs", Value: "x"},
		{Section: "remote", Sub: "--upload-pack=x", Key: "promisor", Value: "true"}, {Section: "remote", Sub: "x::y", Key: "promisor", Value: "true"}, {Section: "branch", Sub: "-x", Key: "merge", Value: "y"},
		{Section: "extensions", Key: "partialclone", Value: "--upload-pack=x"}, {Section: "extensions", Key: "refstorage", Value: "files:///x"}, {Section: "extensions", Key: "tomorrow", Value: "x"},
	} {
		require.False(t, s.Inert(), s.Name())
	}
	require.True(t, (&Setting{Section: "submodule", Sub: "s", Key: "update", Value: "rebase"}).Inert())
	require.True(t, (&Setting{Section: "commit", Key: "gpgsign", Value: "false"}).Inert())
	for url, inert := range map[string]bool{
		"https://example.com/a.git": true, "git@example.com:a/b.git": true, "../o": true, "/o/.git": true, "file:///o": true, "https://example.com/a%20b": true, "origin": true,
		"/o/.git/objects/x": false, ".git/refs/x": false, "file:///o/%2egit/objects/x": false, "file:///o/.git/logs/x": false, "/k/objects/0f/x": false,
	} {
		for _, name := range []string{"remote.o.url", "remote.o.pushurl", "remote..pushdefault", "branch.m.remote", "branch.m.pushremote", "submodule.s.url"} {
			part := strings.Split(name, ".")
			s := Setting{Section: part[0], Sub: part[1], Key: part[2], Value: url}
			require.Equal(t, inert, s.Inert(), "%s=%s", name, url)
		}
	}
}

func TestStrip(t *testing.T) {
	drop := func(s *Setting) bool { return !s.Inert() }
	for text, want := range map[string]string{
		"[core]\n\tbare = false\n\tfsmonitor = x ; y\n\tfilemode = true\n": "[core]\n\tbare = false\n\tfilemode = true\n",
		"[core] fsmonitor = x\n[user]\n\tname = me\n":                      "[core] [user]\n\tname = me\n",
		"[alias]\n\tx = \"!a\\\n b\"\n# c\n":                               "[alias]\n# c\n",
		"\uFEFF[core]\r\n\teditor = x\r\n\tbare = true\r\n":                "\uFEFF[core]\r\n\tbare = true\r\n",
		"[core]\n\tfsmonitor":                                              "[core]\n",
		"[core]\n\tfsmonitor = false\n\tfsmonitor = 0\n":                   "[core]\n\tfsmonitor = false\n",
	} {
		got, dropped, ok := Strip([]byte(text), drop)
		require.True(t, ok, text)
		require.NotEmpty(t, dropped, text)
		require.Equal(t, want, string(got), text)
	}
	for _, bad := range []string{"[core", "x = y\n", "[core]\n\tx = \"a\n", "[core]\n\tx = a\x00b\n", "[core]\rx = y\n"} {
		_, _, ok := Strip([]byte(bad), drop)
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
		left, dropped, ok := Strip([]byte(text), func(s *Setting) bool { return !s.Inert() })
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
