package filesync

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// What an apply of an overlay holds back is held back here too, links on the way to it as well.
func TestProtection(t *testing.T) {
	why := Protection([]profiles.ProtectRule{{Pattern: ".vscode"}, {Pattern: "**/.cargo/config"}, {Pattern: "AGENTS.md", Review: true}})
	for rel, want := range map[string]string{".vscode": ".vscode", "a/.vscode/x": ".vscode", ".cargo/config": "**/.cargo/config", ".cargo/x": "", "AGENTS.md": "", "x": ""} {
		require.Equal(t, want, why(rel, false), rel)
	}
	require.Equal(t, "**/.cargo/config", why("a/.cargo", true))
	require.Empty(t, why("a/.cargo", false), "the control: a directory")
	require.Empty(t, why("a/cargo", true))
	require.Equal(t, ".envrc", Protection(profiles.DefaultProtect())(".envrc", false))
}

func TestUserIgnore(t *testing.T) {
	home := t.TempDir()
	put := func(name, text string) {
		p := filepath.Join(home, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, []byte(text), 0o644))
	}
	require.Empty(t, UserIgnore(home, ""))
	put(".config/git/ignore", "*.swp\n")
	require.Equal(t, "*.swp\n", UserIgnore(home, ""))
	require.Empty(t, UserIgnore(home, filepath.Join(home, "elsewhere")))
	put("mine", "*.bak\n")
	put(".gitconfig", "[core]\n\texcludesFile = ~/mine\n")
	require.Equal(t, "*.bak\n", UserIgnore(home, ""))
	put(".gitconfig", "[core]\n\texcludesFile = relative\n")
	require.Empty(t, UserIgnore(home, ""))
}

// The names of what is refused and held stand in what is said.
func TestWords(t *testing.T) {
	require.Equal(t, `refused "a\x1b": it is`, (&RefusedError{"a\x1b", "it is"}).Error())
	require.True(t, Left{notable: true}.Notable())
	require.False(t, Left{}.Notable())
}
