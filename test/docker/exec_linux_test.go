package docker_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers"
)

// Another command in a container has what the first has, and no more.
func TestExec(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		k.write(t, ".env", "TOKEN=x\n")
		k.write(t, "plain", "no program")
		session := pccrun(t, k.dir, append(on(runtime, "--env", "MINE=mine"), "--", "sh", "-c", "grep -E 'Seccomp|NoNewPrivs|Cap' /proc/self/status > first; until [ -e over ]; do sleep 0.05; done; exit 3")...)
		var said bytes.Buffer
		session.Stderr = &said
		require.NoError(t, session.Start())
		run := func(args ...string) (code int, out, errs string) {
			c := pccrun(t, k.dir, args...)
			c.Stdin = strings.NewReader("given\n")
			return status(t, c)
		}
		require.Eventually(t, func() bool {
			code, _, _ := run("exec", "--", "test", "-s", "first")
			return code == 0
		}, time.Minute, 100*time.Millisecond, "%s", said.String())

		code, out, errs := run("exec", "--", "sh", "-c", "cat; pwd; echo $MINE; cat .env; echo mistake >&2; exit 7")
		assert.Equal(t, 7, code)
		assert.Equal(t, "given\n"+k.dir+"\nmine\n", out)
		assert.Contains(t, errs, "mistake\n")
		assert.Contains(t, k.asUser(t, "cat", ".env"), "TOKEN", "control")
		_, out, _ = run("exec", "--", "grep", "-E", "Seccomp|NoNewPrivs|Cap", "/proc/self/status")
		assert.Equal(t, k.asUser(t, "cat", "first"), out)
		assert.NotEqual(t, out, k.asUser(t, "grep", "-E", "Seccomp|NoNewPrivs|Cap", "/proc/self/status"), "control")
		code, _, errs = run("exec", "--", "sh", "-c", "echo x > /etc/x || exit 4")
		assert.Equal(t, 4, code, errs)
		for want, argv := range map[int][]string{126: {"./plain"}, 127: {"none-of-this-name"}, 128 + 9: {"sh", "-c", "kill -9 $$"}} {
			code, _, errs := run(append([]string{"exec", "--"}, argv...)...)
			assert.Equal(t, want, code, "%v: %s", argv, errs)
		}
		code, out, _ = run("exec", "--", "sh", "-c", "sleep 600 & echo left")
		assert.Zero(t, code)
		assert.Equal(t, "left\n", out)
		code, out, _ = run("exec", "--", "sh", "-c", "head -c 10000000 /dev/zero")
		assert.Zero(t, code)
		assert.Len(t, out, 10000000)

		code, out, errs = run("stats", "--json")
		assert.Zero(t, code, errs)
		assert.Contains(t, out, `"provider": "docker"`)
		assert.Regexp(t, `"memory": [1-9]`, out)
		assert.Regexp(t, `"cpu_ms": [1-9]`, out)
		assert.Contains(t, out, `"io_by": "docker"`)

		// It goes with its pccrun, and with the session.
		c := pccrun(t, k.dir, "exec", "--", "sh", "-c", "echo $$ > number; exec sleep 601")
		require.NoError(t, c.Start())
		there := func(name string) func() bool {
			return func() bool { info, err := os.Stat(filepath.Join(k.dir, name)); return err == nil && info.Size() > 0 }
		}
		require.Eventually(t, there("number"), time.Minute, 10*time.Millisecond)
		require.NoError(t, c.Process.Kill())
		_ = c.Wait()
		require.Eventually(t, func() bool {
			code, _, _ := run("exec", "--", "sh", "-c", "kill -0 $(cat number)")
			return code == 1
		}, time.Minute, 50*time.Millisecond)
		last := make(chan int)
		go func() {
			code, _, _ := run("exec", "--", "sh", "-c", "echo x > last; exec sleep 602")
			last <- code
		}()
		require.Eventually(t, there("last"), time.Minute, 10*time.Millisecond)
		k.write(t, "over", "")
		assert.Equal(t, 128+9, <-last)
		_ = session.Wait()
		assert.Equal(t, 3, session.ProcessState.ExitCode(), said.String())
	})
}

// It has a terminal of its own, whose Ctrl-C is a signal inside, and of the size that is said.
func TestExecTerminal(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		plan, err := k.plan(t, "sh", "-c", "until [ -e over ]; do sleep 0.05; done")
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			_, err := plan.Run(t.Context(), providers.Stdio{}, k.heard)
			ended <- err
		}()
		select {
		case <-k.heard.started:
		case err := <-ended:
			t.Fatal(err)
		}
		in, input, err := os.Pipe()
		require.NoError(t, err)
		printed, out, err := os.Pipe()
		require.NoError(t, err)
		resized, size := make(chan struct{}, 1), [2]int{81, 25}
		done := make(chan providers.Result, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			result, err := plan.(providers.Executor).Exec(ctx, []string{"sh", "-c",
				`trap 'echo trapped; exit 5' INT; stty size; test -t 2 && tty; until stty size | grep -q "30 100"; do sleep 0.05; done; echo larger; while :; do sleep 0.05; done`,
			}, []string{"/bin/sh"}, providers.Stdio{In: in, Out: out, Terminal: &providers.Terminal{
				Size: func() (int, int) { return size[0], size[1] }, Resized: resized,
			}})
			assert.NoError(t, err)
			done <- result
		}()
		all := ""
		awaits := func(text string) {
			buffer := make([]byte, 1024)
			for !strings.Contains(all, text) {
				n, err := printed.Read(buffer)
				require.NoError(t, err, all)
				all += string(buffer[:n])
			}
		}
		awaits("25 81\r\n/dev/pts/")
		size = [2]int{100, 30}
		resized <- struct{}{}
		awaits("larger")
		fmt.Fprint(input, "\x03")
		awaits("trapped")
		assert.Equal(t, 5, (<-done).Code)
		k.write(t, "over", "")
		require.NoError(t, <-ended)
	})
}
