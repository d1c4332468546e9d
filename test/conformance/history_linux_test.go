package conformance_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHistory: with --history the copy is a repository of its own, with the last commits and nothing of them that
// stays here.
func TestHistory(t *testing.T) {
	t.Parallel()
	const secret = "ghp_016C7f3KxQzW9rTmVb2LpYh8sNdE4aG5uJ0c"
	for _, place := range places {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			s := place.start(t)
			p := newProgram(t, s.environ)
			git := func(args ...string) string {
				t.Helper()
				c := exec.Command("git", append([]string{"-c", "user.name=U", "-c", "user.email=u@example.com"}, args...)...)
				c.Dir, c.Env = p.work, append(p.environ, "GIT_CONFIG_NOSYSTEM=1")
				out, err := c.CombinedOutput()
				require.NoError(t, err, string(out))
				return string(out)
			}
			write := func(name, text string) {
				require.NoError(t, os.WriteFile(filepath.Join(p.work, name), []byte(text), 0o644))
			}
			refused := func(want string) {
				t.Helper()
				code, _, say := p.run("--provider", place.name, "--history", "2", "--", "true")
				require.Equal(t, 125, code, say)
				require.Contains(t, say, "flag --history: "+want)
				require.Empty(t, s.stand(""))
			}
			refused(p.work + " is not the top of a git repository")
			git("init", "-q", "-b", "topic/one")
			refused("")
			git("add", ".")
			git("commit", "-qm", "first of all")
			write(".env", "KEY=a-key-of-an-env-file")
			write("token.txt", "token = \""+secret+"\"\n")
			write("ü \".txt", "odd name\n")
			require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(p.work, "out")))
			git("add", "-f", ".")
			git("commit", "-qm", "second")
			write("token.txt", "clean now\n")
			git("rm", "-q", "--cached", ".env")
			git("add", "token.txt", "a.txt")
			git("commit", "-qm", "third")
			write("a.txt", "edited\n")

			script := `git status --porcelain; git log --format=%s; git branch --show-current; git cat-file --batch-all-objects --batch; git ls-tree -r --name-only HEAD`
			cloud := func(flags ...string) (out, say string) {
				code, out, say := p.run(append(append([]string{"--provider", place.name}, flags...), "--", "sh", "-c", script)...)
				require.Equal(t, 0, code, say)
				return out, say
			}
			c := &recorder{}
			s.decide(c.take)
			out, say := cloud("--history", "2")
			require.True(t, strings.HasPrefix(out, " M a.txt\nthird\nsecond\ntopic/one\n"), out+say)
			require.Contains(t, out, "clean now")
			require.Contains(t, out, "odd name", "the control: what stays for nothing")
			require.NotContains(t, out, secret)
			require.NotContains(t, out, "a-key-of-an-env-file")
			require.NotContains(t, out, "/etc/passwd")
			require.NotContains(t, out, "first of all")
			require.Contains(t, say, "left out of the history: ")
			require.Contains(t, say, "secret, left out of the history: token.txt:1: github-pat")
			require.NotContains(t, say, "not downloaded")
			require.False(t, holds(c.heads.String()+c.bodies.String()+c.stream(t), secret))

			script = "echo more >> a.txt; git -c user.name=A -c user.email=a@example.com commit -qam fourth; git log -1 --format=%s"
			out, say = cloud("--history", "1")
			require.Equal(t, "fourth\n", out)
			require.Contains(t, say, "not downloaded: commits that were made there")
			require.Equal(t, "third\n", git("log", "-1", "--format=%s"))
			_, out, _ = p.run("diff", "--name-status")
			require.Equal(t, "M\ta.txt\n", out)
			code, _, say := p.run("discard")
			require.Equal(t, 0, code, say)

			linked := *p // a worktree, whose repository is another's
			linked.work = filepath.Join(filepath.Dir(p.work), "linked")
			git("worktree", "add", "-q", "-b", "other", linked.work)
			for tree, branch := range map[*program]string{p: "refs/heads/topic/one", &linked: "refs/heads/other"} {
				code, out, say = tree.run("--provider", place.name, "--history", "3", "--dry-run", "--json", "--", "true")
				require.Equal(t, 0, code, say)
				var dry struct {
					Plan struct {
						Upload struct {
							History struct {
								Branch  string
								Commits int
								Left    []struct{ Path, Why string }
							}
						}
					}
				}
				require.NoError(t, json.Unmarshal([]byte(out), &dry), out)
				would := dry.Plan.Upload.History
				require.Equal(t, 3, would.Commits)
				require.Equal(t, branch, would.Branch)
				require.Len(t, would.Left, 3, would.Left)
			}
		})
	}
	p := newProgram(t, nil)
	code, _, say := p.run("--history", "1", "--", "true")
	require.Equal(t, 125, code)
	require.Contains(t, say, "flag --history: the provider is native, where the repository itself is shown")
}
