//go:build linux

package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// TestOpencode has the real opencode mend the project, with its configuration in the home and a
// directory of its own in the workspace. The user's files are as they were, and in make test-long
// what it keeps is there in the second run.
func TestOpencode(t *testing.T) {
	program, err := npm.FetchOpencode(t.Context())
	if err != nil {
		t.Skip("needs opencode:", err)
	}
	p := newProject(t)
	file := filepath.Join(p.Workspace, "sums.go")
	bash := func(command string) Call {
		return Call{"bash", map[string]any{"command": command, "description": "a step of the test"}}
	}
	endpoint, err := Start([]Step{
		{Name: "look", Calls: []Call{{"read", map[string]any{"filePath": file}}, bash("git status --short && git log --format=%s")}},
		{Name: "mend", Calls: []Call{{"edit", map[string]any{"filePath": file, "oldString": "a - b", "newString": "a + b"}}}},
		{Name: "test", Calls: []Call{bash("go test ./... && git commit -qam mended && git log --format=%s")}},
		{Say: "The job is done."},
	})
	require.NoError(t, err)
	defer endpoint.Close()
	require.NoError(t, os.MkdirAll(filepath.Join(p.Home, ".local/bin"), 0o700))
	require.NoError(t, os.Symlink(program, filepath.Join(p.Home, ".local/bin/opencode")))
	config := fmt.Sprintf(`{"$schema": "https://opencode.ai/config.json", "model": "anthropic/claude-sonnet-4-5", "autoupdate": false,
		"provider": {"anthropic": {"options": {"baseURL": "http://127.0.0.1:%d/v1"}}}}`, endpoint.Port())
	require.NoError(t, write(filepath.Join(p.Home, ".config/opencode/opencode.json"), config))
	require.NoError(t, write(filepath.Join(p.Workspace, ".opencode/command/x.md"), "say x\n"))
	own := func() [2]map[string]string {
		return [2]map[string]string{texts(t, filepath.Join(p.Home, ".config")), texts(t, filepath.Join(p.Workspace, ".opencode"))}
	}
	before := own()

	run := func(args ...string) string {
		args = append([]string{"--local", fmt.Sprintf("localhost:%d", endpoint.Port()), "--env", "GOCACHE", "--env", "GOTOOLCHAIN", "--read", program, "--", "opencode"}, args...)
		cmd := p.Command(host.Program(t), args...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		t.Log(out.String())
		require.NoError(t, err)
		return out.String()
	}
	said := run("run", "mend the tests")
	require.Contains(t, said, "profile opencode")
	require.Contains(t, said, "The job is done.")
	for step, want := range map[string]string{"look": "a - b", "test": "mended\nbegin"} {
		r := endpoint.Results(step)
		require.False(t, r[0].IsError, r[0].Text)
		require.Contains(t, r[0].Text, want)
	}
	require.Equal(t, before, own(), "the user's own is as it was")
	t.Run("a second run", func(t *testing.T) {
		verdicts.SkipUnlessLong(t)
		said := run("run", "--continue", "go on")
		require.Contains(t, said, "The job is done.", "the first session goes on, after its last step")
		require.NotContains(t, said, "Read sums.go")
	})
}

// texts lists the files below a directory with what they hold.
func texts(t *testing.T, root string) map[string]string {
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err == nil && d.Type().IsRegular():
			var text []byte
			text, err = os.ReadFile(path)
			files[rel] = string(text)
		case err == nil:
			files[rel] = d.Type().String()
		}
		return err
	})
	require.NoError(t, err)
	return files
}
