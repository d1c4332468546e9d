package profiles

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDefaultProtect(t *testing.T) {
	review := map[string]bool{}
	for _, r := range DefaultProtect() {
		review[r.Pattern] = r.Review
	}
	for pattern, want := range map[string]bool{".envrc": false, ".vscode": false, "AGENTS.md": true} {
		got, ok := review[pattern]
		require.True(t, ok, pattern)
		require.Equal(t, want, got, pattern)
	}
	n, err := ParseSize("2k")
	require.NoError(t, err)
	require.EqualValues(t, 2048, n)
}

// Of what is protected the flag is named that opens the least, and none that opens a directory
// as a whole; what a rule opens in a protected directory is protected as the workspace is.
func TestFlagsOfProtected(t *testing.T) {
	ws := t.TempDir()
	require.NoError(t, os.MkdirAll(ws+"/.claude/worktrees", 0o700))
	require.NoError(t, os.WriteFile(ws+"/.claude/settings.json", nil, 0o600))
	p := &Policy{
		Workspace: ws,
		Files:     []FileRule{{Path: ws, Access: Write}, {Path: ws + "/.claude/worktrees", Access: Write}, {Path: ws + "/.claude/read", Access: Read}},
		Protect:   []ProtectRule{{Pattern: ".claude"}, {Pattern: ".envrc"}, {Pattern: ".git/hooks"}, {Pattern: "Makefile", Review: true}},
	}
	for path, want := range map[string][2]string{ // of a file, of a directory
		".envrc":                         {"--review .envrc", ""},
		".claude":                        {"", ""},
		".claude/settings.json":          {"--review .claude/settings.json", "mkdir .claude/settings.json and --write .claude/settings.json"},
		".claude/new":                    {"touch .claude/new and --review .claude/new", "mkdir .claude/new and --write .claude/new"},
		".claude/new.tmp.1":              {"", ""},
		".claude/no/new":                 {"", ""},
		".git/hooks/new":                 {"", ""},
		".claude/worktrees/a/.envrc":     {"--review .envrc", ""},
		".claude/worktrees/.envrc/x":     {"", ""},
		".claude/worktrees/a/.git/hooks": {"--review .git/hooks", ""},
	} {
		r, ok := p.Protected(ws + "/" + path)
		require.True(t, ok, path)
		require.Equal(t, want, [2]string{p.ReviewFlag(ws+"/"+path, r), p.DirFlag(ws+"/"+path, r)}, path)
	}
	for _, path := range []string{".claude/worktrees", ".claude/worktrees/a/b", "src"} {
		_, ok := p.Protected(ws + "/" + path)
		require.False(t, ok, path)
	}
	_, ok := p.Protected(ws + "/.claude/read")
	require.True(t, ok)
	require.Equal(t, "--review .envrc", p.NewFlag(".envrc"))
	require.Empty(t, p.NewFlag(".git/hooks"))
	require.Empty(t, p.NewFlag("Makefile"), "it is for review")
}
