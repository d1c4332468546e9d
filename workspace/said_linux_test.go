package workspace

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace/internal/fixture"
)

// TestScanInTree: where git can meet what is pinned, by the place that it has and not by an
// index.
func TestScanInTree(t *testing.T) {
	for name, c := range map[string]struct {
		make func(root string)
		want bool
	}{
		"a plain repository":           {func(root string) { newRepo(t, root) }, false},
		"no repository":                {func(root string) { fixture.Write(t, root+"/.vscode/t", "") }, false},
		"a protected file in one":      {func(root string) { newRepo(t, root); fixture.Write(t, root+"/.envrc", "") }, true},
		"a protected directory in one": {func(root string) { newRepo(t, root); fixture.Write(t, root+"/a/.vscode/t", "") }, true},
		"a program that a configuration names": {func(root string) {
			newRepo(t, root)
			fixture.Write(t, root+"/tools/clean", "")
			git(t, root, "config", "filter.x.clean", "tools/clean")
		}, true},
		"a bare repository, and one within another": {func(root string) {
			newRepo(t, root)
			newRepo(t, root+"/sub")
			git(t, root, "clone", "-q", "--bare", "sub", "bare.git")
		}, false},
		"a repository around it": {func(root string) {
			newRepo(t, root+"/..")
			fixture.Write(t, root+"/.vscode/t", "")
		}, true},
		"a linked worktree and its .git file": {func(root string) {
			newRepo(t, root+"/r")
			git(t, root+"/r", "commit", "-q", "--allow-empty", "-m", "x")
			git(t, root+"/r", "worktree", "add", "-q", "../w")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := fixture.Dir(t) + "/in/ws"
			require.NoError(t, os.MkdirAll(root, 0o755))
			c.make(root)
			found := scanOf(t, Query{Root: root, Home: root + "/../home", Protect: deny})
			require.Equal(t, c.want, found.Tracked)
		})
	}
}

// TestScanTraced: which configuration of the user's own sends git's trace elsewhere.
func TestScanTraced(t *testing.T) {
	top := fixture.Dir(t)
	root, home := top+"/ws", top+"/home"
	newRepo(t, root)
	git(t, root, "config", "trace2.normalTarget", "/tmp/x") // git reads none in a repository
	q := Query{Root: root, Home: home, Protect: deny}
	traced := func() []string { return scanOf(t, q).Traced }
	require.NotContains(t, traced(), home+"/.gitconfig")
	fixture.Write(t, home+"/.gitconfig", "[trace2]\n\teventTarget = /tmp/x\n")
	require.NotContains(t, traced(), home+"/.gitconfig", "another format")
	fixture.Write(t, home+"/.gitconfig", "[trace2]\n\tnormalTarget = /tmp/x\n")
	require.Contains(t, traced(), home+"/.gitconfig")
	fixture.Write(t, home+"/.gitconfig", "[include]\n\tpath = more\n")
	fixture.Write(t, home+"/more", "[trace2]\n\tNormalTarget = /tmp/x\n")
	require.Contains(t, traced(), home+"/.gitconfig", "by what it includes")
}

// TestRefusedAsSaid: of what is said to have been tried that counts which is as it was, once.
func TestRefusedAsSaid(t *testing.T) {
	w := newWatchman(t)
	for _, name := range []string{".envrc", ".npmrc", ".vscode/t", ".vscode/host"} {
		fixture.Write(t, w.root+"/"+name, "x")
	}
	w.begin()
	time.Sleep(2 * racy) // by the clock that files have it is no longer the beginning
	fixture.Write(t, w.root+"/.npmrc", "host")
	fixture.Write(t, w.root+"/.vscode/host", "host")
	require.NoError(t, os.Remove(w.root+"/.envrc"))
	_, err := w.guard.Finish()
	require.NoError(t, err)
	defer w.guard.Close()
	in := func(name, pin string) Refusal {
		r := Refusal{Path: w.root + "/" + name, Why: "x"}
		if pin != "" {
			r.Pin = w.root + "/" + pin
		}
		return r
	}
	list := (Guards{w.guard}).Refused([]Refusal{
		in(".vscode/t", ".vscode"), in(".vscode/host", ".vscode"), in(".npmrc", ""), in(".envrc", ""), {Path: w.root + "/.git/config", Why: ".git/config"},
		in(".vscode/t", ".vscode"), in(".vscode/new", ".vscode"), in(".vscode/t/new", ".vscode"), {Path: "/elsewhere/config", Why: ".git/config"},
	})
	var paths []string
	for _, r := range list {
		paths = append(paths, r.Path)
	}
	require.Equal(t, []string{"/elsewhere/config", w.root + "/.git/config", w.root + "/.vscode", w.root + "/.vscode/t"}, paths)
	require.Empty(t, list[1].Pin)
	require.Equal(t, ".git/config", list[1].Why)
}
