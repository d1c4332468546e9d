//go:build linux

package agent

import (
	"bytes"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// TestGemini has the real Gemini CLI mend the project, with settings in the home and a directory of
// its own in the workspace.
func TestGemini(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	modules, err := npm.FetchClients(t.Context())
	if err != nil {
		t.Skip("needs gemini:", err)
	}
	if _, err := os.Stat(filepath.Join(modules, "node_modules")); err == nil {
		modules = filepath.Join(modules, "node_modules")
	}
	nodes, err := filepath.Glob(filepath.Join(modules, "node-*", "bin"))
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	p := newProject(t)
	file := filepath.Join(p.Workspace, "sums.go")
	g := &generator{last: "The job is done.", calls: []Call{
		{"read_file", map[string]any{"file_path": file}},
		{"replace", map[string]any{"file_path": file, "old_string": "a - b", "new_string": "a + b", "instruction": "mend Add"}},
		{"run_shell_command", map[string]any{"command": "go test ./... && git -c user.name=a -c user.email=a@b commit -qam mended && git log --format=%s", "description": "a step of the test"}},
		{"run_shell_command", map[string]any{"command": "echo x > .gemini/mine && cat .gemini/mine", "description": "a step of the test"}},
	}}
	endpoint := httptest.NewServer(g)
	defer endpoint.Close()
	port := endpoint.Listener.Addr().(*net.TCPAddr).Port
	settings := `{"general": {"maxAttempts": 1, "retryFetchErrors": false}, "security": {"auth": {"selectedType": "gemini-api-key"}}}`
	require.NoError(t, write(filepath.Join(p.Home, ".gemini/settings.json"), settings))
	require.NoError(t, write(filepath.Join(p.Workspace, ".gemini/settings.json"), "{}"))
	own := func() [2]map[string]string {
		return [2]map[string]string{texts(t, filepath.Join(p.Home, ".gemini")), texts(t, filepath.Join(p.Workspace, ".gemini"))}
	}
	before := own()
	args := []string{
		"--local", fmt.Sprintf("localhost:%d", port), "--env", fmt.Sprintf("GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:%d", port), "--env", "GEMINI_API_KEY=AIzaOfTheTest",
		"--env", "GEMINI_CLI_TRUST_WORKSPACE=true", "--env", "GOCACHE", "--env", "GOTOOLCHAIN", "--read", modules, "--",
		filepath.Join(modules, ".bin", "gemini"), "-m", "gemini-2.5-flash", "--yolo", "-p", "mend the tests",
	}
	cmd := p.Command(host.Program(t), args...)
	for i, e := range cmd.Env {
		if path, is := strings.CutPrefix(e, "PATH="); is {
			cmd.Env[i] = "PATH=" + nodes[0] + ":" + path
		}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	t.Log(out.String())
	require.NoError(t, err)
	require.Contains(t, out.String(), "profile gemini")
	require.Contains(t, out.String(), "The job is done.")
	require.Len(t, g.results, 4)
	require.Contains(t, g.results[0], "a - b")
	require.Contains(t, g.results[2], "mended\\nbegin")
	require.Contains(t, g.results[3], "x")
	require.NotContains(t, out.String(), "denied:", "what it always tries is switched off inside")
	require.Contains(t, out.String(), "saved only for runs in a sandbox here: "+p.Workspace+"/.gemini/mine")
	require.Equal(t, before, own(), "the user's own is as it was")
}
