package profiles

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The directory that an agent takes for its own is that of the built-in profile, and of no other
// that has its name.
func TestAgentDirs(t *testing.T) {
	for agent, name := range map[string]string{"claude": ".claude", "codex": ".codex", "gemini": ".gemini", "opencode": ".opencode"} {
		p := &Policy{Workspace: "/home/u/ws", Layers: []string{"built-in default", "built-in agent", "built-in " + agent, "built-in " + agent, "flag"}}
		dirs, remade := p.AgentDirs()
		require.Equal(t, []string{"/home/u/ws/.husky/_", "/home/u/ws/" + name}, dirs)
		for _, path := range remade {
			require.True(t, within(dirs[1], path), path)
		}
		p.Strict = true
		dirs, _ = p.AgentDirs()
		require.Empty(t, dirs)
		require.Contains(t, Builtin(), agent)
	}
	dirs, _ := (&Policy{Workspace: "/ws", Layers: []string{"/home/u/.config/pccrun/claude.jsonc", "claude"}}).AgentDirs()
	require.Empty(t, dirs)
}

// Where none stands a run makes one: only who may write there, only of an agent that keeps
// notes there itself, and only where what is around it stands.
//
//test:root
func TestMadeDirs(t *testing.T) {
	ws := t.TempDir()
	p := &Policy{Workspace: ws, Layers: []string{"built-in default", "built-in claude"}, Files: []FileRule{{Path: ws, Access: Write}}}
	if os.Getuid() == 0 {
		require.Empty(t, p.MadeDirs())
		return
	}
	require.Equal(t, []string{".claude", ".claude/worktrees"}, p.MadeDirs())
	require.NoError(t, os.Mkdir(ws+"/.husky", 0o755))
	require.Equal(t, []string{".claude", ".claude/worktrees", ".husky/_"}, p.MadeDirs())
	p.Layers = []string{"built-in codex"}
	require.Empty(t, p.MadeDirs())
	p.Layers, p.Files[0].Access = []string{"built-in gemini"}, Overlay
	require.Empty(t, p.MadeDirs())
	require.Equal(t, []string{".claude", ".claude/worktrees", ".gemini", ".husky/_"}, EveryMadeDir())
}
