package conformance_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/machine"
)

// standIn stands in for Claude Code: it executes its prompt, and ends with the record of a success.
const standIn = `#!/bin/sh
[ "$1" = --version ] && { echo "@VERSION@ (Claude Code)"; exit; }
for prompt; do :; done
id=3e37aa8c-0000-4000-8000-000000000001
echo '{"type":"system","subtype":"init","session_id":"'$id'","model":"claude-x","claude_code_version":"@VERSION@"}'
mkdir -p ~/.claude/projects/-work
case "$*" in
*--resume*) said="it went on: $(tail -n 1 ~/.claude/projects/-work/$id.jsonl)";;
*) said="it began";;
esac
echo "$prompt" >> ~/.claude/projects/-work/$id.jsonl
echo token > ~/.claude/.credentials.json
sh -c "$prompt" >&2
echo '{"type":"result","subtype":"success","is_error":false,"result":"'$said'","permission_denials":[],"session_id":"'$id'","total_cost_usd":0.31,"usage":{"input_tokens":20,"output_tokens":20}}'
`

// writeAgent writes the stand-in as a program.
func writeAgent(t *testing.T, dir, version string) {
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "claude"), []byte(strings.ReplaceAll(standIn, "@VERSION@", version)), 0o755))
}

// git runs git in the workspace.
func (p *program) git(args ...string) string {
	p.t.Helper()
	c := exec.Command("git", args...)
	c.Dir, c.Env = p.work, append(p.environ, "GIT_CONFIG_NOSYSTEM=1")
	out, err := c.CombinedOutput()
	require.NoError(p.t, err, "%s", out)
	return string(out)
}

// repository makes the workspace one, with a commit.
func (p *program) repository() {
	p.git("config", "--global", "user.name", "Dev")
	p.git("config", "--global", "user.email", "dev@example.com")
	p.git("init", "-q", "-b", "main")
	p.git("add", "-A")
	p.git("commit", "-q", "-m", "begin")
	if os.Getuid() == 0 { // root gives itself up
		for dir := p.work; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			require.NoError(p.t, os.Chmod(dir, 0o755))
		}
	}
}

// image is a directory of programs that stands first in the PATH of a sandbox. Below /tmp a command could make names in it.
func image(t *testing.T) string {
	where := ""
	if os.Getuid() == 0 {
		where = "/srv"
	}
	dir, err := os.MkdirTemp(where, "pccrun-image-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// TestAgentTask gives an agent a task at a cloud: one branch comes back, as from this machine.
//
//test:root
func TestAgentTask(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, place := range places {
		if place.noProgram != "" {
			continue
		}
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			s := place.start(t)
			p := newProgram(t, s.environ)
			bin := image(t)
			writeAgent(t, bin, "2.0.1") // which is not the one that is wanted
			s.path(bin)
			var asked atomic.Int32
			s.around(hostsThere, func(m *machine.Machine) {
				l, err := m.ListenAround("0.0.0.0:80")
				require.NoError(t, err)
				go func() {
					_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						asked.Add(1)
						_, _ = io.WriteString(w, strings.ReplaceAll(standIn, "@VERSION@", "2.1.332"))
					}))
				}()
			})
			require.NoError(t, os.MkdirAll(filepath.Join(filepath.Dir(p.work), "config/pccrun"), 0o755))
			config := filepath.Join(filepath.Dir(p.work), "config/pccrun/config.jsonc")
			require.NoError(t, os.WriteFile(config, []byte(`{"agents": {"claude": {"version": "2.1.332",
				"install": "mkdir -p ~/.local/bin && curl -fsS http://good.example/ > ~/.local/bin/claude && chmod 755 ~/.local/bin/claude && env", "install-allow": ["good.example:80"]}}}`), 0o644))
			p.repository()
			task := []string{"task", "--json", "--provider", place.name, "--agent", "claude"}

			shared := credential != nil && place.noKeep == "" // where pccrun is root in a sandbox that can be kept, the check shares it with the agent
			check := "grep -q two a.txt"
			if place.noKeep != "" {
				for flag, why := range map[string]string{"--keep=1h": place.noKeep, "--prepare=true": "without what git ignores"} {
					code, out, say := p.run(append(task, flag, "echo")...)
					require.Equal(t, 125, code, "%s%s", out, say)
					require.Contains(t, out+say, why)
				}
				check += " && test ! -e ignored.o"
			} else if shared {
				check += " && test -e ignored.o"
			}
			code, out, say := p.run(append(task, "--name", "first", "--check", check,
				"echo two >> a.txt; curl -fsS --max-time 5 http://good.example/ > reached; echo x >> $(command -v claude); echo '*.o' > .gitignore; echo x > ignored.o; mkdir .husky; echo evil > .husky/pre-commit")...)
			require.Equal(t, 0, code, "%s%s", out, say)
			require.Equal(t, "one\ntwo\n", p.git("show", "task/first:a.txt"))
			require.Contains(t, p.git("log", "-1", "--format=%b", "task/first"), "claude 2.1.332")
			require.Empty(t, p.git("show", "task/first:reached"), "the installation's host")
			require.Equal(t, place.noKeep != "", strings.Contains(out, "each run of the task has a new sandbox at "+place.name), out)
			if shared {
				require.EqualValues(t, 1, asked.Load(), "it is installed once")
				require.Equal(t, 1, strings.Count(s.made(), "pccrun.session"), "the runs of a task share a sandbox")
			}
			require.Equal(t, "Dev\n", p.git("log", "-1", "--format=%an", "task/first"))
			require.NotContains(t, p.git("ls-tree", "-r", "--name-only", "task/first"), ".husky")
			require.Contains(t, out, "held back")
			if !strings.Contains(out, "a price that is not known") {
				require.Regexp(t, `\$0\.\d+ an hour`, out)
				require.Regexp(t, `"place_usd":(0\.0|\d+e-)`, out)
			}
			require.Empty(t, s.stand(""))
			require.Empty(t, strings.TrimSpace(p.git("status", "--short")))
			_, shown, _ := p.run("task", "show", "--json", "first")
			require.Contains(t, shown, "--provider "+place.name)
			// It goes on with its own conversation, which is in the persistent home, without the login that it wrote there.
			code, out, say = p.run("task", "--json", "--continue", "first", "--check", "grep -q three a.txt", "echo three >> a.txt")
			require.Equal(t, 0, code, "%s%s", out, say)
			require.Contains(t, out, "it went on: echo two")
			require.Equal(t, "one\ntwo\nthree\n", p.git("show", "task/first:a.txt"))
			kept := files(t, filepath.Join(filepath.Dir(p.work), "state/pccrun/homes"))
			var names []string
			for name := range kept {
				if strings.Contains(name, "/home/") {
					names = append(names, filepath.Base(name))
				}
			}
			require.Contains(t, names, "3e37aa8c-0000-4000-8000-000000000001.jsonl")
			require.NotContains(t, names, ".credentials.json")
			require.Empty(t, s.stand(""))
			for _, refused := range [][]string{{"--in-place"}, {"--budget", "1"}, {"--prepare-allow", "x.example"}, {"--runtime", "runsc"}} {
				code, out, say = p.run(append(append(task, refused...), "echo")...)
				require.Equal(t, 125, code, "%s%s", out, say)
			}
		})
	}
}

// TestAgentTaskDetached goes on without who has started it, and what a run of the task changed is in the work tree of a task that goes
// on, though the program was killed before it was.
//
//test:root
func TestAgentTaskDetached(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, place := range places {
		if place.name != "e2b" && place.name != "daytona" {
			continue
		}
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			s := place.start(t)
			p := newProgram(t, s.environ)
			bin := image(t)
			writeAgent(t, bin, "2.1.332")
			s.path(bin)
			p.repository()
			tree := p.work + "-worktrees/first"
			at := []string{"--provider", place.name}
			task := append([]string{"task", "--skip-claude-update", "--agent", "claude"}, at...)

			code, out, say := p.run(append(task, "--detach", "--name", "first", "echo two >> a.txt")...)
			require.Equal(t, 0, code, say)
			require.Equal(t, "first\n", out)
			code, out, say = p.run("attach", "first")
			require.Equal(t, 0, code, "%s%s", out, say)
			require.Contains(t, out, "the task is done")
			require.Equal(t, "one\ntwo\n", p.git("show", "task/first:a.txt"))

			// This is what one leaves that is killed between the end of its run and apply. What the user changed there himself is the user's.
			p.work = tree
			in := append([]string{"run", "-q", "--workspace", tree}, at...)
			code, _, say = p.run(append(slices.Clone(in), "--", "sh", "-c", "echo mine > mine")...)
			require.Equal(t, 0, code, say)
			killed := p.command(append(in, "--events", "fd:3", "--", "sh", "-c", "echo three >> a.txt; echo evil > .mcp.json")...)
			null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
			require.NoError(t, err)
			killed.ExtraFiles = []*os.File{null}
			require.NoError(t, errors.Join(killed.Run(), null.Close()))
			code, _, say = p.run("task", "--skip-claude-update", "--continue", "first", "echo four >> a.txt")
			require.Equal(t, 0, code, say)
			require.Contains(t, say, "held back, since a host tool would execute it: .mcp.json")
			require.Contains(t, say, "1 quarantined: cd "+tree+" && pccrun diff")
			require.Equal(t, "one\ntwo\nthree\nfour\n", p.git("show", "task/first:a.txt"))
			require.NoFileExists(t, tree+"/mine")
			code, _, say = p.run("task", "--skip-claude-update", "--continue", "first", "true")
			require.Equal(t, 0, code, say)
			require.NotContains(t, say, "held back")

			// One that is interrupted before its agent runs leaves nothing, and one that is killed ends with what stands.
			code, out, _ = p.run(append(task, "--detach", "--name", "other", "echo x > x; sleep 600")...)
			require.Equal(t, 0, code)
			require.Equal(t, "other\n", out)
			code, _, say = p.run("task", "stop", "other")
			require.Equal(t, 0, code, say)
			require.Equal(t, "x\n", p.git("show", "task/other:x"))
			require.Empty(t, s.stand(""))
		})
	}
}
