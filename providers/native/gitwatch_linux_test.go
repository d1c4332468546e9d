package native

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// gitWatchOf returns a watch over a plan in which some paths are pinned.
func gitWatchOf(t *testing.T, b *bench, names ...string) *gitWatch {
	for _, name := range names {
		path := filepath.Join(b.workspace, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o644))
	}
	run, err := b.plan("true")
	require.NoError(t, err)
	require.Equal(t, "/run/pccrun.trace", run.Plan.GitTrace)
	return &gitWatch{run: run, known: map[string]bool{}}
}

func (g *gitWatch) paths() (list []string) {
	for _, r := range g.failed {
		list = append(list, r.Path)
	}
	return list
}

// TestGitWatchTakes: what is pinned, and what a pinned directory holds, and nothing else.
func TestGitWatchTakes(t *testing.T) {
	b := newBench(t)
	g := gitWatchOf(t, b, ".vscode/t", ".envrc")
	in := func(name string) string { return filepath.Join(b.workspace, name) }
	for path, want := range map[string]bool{
		in(".vscode/t"): true, in(".vscode/new"): true, in(".vscode"): true, in(".envrc"): true, in(".git/config"): true, in(".git/hooks/x"): true,
		in("file"): false, b.workspace: false, "/": false, "/etc/passwd": false, in(".vscode2"): false, filepath.Dir(b.workspace): false,
		in(".vscode/" + strings.Repeat("a/", maxParts)): false,
	} {
		g.asked = 0
		require.Equal(t, want, g.take(path), path)
	}
	for _, r := range g.failed {
		require.True(t, strings.HasPrefix(r.Path, b.workspace+"/"), r.Path)
	}
	i := 0
	for g.failed[i].Path != in(".vscode/t") {
		i++
	}
	require.Equal(t, workspace.Refusal{Path: in(".vscode/t"), Why: ".vscode", Pin: in(".vscode"), Flags: "--review .vscode"}, g.failed[i])
}

// TestGitWatchBounds: neither what is asked nor what is kept grows with what is said.
func TestGitWatchBounds(t *testing.T) {
	b := newBench(t)
	g := gitWatchOf(t, b, ".vscode/t")
	for i := range 10 * maxFailed {
		g.take(fmt.Sprintf("%s/.vscode/%d", b.workspace, i))
		g.take(fmt.Sprintf("%s/.vscode/%d", b.workspace, i)) // once
	}
	require.Len(t, g.failed, maxFailed)
	require.Len(t, g.known, maxFailed)

	g = gitWatchOf(t, b)
	for i := range maxAsked {
		require.False(t, g.take(fmt.Sprintf("/%d", i)))
	}
	require.True(t, g.take("/x"), "asked no more")
	require.Empty(t, g.failed)
	g.asked = 0 // the next look
	require.True(t, g.take(b.workspace+"/.vscode/t"))
	require.Equal(t, []string{b.workspace + "/.vscode/t"}, g.paths())
}

// TestGitWatchReadOnly: where all is read-only no flag about what is pinned is of any help.
func TestGitWatchReadOnly(t *testing.T) {
	b := newBench(t)
	g := gitWatchOf(t, b, ".vscode/t")
	for i := range g.run.Policy.Files {
		if f := &g.run.Policy.Files[i]; f.Path == b.workspace {
			f.Access = profiles.Read
		}
	}
	for i := range g.run.Plan.Mounts {
		if m := &g.run.Plan.Mounts[i]; m.Target == b.workspace {
			m.ReadOnly = true
		}
	}
	require.False(t, g.take(b.workspace+"/.vscode/t"))
}

func TestTranslated(t *testing.T) {
	for env, want := range map[string]bool{
		"": false, "LANG=C": false, "LANG=C.UTF-8": false, "LANG=POSIX": false, "LANG=en_GB.UTF-8": false, "LANG=de_DE.UTF-8": true, "LC_ALL=fr_FR LANG=C": true,
		"LC_ALL=C LANG=de_DE": false, "LC_ALL= LANG=de_DE": true, "LC_MESSAGES=de LANG=C": true, "LC_CTYPE=de_DE": false,
	} {
		require.Equal(t, want, translated(strings.Fields(env)), env)
	}
}
