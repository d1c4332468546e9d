package conformance_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/e2b"
	fake "github.com/pccrun/pccrun/test/internal/e2b"
	"github.com/pccrun/pccrun/test/internal/host"
)

// A program is pccrun itself as a user runs it, in a workspace and with a home of its own.
type program struct {
	t       *testing.T
	work    string
	environ []string
}

func newProgram(t *testing.T, environ []string) *program {
	base := t.TempDir()
	p := &program{t: t, work: filepath.Join(base, "work")}
	home := filepath.Join(base, "home")
	require.NoError(t, os.MkdirAll(p.work, 0o755))
	require.NoError(t, os.MkdirAll(home, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(p.work, "a.txt"), []byte("one\n"), 0o644))
	p.environ = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_STATE_HOME=" + base + "/state", "XDG_CACHE_HOME=" + base + "/cache", "XDG_CONFIG_HOME=" + base + "/config"}, environ...)
	return p
}

func (p *program) command(args ...string) *exec.Cmd {
	c := exec.Command(host.Program(p.t), args...)
	c.Dir, c.Env = p.work, p.environ
	return c
}

func (p *program) run(args ...string) (code int, out, say string) {
	var o, e bytes.Buffer
	c := p.command(args...)
	c.Stdout, c.Stderr = &o, &e
	err := c.Run()
	if exit := (*exec.ExitError)(nil); err != nil {
		require.ErrorAs(p.t, err, &exit)
	}
	return c.ProcessState.ExitCode(), o.String(), e.String()
}

// TestProgram runs the program itself as a user does, with E2B.
func TestProgram(t *testing.T) {
	t.Parallel()
	server, err := fake.Start(credential)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	p := newProgram(t, server.Environ())
	command, run := p.command, p.run
	cloud := func(argv ...string) []string { return append([]string{"--provider", "e2b", "--"}, argv...) }
	breaks := e2bFault(noDownload)
	onTerminal := func(flags, script string) (code int, text string) { // with an upload that takes long enough to be shown
		t.Helper()
		line := host.Program(t) + flags + " --provider e2b -- sh -c '" + script + "'"
		c := exec.Command("script", "-qefc", line, "/dev/null") // which gives it a terminal
		c.Dir, c.Env = p.work, append(p.environ, "TERM=xterm")
		out, _ := c.CombinedOutput()
		require.Contains(t, string(out), "over\r\n")
		require.NotRegexp(t, "uploading[^\x1b]*over", string(out), "the line is taken away before the command prints")
		return c.ProcessState.ExitCode(), string(out)
	}
	shown := regexp.MustCompile(`pccrun: uploading pccrun itself: [0-9.]+m of [0-9.]+m, [0-9.]+[km]/s, [0-9]+s left`)
	slowly := func(r *http.Request) *fake.Fault {
		if is(r, "POST", "/files") {
			return &fake.Fault{Delay: 500 * time.Millisecond}
		}
		return nil
	}

	server.Break(slowly)
	code, text := onTerminal("", "echo over; echo two >> a.txt; echo evil > .mcp.json; exit 3")
	server.Break(nil)
	require.Equal(t, 3, code, text)
	require.Regexp(t, shown, text)
	require.Contains(t, text, "2 paths changed")
	_, out, _ := run("diff", "--name-status")
	require.Equal(t, "A\t.mcp.json\nM\ta.txt\n", out)
	code, _, say := run("apply")
	require.Equal(t, 1, code)
	require.Contains(t, say, "not applied: .mcp.json")
	applied, err := os.ReadFile(filepath.Join(p.work, "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "one\ntwo\n", string(applied))
	code, _, _ = run("discard")
	require.Equal(t, 0, code)

	server.Break(breaks)
	code, _, say = run(cloud("touch", "made")...)
	server.Break(nil)
	require.Equal(t, 125, code)
	require.Contains(t, say, "is paused and has them")
	require.Len(t, server.Sandboxes("paused"), 1)
	require.Contains(t, say, "hint: pccrun download")
	_, _, _ = run("gc")
	require.Len(t, server.Sandboxes("paused"), 1, "its files were not fetched")
	code, _, say = run("download")
	require.Equal(t, 0, code, say)
	require.Contains(t, say, "1 path changed: pccrun diff, apply or discard")
	require.Empty(t, server.Sandboxes(""))
	_, out, _ = run("diff", "--name-status")
	require.Equal(t, "A\tmade\n", out)
	code, _, say = run("discard")
	require.Equal(t, 0, code, say)
	code, _, say = run("download")
	require.Equal(t, 1, code)
	require.Contains(t, say, "nothing is left to be downloaded in this workspace")

	server.Break(func(r *http.Request) *fake.Fault {
		if f := slowly(r); f != nil {
			return f
		}
		return breaks(r)
	})
	code, text = onTerminal(" -q", "echo over; touch made")
	server.Break(nil)
	require.Equal(t, 125, code, text)
	require.NotRegexp(t, shown, text)
	require.NoError(t, e2b.NewService(server.Environ()).Destroy(t.Context(), server.Sandboxes("paused")[0]))
	code, _, say = run("download")
	require.Equal(t, 1, code)
	require.Contains(t, say, "what the command changed is lost")
	_, out, _ = run("ps", "--all", "--json")
	require.NotContains(t, out, "unfetched")

	server.Break(breaks)
	_, _, _ = run(cloud("touch", "made")...)
	server.Break(nil)
	_, out, _ = run("gc", "--all", "--json")
	var gone struct{ Sandboxes []string }
	require.NoError(t, json.Unmarshal([]byte(out), &gone), out)
	require.Len(t, gone.Sandboxes, 1, out)
	require.Empty(t, server.Sandboxes(""))

	start := func() *exec.Cmd {
		c := command(cloud("sh", "-c", "echo up; exec sleep 600")...)
		started(t, c, "up\n")
		return c
	}
	c := start()
	_, _, _ = run("gc")
	require.Len(t, server.Sandboxes("running"), 1, "gc ends no run that goes on")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	_ = c.Wait()
	require.Empty(t, server.Sandboxes(""))

	for _, verb := range []string{"kill", "gc"} {
		c := start()
		require.NoError(t, c.Process.Kill())
		_ = c.Wait()
		code, _, say := run("gc")
		require.Equal(t, 0, code, say)
		named := regexp.MustCompile(`session (\S+): the changes at e2b were not downloaded: the session and its sandbox are kept`).FindStringSubmatch(say)
		require.Len(t, named, 2, say)
		require.Len(t, server.Sandboxes(""), 1)
		word := map[string]string{"kill": named[1], "gc": "--all"}[verb]
		code, _, say = run(verb, word)
		require.Equal(t, verb == "kill", strings.Contains(say, "was not downloaded, and is destroyed"), say)
		require.Equal(t, 0, code, say)
		require.Empty(t, server.Sandboxes(""))
		code, _, say = run("gc")
		require.Equal(t, 0, code, say)
		require.NotContains(t, say, "not downloaded")
	}
}
