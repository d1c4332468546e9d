package profiles

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// ProtectedOutside the workspace the rules hold in what the user gives, and of what an agent
// or a cache keeps those of git.
func TestBeside(t *testing.T) {
	user := Origin{Source: "flag"}
	p := &Policy{
		Workspace: "/home/u/ws", Home: "/home/u",
		Files: []FileRule{
			{Path: "/", Access: Read, Origin: Origin{Source: "default"}},
			{Path: "/home/u/ws", Access: Write, Origin: Origin{Source: "default"}},
			{Path: "/home/u/other", Access: Write, Origin: user},
			{Path: "/home/u/.agent", Access: Write, Origin: Origin{Source: "built-in agent"}},
			{Path: "/home/u/.cache/x", Access: Write, Origin: user},
			{Path: "/home/u/read", Access: Read, Origin: user},
		},
		Protect: []ProtectRule{{Pattern: ".git/hooks"}, {Pattern: ".git/config"}, {Pattern: ".envrc"}, {Pattern: "a/b"}, {Pattern: "/home/u/.agent/settings"}, {Pattern: "Makefile", Review: true}},
	}
	for path, want := range map[string]string{
		"/home/u/ws/.envrc":                  ".envrc",
		"/home/u/other/x/.envrc":             ".envrc",
		"/home/u/other/a/b":                  "a/b",
		"/home/u/other/x/a/b":                "",
		"/home/u/other/.git/hooks/x":         ".git/hooks",
		"/home/u/other/Makefile":             "review Makefile",
		"/home/u/.agent/.envrc":              "",
		"/home/u/.agent/settings":            "/home/u/.agent/settings",
		"/home/u/.agent/h/.git/hooks/x":      ".git/hooks",
		"/home/u/.agent/h/.git/config":       "review .git/config",
		"/home/u/.cache/x/.envrc":            "",
		"/home/u/.cache/x/c/.git/commondir":  ".git/commondir",
		"/home/u/read/.envrc":                "",
		"/home/u/read/x/.git/hooks/post-any": "",
	} {
		r, ok := p.ProtectedAnywhere(path)
		got := r.Pattern
		if ok && r.Review {
			got = "review " + got
		}
		require.Equal(t, want != "", ok, path)
		require.Equal(t, want, got, path)
	}
	p.Without = []Layer{LayerProtect}
	require.Nil(t, p.ProtectedOutside(true))
	require.Nil(t, p.ProtectedOutside(false))
}

// What programs write to any home, and what a profile of an agent names of its state, is
// made again; the rest of the home, and what the user's own rules name, is not.
func TestRemade(t *testing.T) {
	p := &Policy{Home: "/home/u", Workspace: "/home/u/ws", Files: []FileRule{
		{Path: "/home/u", Origin: Origin{Source: "built-in default"}}, {Path: "/home/u/ws/.agent/x", Origin: Origin{Source: "built-in agent"}}, {Path: "/home/u/.local/bin", Origin: Origin{Source: "built-in default"}},
		{Path: "/home/u/.agent/settings/a", Origin: Origin{Source: "built-in agent"}}, {Path: "/home/u/.config/agent/x", Origin: Origin{Source: "built-in agent"}},
		{Path: "/home/u/.local/share/agent/x/y", Origin: Origin{Source: "built-in agent"}}, {Path: "/home/u/mine", Origin: Origin{Source: "/p.jsonc"}},
	}}
	got := p.Remade()
	require.Subset(t, got, []string{"/home/u/.cache", "/home/u/.bash_history", "/home/u/.agent", "/home/u/.config/agent", "/home/u/.local/share/agent"})
	for _, path := range []string{"/home/u", "/home/u/ws", "/home/u/mine", "/home/u/.local/bin", "/home/u/.config", "/home/u/go"} {
		require.NotContains(t, got, path)
	}
	require.True(t, p.Temporary("/tmp"))
	require.False(t, p.Temporary("/home/u"))
}
