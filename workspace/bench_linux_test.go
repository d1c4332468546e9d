package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/stretchr/testify/require"
)

// bigTree makes a tree of 1,000 directories with 100 files each.
func bigTree(b *testing.B) string {
	root := b.TempDir()
	for i := range 1000 {
		dir := filepath.Join(root, fmt.Sprintf("d%02d/e%02d", i/40, i%40))
		require.NoError(b, os.MkdirAll(dir, 0o755))
		for j := range 100 {
			require.NoError(b, os.WriteFile(fmt.Sprintf("%s/source_file_%02d.go", dir, j), nil, 0o644))
		}
	}
	return root
}

func usualQuery(root string) Query {
	q := Query{Root: root, Home: "/nonexistent"}
	for _, name := range usualNames {
		q.Protect = append(q.Protect, profiles.ProtectRule{Pattern: name})
	}
	q.Files = []profiles.FileRule{
		{Path: "/", Access: profiles.Read},
		{Path: root, Access: profiles.Write},
		{Path: root, Glob: "**/.env*", Access: profiles.Hide},
		{Path: root, Glob: "**/*.pem", Access: profiles.Hide},
	}
	return q
}

var usualNames = []string{
	".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".envrc", ".husky", ".vscode", ".idea", ".cursor", ".claude",
	".codex", ".gemini", ".agents", ".windsurf", ".zed", ".continue", ".roo", ".kiro", ".aider.conf.yml", ".devcontainer",
	".mcp.json", ".npmrc", ".yarnrc.yml", "pip.conf", ".bazelrc", "*.iml",
}

func BenchmarkScan(b *testing.B) {
	root := bigTree(b)
	b.Run("first", func(b *testing.B) {
		q := usualQuery(root)
		for b.Loop() {
			f, err := Scan(q)
			require.NoError(b, err)
			require.Equal(b, 100000+1025, f.Stats.Entries)
		}
	})
	b.Run("later", func(b *testing.B) {
		q := usualQuery(root)
		q.IndexDir = b.TempDir()
		time.Sleep(2 * racy)
		_, err := Scan(q)
		require.NoError(b, err)
		for b.Loop() {
			f, err := Scan(q)
			require.NoError(b, err)
			require.Zero(b, f.Stats.Read)
		}
	})
}
