package filesync

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stream is what git-fast-export(1) writes: of each file its mode, path and text, and a message.
func stream(message string, files ...string) string {
	var blobs, lines strings.Builder
	for i := 0; i < len(files); i += 3 {
		fmt.Fprintf(&blobs, "blob\nmark :%d\ndata %d\n%s\n", i+1, len(files[i+2]), files[i+2])
		fmt.Fprintf(&lines, "M %s :%d %s\n", files[i], i+1, files[i+1])
	}
	return "feature done\n" + blobs.String() + fmt.Sprintf("commit HEAD\nmark :100\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\ndata %d\n%s%s\ndone\n", len(message), message, lines.String())
}

// history copies a stream.
func history(t *testing.T, tree *Tree, text string, to io.Writer) (*History, error) {
	file, err := os.Create(filepath.Join(t.TempDir(), "exported"))
	require.NoError(t, err)
	defer file.Close()
	export := func(to io.Writer) error { _, err := io.WriteString(to, text); return err }
	return tree.History(t.Context(), export, file, to)
}

func TestHistory(t *testing.T) {
	const secret = "ghp_016C7f3KxQzW9rTmVb2LpYh8sNdE4aG5uJ0c"
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".pccrunignore"), []byte("big/\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("old.txt\n"), 0o644)) // and nothing tracks it now
	open := func(up Up) *Tree {
		tree, err := Open(t.Context(), dir, up)
		require.NoError(t, err)
		t.Cleanup(func() { tree.Close() })
		return tree
	}
	hides := func(rel string) string {
		if rel == "hidden" {
			return "the policy"
		}
		return ""
	}
	tree := open(Up{Hides: hides})
	var out bytes.Buffer
	text := stream("one\n", "100644", "a", "text a", "100644", ".env", "text e", "100644", "big/x", "text x", "100644", "hidden/y", "text y",
		"120000", "in", "a", "120000", "out", "../text o", "120000", "sub/up", "../a", "100644", `"q\"\303\274"`, "text q", "100644", `"a\nb"`, "text n",
		"100644", "key", secret, "100644", "was/old.txt", "text w", "160000", "module", "")
	text = strings.Replace(text, "\ndone", "D .env\nD b\ndeleteall\n\ndone", 1)
	h, err := history(t, tree, text, &out)
	require.NoError(t, err)
	require.Equal(t, "refs/heads/main", h.Branch)
	require.Equal(t, 1, h.Commits)
	var left []string
	for _, l := range h.Left {
		left = append(left, l.Path)
		require.NotEmpty(t, l.Why)
	}
	require.Equal(t, []string{".env", "big/x", "hidden/y", "out", "a\nb", "key", "was/old.txt"}, left)
	require.Len(t, h.Findings, 1)
	for _, gone := range []string{"text e", "text w", "text x", "text y", "text o", "text n", secret, ".env", "M 100644 :28 key"} {
		require.NotContains(t, out.String(), gone)
	}
	for _, goes := range []string{"commit refs/heads/main\n", "text a", "text q", "M 100644 :1 a\n", "M 120000 :13 in\n", "M 120000 :19 sub/up\n", `M 100644 :22 "q\"\303\274"`, "D key\n", "D out\n", "D b\n", "deleteall\n", "M 160000 :34 module\n"} {
		require.Contains(t, out.String(), goes)
	}
	require.True(t, strings.HasSuffix(out.String(), "\ndone\n"))

	out.Reset()
	h, err = history(t, tree, strings.Replace(stream("token "+secret+"\n", "100644", "a", "a"), "HEAD", "refs/heads/x", 1), &out)
	require.NoError(t, err)
	require.Equal(t, "refs/heads/x", h.Branch)
	require.Len(t, h.Findings, 1)
	require.NotContains(t, out.String(), secret)
	out.Reset()
	_, err = history(t, open(Up{Allow: []string{h.Findings[0].Fingerprint}}), stream("token "+secret+"\n"), &out)
	require.NoError(t, err)
	require.Contains(t, out.String(), secret)

	small := Up{Limits: Limits{Bytes: 200, Files: 10}}
	_, err = history(t, open(small), stream("m\n", "100644", "a", strings.Repeat("a", 100)), &out)
	require.ErrorContains(t, err, "more than 0 MB")
	_, err = history(t, open(small), stream("m\n"), &out)
	require.NoError(t, err, "the control")
	_, err = tree.History(t.Context(), func(io.Writer) error { return os.ErrPermission }, nil, &out)
	require.ErrorIs(t, err, os.ErrPermission)
	whole := stream("m\n", "100644", "a", "text")
	for _, text := range []string{
		whole[:len(whole)-5], whole[:30], "", "x\n", "blob\nmark :1\nsize 1\n", "blob\nmark :1\ndata -1\n", "blob\nmark :1\ndata x\n", "blob\n",
		"commit HEAD\ndata 99999999999\n", "commit HEAD\ndata x\n\ndone\n", "commit HEAD\nM 100644 :1\n\n", "commit HEAD\nM 100644 :1 \"x\n\n", "commit HEAD\nR a b\n\n", "commit HEAD\nD \"x\n\n", "commit HEAD\nM 100644 inline\n",
	} {
		_, err := history(t, tree, text, &out)
		require.Error(t, err, text)
	}
}

func TestGitDirs(t *testing.T) {
	dir := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	put := func(text string, names ...string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(at(names...)), 0o755))
		require.NoError(t, os.WriteFile(at(names...), []byte(text), 0o644))
	}
	_, _, err := GitDirs(dir)
	require.ErrorContains(t, err, "not the top of a git repository")
	put("ref: refs/heads/main\n", ".git", "HEAD")
	git, common, err := GitDirs(dir)
	require.NoError(t, err)
	require.Equal(t, []string{at(".git"), at(".git")}, []string{git, common})
	put("ref: refs/heads/main\n", "y", ".git", "HEAD")
	put("../../.git\n", "y", ".git", "commondir")
	_, _, err = GitDirs(at("y"))
	require.ErrorContains(t, err, "which does not name it")
	put("gitdir: ../.git/worktrees/w\n", "w", ".git")
	put("../../../y/.git\n", ".git", "worktrees", "w", "commondir")
	_, _, err = GitDirs(at("w"))
	require.ErrorContains(t, err, "which does not name it")
	put("../..\n", ".git", "worktrees", "w", "commondir")
	_, _, err = GitDirs(at("w"))
	require.ErrorContains(t, err, "which does not name it")
	put(at("w", ".git")+"\n", ".git", "worktrees", "w", "gitdir")
	git, common, err = GitDirs(at("w"))
	require.NoError(t, err)
	require.Equal(t, []string{at(".git", "worktrees", "w"), at(".git")}, []string{git, common})
	put("nothing\n", "x", ".git")
	_, _, err = GitDirs(at("x"))
	require.Error(t, err)
}
