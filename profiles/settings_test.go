//go:build unix

package profiles

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/private"
)

func TestReadSettings(t *testing.T) {
	home := private.Dir(t)
	workspace, config := home+"/src/shop", home+"/.config/pccrun"
	require.NoError(t, os.MkdirAll(workspace, 0o700))
	require.NoError(t, os.MkdirAll(config, 0o700))
	file := filepath.Join(config, SettingsFile)
	read := func(text string) (Settings, error) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return ReadSettings(Request{Host: Host{Home: home, Cwd: workspace, UID: os.Getuid(), Environ: []string{"HOME=" + home}}})
	}
	s, err := read(`{ // ours
		"task": {"dir": "~/trees", "agent": "codex", "timeout": "30m", "copy": ["config/local.yml"], "prepare": "npm ci", "prepare-allow": ["@npm"], "notify": "beep"},
		"branch": {"prefix": "agents/"},
		"agents": {"claude": {"version": "2.1.332", "install": "cp x", "install-allow": ["x.example"]}},
	}`)
	require.NoError(t, err)
	require.Equal(t, Settings{file, TaskSettings{
		Dir: home + "/trees", BranchPrefix: "agents/", Agent: "codex", Timeout: 30 * time.Minute, Copy: []string{"config/local.yml"},
		Prepare: "npm ci", PrepareAllow: []string{"@npm"}, Notify: "beep",
		Agents: map[string]*AgentSettings{"claude": {"2.1.332", "cp x", []string{"x.example"}}, "codex": {}, "gemini": {}, "opencode": {}},
	}}, s)
	for text, want := range map[string]string{
		`{"tasks": {}}`:                              "did you mean task?",
		`{"task": {"direct": "x"}}`:                  "task.direct: unknown key",
		`{"task": {"dir": "trees"}}`:                 "want an absolute path, or one below ~",
		`{"task": {"timeout": "3600"}}`:              "want a duration",
		`{"task": {"timeout": 3600}}`:                "want a string",
		`{"task": {"prepare-allow": ["a b"]}}`:       "a b",
		`{"task": {"agent": "a"}, "task": {}}`:       "duplicate",
		`{"branch": {"prefix": "x/"}, "task": 1}`:    "want an object",
		`{"agents": {"claud": {}}}`:                  "did you mean claude?",
		`{"agents": {"claude": {"version": "; x"}}}`: "want a version",
	} {
		_, err := read(text)
		require.Error(t, err, text)
		require.Contains(t, err.Error()+Hint(err), want, text)
		require.Contains(t, err.Error(), file+":1", text)
	}

	// None is none, and one that leads into the workspace does not count: whoever works there could write it.
	require.NoError(t, os.Remove(file))
	s, err = ReadSettings(Request{Host: Host{Home: home, Cwd: workspace, UID: os.Getuid(), Environ: []string{"HOME=" + home}}})
	require.NoError(t, err)
	require.Zero(t, s)
	require.NoError(t, os.WriteFile(workspace+"/c", []byte(`{"task": {"prepare": "x"}}`), 0o600))
	require.NoError(t, os.Symlink(workspace+"/c", file))
	_, err = ReadSettings(Request{Host: Host{Home: home, Cwd: workspace, UID: os.Getuid(), Environ: []string{"HOME=" + home}}})
	require.ErrorContains(t, err, "it leads into the workspace")
}
