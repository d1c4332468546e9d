package docker_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
)

// TestDetached leaves runs and a task in containers alone, and comes back to them.
func TestDetached(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		does := func(args ...string) (int, string, string) {
			t.Helper()
			return status(t, k.pccrun(t, args...))
		}
		detached := func(args ...string) string {
			t.Helper()
			code, out, errs := does(args...)
			require.Zero(t, code, errs)
			t.Cleanup(func() { _, _, _ = does("kill", "--force", strings.TrimSpace(out)) })
			return strings.TrimSpace(out)
		}
		place := append([]string{"-q", "--detach"}, k.flags...)
		id := detached(append(place, "--", "sh", "-c", "echo up; until test -e go; do sleep .05; done; echo over; exit 7")...)
		memory := regexp.MustCompile(`(?m)^memory +[0-9]`)
		await.Until(t, "the engine says what the container uses", func() bool {
			_, out, _ := does("stats", id)
			return memory.MatchString(out)
		})
		code, _, errs := does("detach", id)
		require.Zero(t, code)
		require.Contains(t, errs, "no terminal is attached")
		k.write(t, "go", "")
		code, out, errs := does("attach", id)
		require.Equal(t, 7, code, errs)
		require.Equal(t, "up\nover\n", out)

		id = detached(append(place, "--", "sleep", "600")...)
		code, _, errs = does("kill", id)
		require.Zero(t, code, errs)
		code, _, _ = does("attach", id)
		require.Equal(t, 143, code)
		code, out, errs = does(append(place, "--docker-image", "pccrun-none.invalid/none", "--", "true")...)
		require.Equal(t, 125, code, "who typed it hears of the refusal")
		require.Contains(t, errs, "pccrun-none.invalid/none")
		require.Empty(t, out)
		stay, err := exec.Command("docker", "-H", world.engine.Host, "ps", "-aq").Output()
		require.NoError(t, err)
		require.Empty(t, string(stay))

		k.write(t, "bin/claude", standIn, ".gitignore", "/bin\n")
		require.NoError(t, os.Chmod(k.dir+"/bin/claude", 0o755))
		k.outside(t, "git add -A && git commit -q -m begin")
		k.env = append(k.env, "PATH="+k.dir+"/bin:/usr/local/bin:/usr/bin:/bin")
		t.Cleanup(func() { _ = os.RemoveAll(k.dir + "-worktrees") })
		require.Equal(t, "away", detached(append([]string{"task", "--detach", "--name", "away"}, append(k.flags, "test -e /.pccrun && echo x > x")...)...))
		code, out, errs = does("attach", "away")
		require.Zero(t, code, "%s%s", out, errs)
		require.Equal(t, "x\n", k.outside(t, "git show task/away:x"))
	})
}
