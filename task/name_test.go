package task

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlug(t *testing.T) {
	for prompt, want := range map[string]string{
		"fix the flaky test in cart_test.go":     "fix-flaky-test",
		"Please port the parser to tree-sitter!": "port-parser-tree",
		"":                                       "task",
		"Überprüfe äöü":                          "berpr-fe",
		"../../etc/passwd":                       "etc-passwd",
		strings.Repeat("x", 100):                 "task",
		"\x1b[31m -- $(rm -rf /)":                "31m-rm-rf",
	} {
		require.Equal(t, want, slug(prompt), prompt)
		name := NameFor(prompt)
		require.NoError(t, CheckName(name))
		require.Equal(t, want+"-", name[:len(name)-2])
	}
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "fix-login", "v1.2", "A_b"} {
		require.NoError(t, CheckName(good), good)
	}
	for _, bad := range []string{"", ".", "..", "-x", "a/b", "a..b", "a.", "a.lock", "a b", "a\n", "ä", strings.Repeat("x", 49)} {
		require.Error(t, CheckName(bad), bad)
	}
}

func TestPlaces(t *testing.T) {
	path := func(top, home string) (paths []string) {
		for _, p := range placesFor(top, "", home, "n") {
			paths = append(paths, p.path())
		}
		return paths
	}
	data := "/home/u/.local/share/pccrun/worktrees/"
	require.Equal(t, []string{"/home/u/src/shop-worktrees/n", data + "shop/n"}, path("/home/u/src/shop", "/home/u"))
	require.Equal(t, []string{data + "shop/n"}, path("/home/u/shop", "/home/u"), "nothing is made in the top of a home")
	require.Equal(t, []string{data + "shop/n"}, path("/shop", "/home/u"))
	require.Equal(t, "task/n", branchFor("task/", "n", false))
	require.Equal(t, "task-n", branchFor("task/", "n", true))
	require.Equal(t, "a-b-n", branchFor("a/b/", "n", true))
	require.Equal(t, []place{{"/w/r", "n"}}, placesFor("/home/u/src/r", "/w", "/home/u", "n"))
	for _, good := range []string{"agents/", "a/b/", "bot-", "u.x/"} {
		require.NoError(t, checkPrefix(good), good)
	}
	for _, bad := range []string{"agents", "/", "a//", "../a/", "a..b/", "-a/", "a b/", "a.lock/", "a./", "~/", "@{/"} {
		require.Error(t, checkPrefix(bad), bad)
	}
	require.NotEqual(t, keyOf("n", "/a/.git"), keyOf("n", "/b/.git"))
}
