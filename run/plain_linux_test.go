package run

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/test/bare"
)

// plainRun runs a script by the flow of a system that has not Linux's, at a provider that keeps nothing
// and says so. It returns the status, and what the events say.
func plainRun(t *testing.T, change func(*profiles.Request), script string) (code int, told string, work string) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	home, work := root+"/home", root+"/home/src"
	require.NoError(t, os.MkdirAll(work, 0o755))
	require.NoError(t, os.WriteFile(work+"/AGENTS.md", []byte("old"), 0o644))
	log := root + "/events"
	req := profiles.Request{
		Host: profiles.Host{Home: home, Cwd: work, Environ: []string{"PATH=/usr/bin:/bin", "HOME=" + home}, Memory: 8 << 30}, Profile: "default", Workspace: work,
		Command: []string{"sh", "-c", script}, Events: log, Quiet: true,
	}
	for i := range profiles.Guarantees {
		req.AllowMissing = append(req.AllowMissing, string(profiles.Guarantees[i].Guarantee))
	}
	change(&req)
	place := &bare.Provider{As: providers.Native, Dir: root + "/bare"}
	code = runPlain(&req, Program{Provider: func(string, *profiles.Request, providers.Host) (providers.Provider, error) { return place, nil }})
	text, _ := os.ReadFile(log)
	list, err := sessions.In(home + "/.local/state/pccrun").List()
	require.NoError(t, err)
	for _, e := range list {
		require.NotEqual(t, sessions.Running, e.State)
	}
	return code, string(text), work
}

func TestPlain(t *testing.T) {
	code, told, work := plainRun(t, func(*profiles.Request) {}, "echo $PWD > out; exit 5")
	require.Equal(t, 5, code, told)
	text, err := os.ReadFile(work + "/out")
	require.NoError(t, err)
	require.Equal(t, work+"\n", string(text))
	for _, want := range []string{`"type":"session.start"`, `"type":"plan"`, `"name":"fs.hide","state":"missing"`, `"type":"exit","code":5`} {
		require.Contains(t, told, want)
	}
	code, told, _ = plainRun(t, func(r *profiles.Request) { r.Home = "persist" }, "kill -TERM $$")
	require.Equal(t, 128+15, code, told)
	code, told, _ = plainRun(t, func(r *profiles.Request) { r.Limits[6] = "200ms" }, "sleep 30")
	require.Equal(t, 124, code, told)
	require.Contains(t, told, `"timed_out":true`)
}

func TestPlainRefuses(t *testing.T) {
	ran := "echo > ran"
	for name, c := range map[string]struct {
		change func(*profiles.Request)
		code   int
		told   string
	}{
		"a guarantee":     {func(r *profiles.Request) { r.AllowMissing = r.AllowMissing[1:] }, 125, `"guarantee":"fs.hide"`},
		"a flag":          {func(r *profiles.Request) { r.PassFDs = []int{3} }, 125, "--pass-fd: not built"},
		"a provider":      {func(r *profiles.Request) { r.Provider = "docker" }, 125, "provider docker: not built"},
		"no provider":     {func(r *profiles.Request) { r.Provider = "dokcer" }, 125, "no such provider"},
		"a policy":        {func(r *profiles.Request) { r.Allow = []string{"::::"} }, 125, `"type":"refused"`},
		"no command":      {func(r *profiles.Request) { r.Command = []string{"nowhere-to-be-found"} }, 127, "command not found"},
		"not executable":  {func(r *profiles.Request) { r.Command = []string{"/etc/passwd"} }, 126, "permission denied"},
		"a lost terminal": {func(r *profiles.Request) { r.Ask = true }, 125, "--ask: not built"},
	} {
		t.Run(name, func(t *testing.T) {
			code, told, work := plainRun(t, c.change, ran)
			require.Equal(t, c.code, code)
			require.Contains(t, told, c.told)
			require.NoFileExists(t, work+"/ran")
		})
	}
}

func TestPlainDryRun(t *testing.T) {
	for _, asJSON := range []bool{true, false} {
		file, err := os.Create(t.TempDir() + "/out")
		require.NoError(t, err)
		was := os.Stdout
		os.Stdout = file
		code, told, work := plainRun(t, func(r *profiles.Request) { r.DryRun, r.JSON = true, asJSON }, "echo > ran")
		os.Stdout = was
		require.Zero(t, code)
		require.Empty(t, told)
		require.NoFileExists(t, work+"/ran")
		text, err := os.ReadFile(file.Name())
		require.NoError(t, err)
		require.Equal(t, asJSON, json.Valid(text))
		require.Contains(t, string(text), "fs.hide")
		require.True(t, strings.Contains(string(text), `"argv"`))
	}
}
