//go:build linux

package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// A tasked is an agent that a task is given to.
type tasked struct {
	long    bool
	install func(t *testing.T, p Project) (flags []string)
	// play starts an endpoint whose model makes the calls, one a turn, and then says the last words.
	play func(t *testing.T, p Project, calls []Call, last string) (flags []string, results func() []string)
	// What the model calls to read a file, to change it, and for a shell.
	read  func(file string) Call
	edit  func(file string) Call
	shell func(command string) Call
	by    string // the end of the commit's trailer
}

// inBin puts a program's name into the PATH.
func inBin(t *testing.T, p Project, name, program string) {
	require.NoError(t, os.MkdirAll(filepath.Join(p.Home, ".local/bin"), 0o700))
	require.NoError(t, os.Symlink(program, filepath.Join(p.Home, ".local/bin", name)))
}

// messagesOf plays the Messages API.
func messagesOf(t *testing.T, calls []Call, last string) (e *Endpoint, results func() []string) {
	var steps []Step
	for i, c := range calls {
		steps = append(steps, Step{Name: fmt.Sprint(i), Calls: []Call{c}})
	}
	e, err := Start(append(steps, Step{Say: last}))
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e, func() (list []string) {
		for _, s := range steps {
			list = append(list, e.Results(s.Name)[0].Text)
		}
		return list
	}
}

// serve serves a handler of this machine's loopback.
func serve(t *testing.T, h http.Handler) (port int) {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// clients are the modules of npm's clients.
func clients(t *testing.T) string {
	modules, err := npm.FetchClients(t.Context())
	if err != nil {
		t.Skip("needs clients of npm's:", err)
	}
	if _, err := os.Stat(filepath.Join(modules, "node_modules")); err == nil {
		modules = filepath.Join(modules, "node_modules")
	}
	return modules
}

// only is the one path of a pattern.
func only(t *testing.T, parts ...string) string {
	list, err := filepath.Glob(filepath.Join(parts...))
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

var taskedAgents = map[string]tasked{
	"claude": {
		install: func(t *testing.T, p Project) []string {
			program, err := claude.Fetch(t.Context())
			if err != nil {
				t.Skip("needs claude code:", err)
			}
			require.NoError(t, p.Install(program))
			return nil
		},
		play: func(t *testing.T, p Project, calls []Call, last string) ([]string, func() []string) {
			e, results := messagesOf(t, calls, last)
			return []string{"--local", fmt.Sprint(e.Port()), "--env", fmt.Sprintf("ANTHROPIC_BASE_URL=http://host.pccrun.internal:%d", e.Port())}, results
		},
		read: Read, edit: func(file string) Call { return Edit(file, "a - b", "a + b") }, shell: Bash, by: " " + claude.Version,
	},
	"opencode": {
		long: true,
		install: func(t *testing.T, p Project) []string {
			program, err := npm.FetchOpencode(t.Context())
			if err != nil {
				t.Skip("needs opencode:", err)
			}
			inBin(t, p, "opencode", program)
			return []string{"--read", program}
		},
		play: func(t *testing.T, p Project, calls []Call, last string) ([]string, func() []string) {
			e, results := messagesOf(t, calls, last)
			config := fmt.Sprintf(`{"model": "anthropic/claude-sonnet-4-5", "provider": {"anthropic": {"options": {"baseURL": "http://127.0.0.1:%d/v1"}}}}`, e.Port())
			require.NoError(t, write(filepath.Join(p.Home, ".config/opencode/opencode.json"), config))
			return []string{"--local", fmt.Sprintf("localhost:%d", e.Port())}, results
		},
		read: func(file string) Call { return Call{"read", map[string]any{"filePath": file}} },
		edit: func(file string) Call {
			return Call{"edit", map[string]any{"filePath": file, "oldString": "a - b", "newString": "a + b"}}
		},
		shell: func(command string) Call {
			return Call{"bash", map[string]any{"command": command, "description": "a step of the test"}}
		},
	},
	"gemini": {
		long: true,
		install: func(t *testing.T, p Project) []string {
			modules := clients(t)
			inBin(t, p, "gemini", filepath.Join(modules, ".bin/gemini"))
			inBin(t, p, "node", only(t, modules, "node-*", "bin/node"))
			require.NoError(t, write(filepath.Join(p.Home, ".gemini/settings.json"), `{"general": {"maxAttempts": 1, "retryFetchErrors": false}, "security": {"auth": {"selectedType": "gemini-api-key"}}}`))
			return []string{"--read", modules, "--env", "GEMINI_API_KEY=AIzaOfTheTest"}
		},
		play: func(t *testing.T, p Project, calls []Call, last string) ([]string, func() []string) {
			g := &generator{calls: calls, last: last}
			port := serve(t, g)
			return []string{"--model", "gemini-2.5-flash", "--local", fmt.Sprintf("localhost:%d", port), "--env", fmt.Sprintf("GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:%d", port)}, func() []string { return g.results }
		},
		read: func(file string) Call { return Call{"read_file", map[string]any{"file_path": file}} },
		edit: func(file string) Call {
			return Call{"replace", map[string]any{"file_path": file, "old_string": "a - b", "new_string": "a + b", "instruction": "mend Add"}}
		},
		shell: func(command string) Call {
			return Call{"run_shell_command", map[string]any{"command": command, "description": "a step of the test"}}
		},
	},
	"codex": {
		long: true,
		install: func(t *testing.T, p Project) []string {
			program := only(t, clients(t), "@openai/codex-linux-*/vendor/*/bin/codex")
			inBin(t, p, "codex", program)
			return []string{"--read", filepath.Dir(program), "--env", "OPENAI_API_KEY=sk-of-the-test"}
		},
		play: func(t *testing.T, p Project, calls []Call, last string) ([]string, func() []string) {
			m := &responder{calls: calls, last: last}
			port := serve(t, m)
			config := fmt.Sprintf("model_provider = \"test\"\n[model_providers.test]\nname = \"test\"\nbase_url = \"http://127.0.0.1:%d/v1\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n", port)
			require.NoError(t, write(filepath.Join(p.Home, ".codex/config.toml"), config))
			return []string{"--local", fmt.Sprintf("localhost:%d", port)}, func() []string { return m.results }
		},
		read: func(file string) Call { return Call{"exec_command", map[string]any{"cmd": "cat " + file}} },
		edit: func(file string) Call {
			return Call{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Update File: " + file + "\n@@\n-func Add(a, b int) int { return a - b }\n+func Add(a, b int) int { return a + b }\n*** End Patch"}}
		},
		shell: func(command string) Call { return Call{"exec_command", map[string]any{"cmd": command}} },
	},
}

// TestTask has each real agent do a task: it edits, the check passes, what it leaves is committed, a branch comes back, and
// the conversation goes on.
//
//test:root claude
func TestTask(t *testing.T) {
	for name, agent := range taskedAgents {
		t.Run(name, func(t *testing.T) {
			if agent.long {
				verdicts.SkipUnlessLong(t)
			}
			project := newProject(t)
			installed := agent.install(t, project)
			tree := filepath.Join(filepath.Dir(project.Workspace), "sums-worktrees", "mend")
			file := filepath.Join(tree, "sums.go")
			run := func(calls []Call, last string, args ...string) (stdout, stderr string, results []string) {
				flags, brought := agent.play(t, project, calls, last)
				cmd := project.Command(host.Program(t), slices.Concat([]string{"task", "--agent", name}, installed, flags, args)...)
				var out, said bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &said
				err := cmd.Run()
				t.Logf("pccrun said:\n%s", said.String())
				require.NoErrorf(t, err, "on standard output:\n%s", out.String())
				results = brought()
				require.Len(t, results, len(calls))
				return out.String(), said.String(), results
			}
			calls := []Call{
				agent.read(file), agent.shell("git status --short && git branch --show-current"), agent.edit(file), agent.shell("echo mended > NOTES"),
				agent.shell("git update-ref refs/heads/main HEAD; cat " + project.Home + "/.ssh/id_ed25519; cat " + project.Workspace + "/sums.go"),
			}
			stdout, stderr, results := run(calls, "Add adds now.", "--name", "mend", "--check", "grep -q 'a + b' sums.go", "mend Add")
			require.Equal(t, "Add adds now.\n", stdout)
			require.Contains(t, results[0], "a - b")
			require.Contains(t, results[1], "task/mend")
			require.NotContains(t, results[4], project.Secret)
			require.NotContains(t, results[4], "package sums", "the user's own work tree is not there")
			for _, want := range []string{"task mend: " + name + " on a new branch task/mend from main", "  edit ", "sums.go", "  run ", "the check passed", "1 commit, 2 files changed, +2 −1", "git merge task/mend"} {
				require.Contains(t, stderr, want)
			}
			git := func(args ...string) string {
				out, err := project.Command("git", args...).Output()
				require.NoError(t, err)
				return strings.TrimSpace(string(out))
			}
			require.Equal(t, "mend Add Dev\nbegin Dev", git("log", "--format=%s %an", "task/mend"))
			require.Equal(t, "Add adds now.\n\nAssisted-by: "+name+agent.by, git("log", "-1", "--format=%b", "task/mend"))
			require.Equal(t, "begin", git("log", "-1", "--format=%s", "main"), "the user's own branch does not move")
			require.Empty(t, git("status", "--porcelain"))

			// The conversation goes on: the request carries what the first run said.
			more := append(slices.Clip(calls), agent.shell("echo more > MORE"))
			stdout, _, results = run(more, "There is more.", "--json", "--continue", "mend", "and more")
			require.Contains(t, results[1], "task/mend")
			var last struct {
				Type, Branch, Message string
				Status, Commits       int
			}
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
			require.Equal(t, "result", last.Type)
			require.Equal(t, "There is more.", last.Message)
			require.Equal(t, 2, last.Commits)
			require.Equal(t, "more", git("show", "task/mend:MORE"))

			git("merge", "-q", "task/mend")
			out, err := project.Command(host.Program(t), "task", "clean").CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.NoDirExists(t, tree)
			require.Equal(t, "* main", git("branch"))
			_, err = os.Stat(filepath.Dir(tree))
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}
