package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/cgroups"
	"github.com/pccrun/pccrun/internal/await"
)

// A signal that ends a launch, whenever it comes, leaves nothing: no session, no unfinished-run record to
// the workspace, no control group. QUIT, USR1 and USR2 would not end one whose runtime has not begun.
//
//test:root ^--memory_256m$
func TestSignalLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--log"}, {"--overlay", "."}, {"--memory", "256m"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			p := newPupil(t)
			state := p.home + "/.local/state/pccrun/"
			running := func() bool { return p.holds("project/ran") }
			// launch returns what a launch that got a signal has left.
			launch := func(sig os.Signal, wait func()) (left []string) {
				cmd := p.command(append(append([]string{"-q", "--write", p.dir + "/ran"}, flags...), "--", "sh", "-c", "echo > ran; exec sleep 600")...)
				p.write("project/ran", "", 0o644)
				var said bytes.Buffer
				cmd.Stderr = &said
				require.NoError(t, cmd.Start())
				wait()
				require.NoError(t, cmd.Process.Signal(sig))
				require.NoError(t, ignoreExit(cmd.Wait()))
				if !running() {
					// As the signal ends any program, which a shell tells as 128 and its number.
					status := cmd.ProcessState.Sys().(syscall.WaitStatus)
					require.True(t, status.Signaled() && status.Signal() == sig || status.ExitStatus() == 128+int(sig.(syscall.Signal)), "%v: %v: %s", sig, cmd.ProcessState, &said)
				}
				sessions, _ := filepath.Glob(state + "sessions/*")
				records, _ := filepath.Glob(state + "owed/*")
				for _, name := range records {
					if info, err := os.Stat(name); err == nil && info.Size() == 0 {
						continue // root's, who is not root any more at the end: the next launch removes it
					}
					left = append(left, name)
				}
				groups, err := cgroups.Leftovers()
				require.NoError(t, err)
				for _, g := range groups {
					if strings.Contains(g.Path, "/pccrun-"+strconv.Itoa(cmd.Process.Pid)+"-") {
						left = append(left, g.Path)
						_ = g.Remove()
					}
				}
				for _, dir := range sessions {
					if strings.HasPrefix(filepath.Base(dir), ".ran-") {
						continue // root's mark of the workspace, which gc removes
					}
					info, _ := os.ReadFile(dir + "/session.json")
					if slices.Contains(flags, "--log") && strings.Contains(string(info), `"ended":`) {
						continue // the log of a command that ran
					}
					entries, _ := filepath.Glob(dir + "/*")
					left = append(append(left, dir), entries...)
				}
				// The kernel's own directory in an overlay's, which KILL leaves, nobody may read.
				require.NoError(t, exec.Command("sh", "-c", `chmod -R u+rwx "$0"; rm -rf "$0"`, state).Run())
				return left
			}
			runs := func() { await.Until(t, "the command runs", running) }
			began := time.Now()
			launch(unix.SIGTERM, runs)
			took := time.Since(began) // a launch and its end: all moments of a launch are before
			for round := range 40 {
				sig := []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP}[round%3]
				require.Empty(t, launch(sig, func() { time.Sleep(took * time.Duration(round) / 40) }), "round %d: %v", round, sig)
			}
			require.NotEmpty(t, launch(unix.SIGKILL, runs), "control: KILL leaves something")
		})
	}
}

// A command that Ctrl-C ends ends pccrun by the same signal, by which a shell ends its
// loop; one that takes the signal and exits lets the loop go on, as it does outside. In a
// terminal the command alone has the key.
//
//test:root
func TestInterruptEndsALoop(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		command  string
		rounds   int
		terminal bool
	}{
		{"echo x >> rounds; exec sleep 600", 1, false},
		{"echo x >> rounds; exec sleep 600", 1, true},
		{"trap 'exit 130' INT; echo x >> rounds; while :; do sleep 0.02; done", 3, false},
	} {
		if row.terminal && os.Getuid() == 0 {
			continue // root is given up by then, and a shell of root's takes no signal from anybody else
		}
		p := newPupil(t)
		run := p.command("-q", "--", "sh", "-c", row.command)
		loop := exec.Command("bash", append([]string{"-c", `for i in 1 2 3; do "$@"; echo x >> next; done; true`, "bash"}, run.Args...)...)
		loop.Dir, loop.Env, loop.SysProcAttr = run.Dir, run.Env, &syscall.SysProcAttr{Setpgid: true}
		interrupt := func() error { return syscall.Kill(-loop.Process.Pid, syscall.SIGINT) }
		ours := func() bool { return true }
		if row.terminal {
			master, slave := newTerminal(t)
			defer unix.Close(master)
			defer slave.Close()
			loop.Stdin, loop.Stdout, loop.Stderr = slave, slave, slave
			loop.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			interrupt = func() error { _, err := unix.Write(master, []byte("\x03")); return err }
			ours = func() bool { // before that the key is the kernel's, and the shell's too
				mode, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
				return err == nil && mode.Lflag&unix.ISIG == 0
			}
		}
		require.NoError(t, loop.Start())
		lines := func(file string) int {
			text, _ := os.ReadFile(filepath.Join(loop.Dir, file))
			return strings.Count(string(text), "x")
		}
		for round := 1; round <= row.rounds; round++ {
			await.Until(t, "the loop's next round", func() bool { return lines("rounds") == round && ours() })
			require.NoError(t, interrupt())
		}
		ended := make(chan error, 1)
		go func() { ended <- loop.Wait() }()
		if typed := time.Now(); row.terminal {
			await.Until(t, "the end of the loop, or its next round", func() bool {
				if time.Since(typed) > 5*time.Second { // a key at the start of a command can be lost; one after its end would be the shell's
					require.NoError(t, interrupt())
					typed = time.Now()
				}
				return len(ended) > 0 || lines("next") > 0
			})
		}
		require.True(t, row.rounds > 1 || lines("next") == 0, "the loop goes on")
		require.NoError(t, ignoreExit(await.Receive(t, "its end", ended)))
		require.Equal(t, row.rounds, lines("rounds"), row)
		require.Equal(t, row.rounds == 1, loop.ProcessState.Sys().(syscall.WaitStatus).Signaled(), row)
	}
}
