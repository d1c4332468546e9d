package conformance_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/providers/daytona"
	"github.com/pccrun/pccrun/providers/e2b"
	fakedaytona "github.com/pccrun/pccrun/test/internal/daytona"
	fake "github.com/pccrun/pccrun/test/internal/e2b"
)

// TestExec starts other commands in a run: pccrun there does, by the policy that holds there.
//
//test:root e2b
func TestExec(t *testing.T) {
	t.Parallel()
	for name, unmapped := range map[string]bool{"": false, ", where root maps no owners": os.Getuid() == 0} {
		t.Run(e2b.Name+name, func(t *testing.T) {
			server, err := fake.Start(credential)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, server.Stop()) })
			server.Unmapped = unmapped
			testExec(t, e2b.Name, server.Environ())
		})
	}
	t.Run(daytona.Name, func(t *testing.T) {
		server, err := fakedaytona.Start()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Stop()) })
		testExec(t, daytona.Name, server.Environ())
	})
}

// started starts a command, and returns when it has printed a text.
func started(t *testing.T, c *exec.Cmd, text string) {
	t.Helper()
	printed, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	_, err = io.ReadFull(printed, make([]byte, len(text)))
	require.NoError(t, err, "%s", c.Stderr)
}

func testExec(t *testing.T, name string, environ []string) {
	p := newProgram(t, environ)
	session := p.command("--provider", name, "--env", "MINE=mine", "--", "sh", "-c", "grep -E 'Seccomp|NoNewPrivs|Cap' /proc/self/status > first; echo up; until [ -e over ]; do sleep 0.05; done; exit 3")
	var said bytes.Buffer
	session.Stderr = &said
	started(t, session, "up\n")
	run := func(argv ...string) (code int, out, errs string) {
		c := p.command(append([]string{"exec", "--"}, argv...)...)
		var o, e bytes.Buffer
		c.Stdin, c.Stdout, c.Stderr = strings.NewReader("given\n"), &o, &e
		_ = c.Run()
		return c.ProcessState.ExitCode(), o.String(), e.String()
	}
	await.Until(t, "the session takes commands", func() bool { // pccrun hears that the command runs beside what it prints
		code, _, _ := run("test", "-s", "first")
		return code == 0
	})
	code, out, errs := run("sh", "-c", "cat; echo $MINE; cat a.txt; echo mistake >&2; exit 7")
	require.Equal(t, 7, code, errs)
	require.Equal(t, "given\nmine\none\n", out)
	require.Equal(t, "mistake\n", errs)
	_, out, _ = run("grep", "-E", "Seccomp|NoNewPrivs|Cap", "/proc/self/status")
	_, first, _ := run("cat", "first")
	require.Equal(t, first, out)
	require.Contains(t, out, "Seccomp:\t2\n")
	code, _, errs = run("none-of-this-name")
	require.Equal(t, 127, code)
	require.Contains(t, errs, "none-of-this-name: command not found")
	code, _, _ = run("sh", "-c", "kill -9 $$")
	require.Equal(t, 128+9, code)
	code, out, errs = p.run("stats")
	require.Equal(t, 0, code)
	require.Regexp(t, `(?m)^provider +`+name+`$`, out)
	require.Empty(t, errs)
	fields := []string{"memory", "processes", "place_cpus", "place_memory"}
	if _, blocks, _ := run("stat", "-f", "-c", "%b", "."); blocks != "0\n" { // a file system that has a size
		fields = append(fields, "disk", "place_disk")
	}
	for _, field := range fields {
		require.Regexp(t, `(?m)^`+field+` +[1-9]`, out)
	}

	left := p.command("exec", "--", "sh", "-c", "echo begun; exec sleep 600")
	started(t, left, "begun\n")
	run("touch", "over") // which may itself be ended with the session, before it says how it ended
	_ = left.Wait()
	require.Equal(t, 128+9, left.ProcessState.ExitCode())
	_ = session.Wait()
	require.Equal(t, 3, session.ProcessState.ExitCode(), said.String())
}
