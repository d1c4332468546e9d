//go:build linux

package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// What the host's own Claude Code would execute or obey later, of its directory:
// Claude Code 2.1 forbids most of these to its own shell as well.
var executed = []string{
	"settings.json", "settings.local.json", "remote-settings.json", "policy-limits.json", ".config.json", "CLAUDE.md", "loop.md",
	"hooks/x.sh", "commands/x.md", "agents/x.md", "skills/x/SKILL.md", "plugins/x/hooks.json", "cowork_plugins/x", "rules/x.md", "output-styles/x.md",
	"workflows/x.js", "routines/x.md", "scheduled_tasks.json", "launch.json", "daemon.json", "dev-mods/x", "seed-admin/x",
	"statusline.sh", "statusline-command.sh", "keybindings.json", "local/claude", "chrome/chrome-native-host",
}

// live are what a session of the host that goes on executes.
var live = []string{"shell-snapshots", "session-env", "jobs", "daemon"}

// planting is a script for each of them, and for the other file.
func planting() map[string]string {
	scripts := map[string]string{}
	for _, name := range executed {
		scripts[name] = fmt.Sprintf("mkdir -p ~/.claude/%s; echo evil > ~/.claude/%s", filepath.Dir(name), name)
	}
	for _, name := range live {
		scripts[name] = fmt.Sprintf("for f in ~/.claude/%[1]s/*; do echo evil >> $f; done; mkdir -p ~/.claude/%[1]s; echo evil > ~/.claude/%[1]s/new", name)
	}
	const server = `{"mcpServers": {"x": {"command": "evil"}}}`
	scripts["~/.claude.json"] = fmt.Sprintf("echo '%[1]s' > ~/.claude.json; echo '%[1]s' > ~/.claude.new; mv ~/.claude.new ~/.claude.json", server)
	return scripts
}

// stateful gives a project a home in which Claude Code has been used before.
func stateful(t *testing.T, p Project, standing bool) {
	require.NoError(t, write(filepath.Join(p.Home, ".claude.json"), `{"hasCompletedOnboarding": true, "numStartups": 7, "mcpServers": {}}`))
	require.NoError(t, write(filepath.Join(p.Home, ".claude/history.jsonl"), ""))
	if !standing {
		return
	}
	for _, name := range executed {
		if name == ".config.json" { // would be used in place of the other
			continue
		}
		content := "own\n"
		if strings.HasSuffix(name, ".json") {
			content = "{}"
		}
		require.NoError(t, write(filepath.Join(p.Home, ".claude", name), content))
	}
	for _, name := range live {
		require.NoError(t, write(filepath.Join(p.Home, ".claude", name, "own"), "own\n"))
	}
}

// planted lists what of it all is not the user's own.
func planted(t *testing.T, p Project) (list []string) {
	err := filepath.WalkDir(p.Home, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(path, filepath.Join(p.Home, ".local")) || strings.HasPrefix(path, filepath.Join(p.Home, ".claude/projects")) {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("evil")) {
			list = append(list, strings.TrimPrefix(path, p.Home+"/"))
		}
		return err
	})
	require.NoError(t, err)
	return list
}

// tree is what the home holds of the agent's, by path.
func tree(t *testing.T, p Project) map[string]string {
	files := map[string]string{}
	for _, root := range []string{".claude", ".claude.json"} {
		err := filepath.WalkDir(filepath.Join(p.Home, root), func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			files[path] = string(text)
			return err
		})
		require.NoError(t, err)
	}
	return files
}

// TestHostState is a hostile agent in a home in which the host uses the same
// agent: its work is done, its session is kept, and the host's agent finds all as it was.
func TestHostState(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	program, err := claude.Fetch(t.Context())
	if err != nil {
		t.Skip("needs claude code:", err)
	}
	for name, standing := range map[string]bool{"a home with settings": true, "a home without": false} {
		t.Run(name, func(t *testing.T) {
			project := newProject(t)
			require.NoError(t, project.Install(program))
			stateful(t, project, standing)
			var plants []Call
			for _, script := range planting() {
				plants = append(plants, Bash(script))
			}
			file := filepath.Join(project.Workspace, "sums.go")
			endpoint, err := Start([]Step{
				{Name: "look", Calls: []Call{Read(file)}},
				{Name: "plant", Calls: plants},
				{Name: "mend", Calls: []Call{Edit(file, "a - b", "a + b"), Bash("go test ./...")}},
				{Say: "The job is done."},
			})
			require.NoError(t, err)
			defer endpoint.Close()
			before := tree(t, project)
			cmd := project.Command(host.Program(t), append(append(endpoint.Flags(), "--"), Arguments()...)...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			require.NoErrorf(t, cmd.Run(), "claude said:\n%s\npccrun said:\n%s", &stdout, &stderr)
			require.Contains(t, stdout.String(), "The job is done.")
			for _, r := range endpoint.Results("mend") {
				require.False(t, r.IsError, r.Text)
			}
			t.Logf("pccrun said:\n%s", &stderr)
			left := planted(t, project)
			require.Empty(t, left)
			require.Equal(t, before, tree(t, project), "the user's own is as it was")
			kept, err := filepath.Glob(filepath.Join(project.Home, ".local/state/pccrun/homes/*/home/.claude/projects/*/*.jsonl"))
			require.NoError(t, err)
			require.NotEmpty(t, kept, "the session can be resumed in the next run")
		})
	}
}

// TestPlantingSucceedsOutside is the control of TestHostState.
func TestPlantingSucceedsOutside(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	project := newProject(t)
	stateful(t, project, true)
	for name, script := range planting() {
		out, err := project.Command("bash", "-c", script).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
	require.GreaterOrEqual(t, len(planted(t, project)), len(executed)+2*len(live)+1)
}
