package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// newTerminal returns the two ends of a new pseudo-terminal (pty(7)), the master first.
func newTerminal(t *testing.T) (master int, slave *os.File) {
	master, slave, err := terminalPair()
	require.NoError(t, err)
	return master, slave
}

func terminalPair() (master int, slave *os.File, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	n := 0
	if err == nil {
		n, err = unix.IoctlGetInt(master, unix.TIOCGPTN)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	return master, slave, err
}

// A signal that ends pccrun, whenever it comes, leaves the terminal as it was: it is
// caught before that is changed.
func TestSignalLeavesTheTerminal(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	var until time.Duration // the terminal is changed
	for round := range 61 {
		fd, slave := newTerminal(t)
		// A QUIT before main has Go's runtime print a trace, which fills a terminal that nobody reads.
		go func() {
			for b := make([]byte, 4096); ; {
				if n, err := unix.Read(fd, b); n <= 0 && err != unix.EINTR {
					return
				}
			}
		}()
		modes := func() unix.Termios {
			m, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			require.NoError(t, err)
			return *m
		}
		before := modes()
		cmd := p.command("-q", "--", "sleep", "60")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		require.NoError(t, cmd.Start())
		if began := time.Now(); round == 0 {
			await.Until(t, "the terminal is changed", func() bool { return modes() != before })
			until = time.Since(began)
		} else {
			time.Sleep(until * time.Duration(round) / 45)
		}
		sig := []os.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}[round%3]
		require.NoError(t, cmd.Process.Signal(sig))
		require.NoError(t, ignoreExit(cmd.Wait()))
		require.Equal(t, before, modes(), "round %d: %v", round, sig)
		slave.Close()
		unix.Close(fd)
	}
}

// A second signal ends pccrun while what a command has printed waits for a terminal that
// takes nothing, and the terminal is as it was. KILL, the control, leaves it raw.
func TestSecondSignalLeavesTheTerminal(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		fd, slave := newTerminal(t)
		defer unix.Close(fd)
		defer slave.Close()
		before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
		require.NoError(t, err)
		mark := filepath.Base(p.home) + "-" + sig.String()
		cmd := p.command("-q", "--", "sh", "-c", "tr '\\0' x </dev/zero & until [ -e full ]; do sleep 0.02; done", mark)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		require.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		await.Until(t, "the terminal takes nothing more", func() bool { return !writable(t, slave) })
		p.write("project/full", "", 0o644)
		await.Until(t, "the command is gone", func() bool { return len(having(mark)) == 1 })
		require.NoError(t, os.Remove(p.dir+"/full"))
		require.NoError(t, cmd.Process.Signal(sig))
		if sig == unix.SIGTERM {
			await.Until(t, "it got the signal", func() bool { return !signals(t, cmd.Process.Pid, "ShdPnd")(sig) })
			require.Empty(t, ended, "the first is held")
			await.Until(t, "a second ends it", func() bool {
				_ = cmd.Process.Signal(sig) // one that comes at once may be one with the first
				return len(ended) > 0
			})
		}
		require.NoError(t, ignoreExit(await.Receive(t, "its end", ended)))
		after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
		require.NoError(t, err)
		require.Equal(t, sig == unix.SIGTERM, *before == *after, "%v", sig)
	}
}

// A command whose time is over ends, and pccrun with it, though the terminal takes nothing any
// more of what gives it back: its modes are given back without. The control has room for it.
func TestFullTerminal(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	const on, off = "\x1b[?1049h", "\x1b[?1049l" // the alternate screen
	for _, full := range []bool{true, false} {
		master, slave := newTerminal(t)
		defer slave.Close()
		before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
		require.NoError(t, err)
		var cmd *exec.Cmd
		var ended chan error
		for limit, begun := time.Second, false; !begun; limit *= 8 { // a busy machine may not come to the command in a second
			cmd = p.command("-q", "--timeout", limit.String(), "--", "sh", "-c", "printf '\\033[?1049h'; exec sleep 1000")
			cmd.Stdin, cmd.Stdout = slave, slave
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { cmd.Process.Kill() })
			ended = make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			await.Until(t, "the command prints, or its time is over", func() bool { begun = readable(master); return begun || len(ended) > 0 })
		}
		require.Equal(t, on, read(t, master, len(on)))
		filled := 0
		if full {
			filled = fill(t, slave)
		}
		_ = await.Receive(t, "its end, though the terminal is full", ended)
		require.Equal(t, 124, cmd.ProcessState.ExitCode())
		after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
		require.NoError(t, err)
		require.Equal(t, *before, *after)
		if !full {
			require.Equal(t, off, read(t, master, len(off)))
		}
		require.Equal(t, full, filled > 0)
		unix.Close(master)
	}
}

// read reads so much of what is on the screen.
func read(t *testing.T, master, n int) string {
	t.Helper()
	b := make([]byte, n)
	for at := 0; at < n; {
		more, err := unix.Read(master, b[at:])
		require.NoError(t, err)
		at += more
	}
	return string(b)
}

// readable reports whether something is on the screen.
func readable(master int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(master), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// writable reports whether a terminal takes a byte.
func writable(t *testing.T, slave *os.File) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(slave.Fd()), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, 0)
	if err == unix.EINTR {
		return true
	}
	require.NoError(t, err)
	return n > 0
}

// fill writes to a terminal until it takes not one byte more, and returns how many it took.
func fill(t *testing.T, slave *os.File) (n int) {
	t.Helper()
	fd, err := unix.Open(slave.Name(), unix.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	for {
		switch _, err := unix.Write(fd, []byte("x")); err {
		case nil:
			n++
		case unix.EAGAIN:
			return n
		default:
			require.NoError(t, err)
		}
	}
}

// Who closes the terminal of a run that Ctrl-Z has stopped ends it, as outside: the
// launcher waited for the command, and that to be continued, for ever. One that does
// not end at SIGHUP reads the end of its terminal.
func TestTerminalGoesWhileStopped(t *testing.T) {
	t.Parallel()
	for _, ignores := range []bool{false, true} {
		p := newPupil(t)
		p.write("project/wait.sh", "trap 'echo hung up > told' HUP\necho ready.\nread x\nread x\necho over > over\n", 0o644)
		if !ignores {
			p.write("project/wait.sh", "echo ready.\nread x\nread x\n", 0o644)
		}
		s := newSeat(t, p)
		mark := fmt.Sprintf("%d-%s", os.Getpid(), filepath.Base(p.home))
		s.typed("$HOME/bin/pccrun -- sh ./wait.sh " + mark + "\n")
		s.awaits(`ready\.`)
		s.typed("\x1a")
		s.awaits(`(?i)stopped`)
		running := func() []string { return having("./wait.sh\x00" + mark) }
		require.Len(t, running(), 2, "control: as long as the terminal stands it waits to go on")
		s.master.Close()
		await.Until(t, "the end, of one that ignores HUP: "+strconv.FormatBool(ignores), func() bool { return len(running()) == 0 })
		if ignores {
			require.FileExists(t, p.dir+"/told")
			require.FileExists(t, p.dir+"/over")
		}
	}
}

// A reader that takes nothing, a terminal or a pipe, does not keep a run that --timeout has
// ended from its end.
func TestTimeoutWithoutReader(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	run := func(slave, out *os.File, args ...string) *exec.Cmd {
		cmd := p.command(args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, out, out
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: slave != nil}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill() })
		return cmd
	}
	fd, slave := newTerminal(t)
	defer unix.Close(fd)
	defer slave.Close()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	for _, cmd := range []*exec.Cmd{
		run(slave, slave, "--timeout", "1s", "--", "yes"),
		run(nil, w, "--timeout", "1s", "--", "yes"),
	} {
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		require.NoError(t, ignoreExit(await.Receive(t, "the end of its time", ended)))
		require.Equal(t, 124, cmd.ProcessState.ExitCode())
	}
}

// Where the command has no terminal of its own, TSTP stops it and pccrun, and CONT lets
// both go on: the launcher let it go on at once, before it had stopped itself, in two of
// three.
func TestStopWithoutTerminal(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	p.write("project/count.sh", "while :; do echo >> count; sleep 0.01; done\n", 0o644)
	size := func() int64 {
		info, err := os.Stat(p.dir + "/count")
		if err != nil {
			return 0
		}
		return info.Size()
	}
	for round := range 10 {
		mark := fmt.Sprintf("%s-%d", filepath.Base(p.home), round)
		cmd := p.command("-q", "--", "sh", "./count.sh", mark)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill() })
		goesOn := func() {
			before := size()
			await.Until(t, "it goes on", func() bool { return size() > before })
		}
		goesOn()
		await.Until(t, "it takes the signal", func() bool { return signals(t, cmd.Process.Pid, "SigCgt")(unix.SIGTSTP) })
		require.NoError(t, cmd.Process.Signal(unix.SIGTSTP))
		await.Until(t, "pccrun stops, and the command with it", func() bool {
			for _, pid := range having("./count.sh\x00" + mark) {
				if !stopped(pid) && !inState(pid, "D") { // which waits for a child of vfork(2) that is stopped
					return false
				}
			}
			return true
		})
		require.NoError(t, cmd.Process.Signal(unix.SIGCONT))
		goesOn()
		require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
		require.NoError(t, ignoreExit(cmd.Wait()))
	}
}

// A CONT that follows a TSTP at once lets pccrun go on: it came before pccrun had stopped
// itself, which then nobody continued, in one of twenty.
func TestContinuedBeforeStopped(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	p.write("project/marks.sh", "trap 'echo >> marks' USR1; echo > ready; while :; do sleep 0.01; done\n", 0o644)
	cmd := p.command("-q", "--", "sh", "./marks.sh")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	marks := func() int {
		text, _ := os.ReadFile(p.dir + "/marks")
		return len(text)
	}
	// passed returns when a later signal has gone the way to the command.
	passed := func() {
		before, sent := marks(), time.Time{}
		await.Until(t, "the command gets what it is sent", func() bool {
			if time.Since(sent) > 50*time.Millisecond { // one may be lost while it is stopped
				require.NoError(t, cmd.Process.Signal(unix.SIGUSR1))
				sent = time.Now()
			}
			return marks() > before
		})
	}
	await.Until(t, "it takes the signal", func() bool { return signals(t, cmd.Process.Pid, "SigCgt")(unix.SIGTSTP) })
	await.Until(t, "the command has its trap", func() bool { return p.holds("project/ready") })
	for round := range 60 {
		require.NoError(t, cmd.Process.Signal(unix.SIGTSTP))
		for until := time.Now().Add(time.Duration(round) * 20 * time.Microsecond); time.Now().Before(until); {
		}
		require.NoError(t, cmd.Process.Signal(unix.SIGCONT))
		passed() // not one that is left stopped
	}
	// The last CONT may be seen late, and takes back what comes close before it.
	pid := strconv.Itoa(cmd.Process.Pid)
	await.Until(t, "control: one that nothing follows stops it", func() bool {
		require.NoError(t, cmd.Process.Signal(unix.SIGTSTP))
		for until := time.Now().Add(time.Second); time.Now().Before(until) && !stopped(pid); {
			time.Sleep(time.Millisecond)
		}
		return stopped(pid)
	})
	require.NoError(t, cmd.Process.Signal(unix.SIGCONT))
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	require.NoError(t, ignoreExit(cmd.Wait()))
}

// signals returns which signals are in a set of a process, by proc(5)'s name for that.
func signals(t *testing.T, pid int, set string) func(unix.Signal) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "\n"+set+":\t")
	bits, err := strconv.ParseUint(rest[:16], 16, 64)
	require.NoError(t, err)
	return func(sig unix.Signal) bool { return bits>>(sig-1)&1 != 0 }
}

// stopped reports whether a signal has stopped a process.
func stopped(pid string) bool { return inState(pid, "T") }

// inState reports whether a process is in a state of proc(5).
func inState(pid, state string) bool {
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "+state))
}

// having returns the processes whose command line ends with these words.
func having(words string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.HasSuffix(string(bytes.TrimSuffix(line, []byte{0})), words) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// What an agent prints of how its conversation goes on pccrun says for a sandbox, by the id alone. The controls: another
// command, and a home that is gone.
func TestResumeInASandbox(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	p.write("bin/claude", "#!/bin/sh\nprintf '\\033[2mResume this session with:\\033[0m\\nclaude '\"$2\"'\\033[1m--resume %s\\n' \"$1\"\n", 0o755)
	p.env = append(p.env, "PATH="+p.home+"/bin:"+os.Getenv("PATH"), "CI=") // in a CI no home stays
	const id = "5c3ea1b2-0a1b-4c2d-8e3f-a1b2c3d4e5f6"
	on := func(args ...string) string {
		fd, slave := newTerminal(t)
		printed := make(chan string, 1)
		go func() {
			var all []byte
			for b := make([]byte, 4096); ; {
				n, err := unix.Read(fd, b)
				if n <= 0 && err != unix.EINTR {
					printed <- string(all)
					return
				}
				all = append(all, b[:max(n, 0)]...)
			}
		}()
		cmd := p.command(args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		require.NoError(t, cmd.Run())
		slave.Close()
		defer unix.Close(fd)
		return await.Receive(t, "all that was printed", printed)
	}
	require.Contains(t, on("--", "claude", id), "pccrun: in a sandbox: pccrun -- claude --resume "+id+"\r\n")
	require.Contains(t, on("--timeout", "1h", "--", "claude", id), "pccrun: in a sandbox: pccrun [the same flags] -- claude --resume "+id)
	require.Contains(t, on("--", "claude", id, "--permission-mode plan "), "pccrun: in a sandbox: pccrun -- claude --resume "+id+"\r\n", "with its own flags it prints them first")
	require.NotContains(t, on("--", "claude", "'$(evil)'"), "in a sandbox")
	require.NotContains(t, on("--fresh-home", "--", "claude", id), "in a sandbox")
	require.NotContains(t, on("--profile", "claude", "--", "sh", p.home+"/bin/claude", id), "in a sandbox")
}
