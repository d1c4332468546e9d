package terminal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// The test binary is also a small launcher and its pid 1, so that there are
// real process groups, sessions and terminals to try.
func TestMain(m *testing.M) {
	switch os.Getenv("TERMINAL_TEST") {
	case "launcher":
		os.Exit(launcher(os.Args[1:]))
	case "pid1":
		os.Exit(pid1(os.Args[1:]))
	}
	if signal.Ignored(unix.SIGINT) { // by who runs the tests in his background; programs that are started here must not
		signal.Notify(make(chan os.Signal, 1), unix.SIGINT)
	}
	os.Exit(m.Run())
}

// launcher runs a command as pccrun does: a pseudo-terminal, a pid 1 that
// leads its session and reports stops, a relay.
func launcher(argv []string) int {
	master, slave, err := OpenPair()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	reports, reportsIn, _ := os.Pipe()
	ordersOut, orders, _ := os.Pipe()
	cmd := exec.Command("/proc/self/exe", argv...)
	cmd.Env = append(os.Environ(), "TERMINAL_TEST=pid1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if os.Getenv("STDOUT_PIPE") != "" {
		cmd.Stdout = os.Stdout
	}
	cmd.ExtraFiles = []*os.File{reportsIn, ordersOut}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	o := Options{Terminal: 0, Master: master, Lazy: os.Getenv("LAZY") != ""}
	if os.Getenv("PANIC") != "" {
		o.Output = panics{}
	}
	r, err := Start(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	defer r.Close(0)
	if err := cmd.Start(); err != nil {
		r.Close(0)
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	slave.Close()
	reportsIn.Close()
	ordersOut.Close()
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, unix.SIGTERM, unix.SIGHUP)
	order := func() {
		if r.Active() {
			orders.WriteString("f")
		} else {
			orders.WriteString("b")
		}
	}
	order()
	go func() {
		<-terms
		r.Close(0)
		os.Exit(143)
	}()
	lines := bufio.NewScanner(reports)
	for lines.Scan() {
		switch lines.Text() {
		case "stopped":
			if err := r.Suspend(); err != nil {
				return 124
			}
			order()
		case "wants terminal":
			if err := r.Foreground(); err != nil {
				return 124
			}
			order()
		}
	}
	err = cmd.Wait()
	r.Wait(0)
	if err != nil {
		return cmd.ProcessState.ExitCode()
	}
	return 0
}

type panics struct{}

func (panics) Write([]byte) (int, error) { panic("output") }

// pid1 leads the session and runs the command in a group of its own, in the
// foreground or background of the terminal as it is told.
func pid1(argv []string) int {
	reports, orders := os.NewFile(3, "reports"), os.NewFile(4, "orders")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	runtime.LockOSThread()
	signal.Ignore(unix.SIGTTOU)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "TERMINAL_TEST=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	order := func() (foreground bool) {
		var one [1]byte
		if _, err := io.ReadFull(orders, one[:]); err != nil {
			os.Exit(98)
		}
		return one[0] == 'f'
	}
	foreground := order()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: foreground, Ctty: 0}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 127
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 99
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus()
		case pid == cmd.Process.Pid && status.Signaled():
			return 128 + int(status.Signal())
		case pid == cmd.Process.Pid && status.Stopped():
			word := "stopped"
			if sig := status.StopSignal(); !foreground && (sig == unix.SIGTTIN || sig == unix.SIGTTOU) {
				word = "wants terminal"
			}
			fmt.Fprintln(reports, word)
			group := unix.Getpgrp()
			if foreground = order(); foreground {
				group = pid
			}
			_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group)
			_ = unix.Kill(-pid, unix.SIGCONT)
		}
	}
}

// A host is a terminal as a person has it: what is typed, what is shown.
type host struct {
	t      *testing.T
	master *os.File
	slave  *os.File

	mu    sync.Mutex
	shown []byte
	last  string // what was before the last text that was expected
	more  chan struct{}
}

func newHost(t *testing.T) *host {
	m, s, err := OpenPair()
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	require.NoError(t, unix.IoctlSetWinsize(int(s.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}))
	h := &host{t: t, master: m, slave: s, more: make(chan struct{}, 1)}
	t.Cleanup(func() { m.Close(); s.Close() })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := m.Read(buf)
			h.mu.Lock()
			h.shown = append(h.shown, buf[:n]...)
			h.mu.Unlock()
			select {
			case h.more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	return h
}

func (h *host) typed(keys string) {
	h.t.Helper()
	_, err := h.master.WriteString(keys)
	require.NoError(h.t, err)
}

// expect waits for text, and forgets it and what came before.
func (h *host) expect(text string) string {
	h.t.Helper()
	deadline := time.After(await.Patience)
	for {
		h.mu.Lock()
		if i := bytes.Index(h.shown, []byte(text)); i >= 0 {
			before := string(h.shown[:i])
			h.last = before
			h.shown = h.shown[i+len(text):]
			h.mu.Unlock()
			return before
		}
		h.mu.Unlock()
		select {
		case <-h.more:
		case <-deadline:
			h.mu.Lock()
			defer h.mu.Unlock()
			require.FailNow(h.t, "not shown", "%q in %q", text, h.shown)
		}
	}
}

// stopped waits for the shell to say that a background job has stopped, which
// it does before it prompts.
func (h *host) stopped() {
	h.t.Helper()
	await.Until(h.t, "the job has stopped", func() bool {
		h.typed("\n")
		h.expect("ready$ ")
		return strings.Contains(h.last, "Stopped")
	})
}

// relayed waits until a relay has the terminal: a shell that edits its line keeps signals.
func (h *host) relayed() {
	h.t.Helper()
	await.Until(h.t, "the relay has the terminal", func() bool { return h.modes().Lflag&unix.ISIG == 0 })
}

// run starts a program on the terminal, as the leader of its session.
func (h *host) run(env []string, argv ...string) *exec.Cmd {
	h.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = h.slave, h.slave, h.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(h.t, cmd.Start())
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func (h *host) modes() unix.Termios {
	m, err := getModes(int(h.slave.Fd()))
	require.NoError(h.t, err)
	return m
}

// joined starts a relay in this process.
func joined(t *testing.T, o Options) (*host, *Relay, *os.File) {
	h := newHost(t)
	master, slave, err := OpenPair()
	require.NoError(t, err)
	t.Cleanup(func() { slave.Close() })
	o.Terminal, o.Master = int(h.slave.Fd()), master
	r, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close(0) })
	return h, r, slave
}

func TestRelayCarries(t *testing.T) {
	var log bytes.Buffer
	h, r, slave := joined(t, Options{Log: &log})
	size, err := unix.IoctlGetWinsize(int(slave.Fd()), unix.TIOCGWINSZ)
	require.NoError(t, err)
	require.Equal(t, [2]uint16{33, 77}, [2]uint16{size.Row, size.Col})

	// Both ways raw, so that what comes out is what went in.
	modes, _ := getModes(int(slave.Fd()))
	modes = RawModes(modes)
	modes.Cc[unix.VMIN] = 1
	require.NoError(t, setModes(int(slave.Fd()), modes))
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	h.typed(string(all[:]))
	got := make([]byte, len(all))
	_, err = io.ReadFull(slave, got)
	require.NoError(t, err)
	require.Equal(t, all[:], got)

	_, err = slave.WriteString("shown \x1b]52;c;eA==\aand \x1b[1mfiltered\n")
	require.NoError(t, err)
	require.Equal(t, "shown and \x1b[1mfiltered", h.expect("\n"))
	slave.Close()
	r.Wait(0)
	r.Close(0)
	require.Equal(t, "shown and \x1b[1mfiltered\n", log.String())
	h.expect("\x1b[m") // the rendition that was left on
}

// A line of the launcher's stands on one of its own, and is not printed where the command draws a screen.
func TestSay(t *testing.T) {
	h, r, slave := joined(t, Options{})
	shown := func(text string) {
		_, err := slave.WriteString(text)
		require.NoError(t, err)
		h.expect(text)
	}
	shown("begun")
	require.True(t, r.Say("said"))
	require.Equal(t, "\r\n", h.expect("said\r\n"))
	require.True(t, r.Say("again"))
	require.Empty(t, h.expect("again\r\n"))
	shown("\x1b[?1049h")
	require.False(t, r.Say("unseen"))
	shown("\x1b[?1049l")
	modes, err := getModes(int(slave.Fd()))
	require.NoError(t, err)
	require.NoError(t, setModes(int(slave.Fd()), RawModes(modes)))
	require.False(t, r.Say("unseen"), "it takes its keys one by one")
	require.NoError(t, setModes(int(slave.Fd()), modes))
	require.True(t, r.Say("the control"))
	require.NotContains(t, h.expect("the control"), "unseen")
}

func TestRelayModes(t *testing.T) {
	h := newHost(t)
	before := h.modes()
	before.Cc[unix.VERASE] = 8
	require.NoError(t, setModes(int(h.slave.Fd()), before))
	master, slave, err := OpenPair()
	require.NoError(t, err)
	defer slave.Close()
	r, err := Start(Options{Terminal: int(h.slave.Fd()), Master: master})
	require.NoError(t, err)
	inner, err := getModes(int(slave.Fd()))
	require.NoError(t, err)
	require.Equal(t, before, inner, "the command sees the user's modes")
	require.Equal(t, RawModes(before), h.modes())
	require.True(t, IsTerminal(int(slave.Fd())))
	r.Close(0)
	r.Close(0)
	require.Equal(t, before, h.modes())
}

func TestRelaySize(t *testing.T) {
	h, _, slave := joined(t, Options{})
	require.NoError(t, unix.IoctlSetWinsize(int(h.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 20}))
	require.NoError(t, unix.Kill(os.Getpid(), unix.SIGWINCH))
	await.Until(t, "the command's terminal has the size", func() bool {
		size, err := unix.IoctlGetWinsize(int(slave.Fd()), unix.TIOCGWINSZ)
		return err == nil && size.Row == 10 && size.Col == 20
	})
}

func TestRelayBulk(t *testing.T) {
	h, r, slave := joined(t, Options{})
	modes, _ := getModes(int(slave.Fd()))
	require.NoError(t, setModes(int(slave.Fd()), RawModes(modes)))
	line := "0123456789 abcdefghijklmnopqrstuvwxyz grüße\n"
	const lines = 100_000
	go func() {
		slave.WriteString(strings.Repeat(line, lines) + "end of it")
		slave.Close()
	}()
	require.Equal(t, strings.Repeat(line, lines), h.expect("end of it"))
	r.Wait(0)
}

// A terminal that goes away is noticed in its background too, where no signal tells of it:
// a shell inside that has taken its own terminal back waits for keys that never come.
func TestRelayHostGoes(t *testing.T) {
	for name, o := range map[string]Options{"foreground": {}, "background": {Lazy: true}} {
		t.Run(name, func(t *testing.T) {
			h, r, slave := joined(t, o)
			require.Equal(t, !o.Lazy, r.Active())
			h.master.Close()
			await.Closed(t, "it is noticed", r.HungUp())
			await.Until(t, "the command hears of it", func() bool {
				_, err := slave.WriteString("x")
				return errors.Is(err, unix.EIO)
			})
			r.Wait(0)
			r.Close(0)
		})
	}
}

func TestRelayNoTerminal(t *testing.T) {
	master, slave, err := OpenPair()
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	defer slave.Close()
	pipe, in, err := os.Pipe()
	require.NoError(t, err)
	defer pipe.Close()
	defer in.Close()
	_, err = Start(Options{Terminal: int(pipe.Fd()), Master: master})
	require.ErrorIs(t, err, unix.ENOTTY)
	require.False(t, IsTerminal(int(pipe.Fd())))
}

// fill writes to a terminal until it takes nothing more.
func fill(t *testing.T, s *os.File) {
	t.Helper()
	full, err := unix.Open(s.Name(), unix.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(full)
	for err == nil {
		_, err = unix.Write(full, []byte("x"))
	}
	require.ErrorIs(t, err, unix.EAGAIN)
}

func TestRelayStuckTerminal(t *testing.T) {
	// A terminal that takes nothing: ending must not wait for it.
	m, s, err := OpenPair()
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	defer m.Close()
	defer s.Close()
	master, slave, err := OpenPair()
	require.NoError(t, err)
	defer slave.Close()
	before, err := getModes(int(s.Fd()))
	require.NoError(t, err)
	r, err := Start(Options{Terminal: int(s.Fd()), Master: master})
	require.NoError(t, err)
	fill(t, s)
	go slave.WriteString(strings.Repeat("x", 1<<20))
	r.Wait(10 * time.Millisecond)
	r.Close(0)
	after, err := getModes(int(s.Fd()))
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// TestRelayLastWord: to wait for nothing that is stuck is no reason to lose what a terminal would take.
func TestRelayLastWord(t *testing.T) {
	for range 20 {
		m, s, err := OpenPair()
		require.NoError(t, err)
		master, slave, err := OpenPair()
		require.NoError(t, err)
		r, err := Start(Options{Terminal: int(s.Fd()), Master: master})
		require.NoError(t, err)
		_, err = slave.WriteString("last word")
		require.NoError(t, err)
		slave.Close()
		r.Wait(time.Nanosecond)
		r.Close(time.Nanosecond)
		s.Close()
		shown, _ := io.ReadAll(m) // until EIO
		require.Equal(t, "last word", string(shown))
		m.Close()
	}
}

// TestRelayFullTerminal holds that ending waits no longer than it is to for a terminal that is
// full when all output is written: the modes are given back first. The control, whose patience
// has no end, waits until there is room.
func TestRelayFullTerminal(t *testing.T) {
	for _, patience := range []time.Duration{10 * time.Millisecond, 0} {
		m, s, err := OpenPair()
		require.NoError(t, err)
		defer m.Close()
		defer s.Close()
		master, slave, err := OpenPair()
		require.NoError(t, err)
		modes := func() unix.Termios {
			now, err := getModes(int(s.Fd()))
			require.NoError(t, err)
			return now
		}
		before := modes()
		r, err := Start(Options{Terminal: int(s.Fd()), Master: master})
		require.NoError(t, err)
		require.NotEqual(t, before, modes())
		const on, off = "\x1b[?1049h", "\x1b[?1049l"
		_, err = slave.WriteString(on)
		require.NoError(t, err)
		slave.Close()
		r.Wait(0)
		fill(t, s)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			r.Close(patience)
		}()
		if patience == 0 {
			await.Until(t, "the modes are given back", func() bool { return modes() == before })
			buf := make([]byte, 1<<20)
			for shown := ""; !strings.HasSuffix(shown, off); {
				n, err := m.Read(buf)
				require.NoError(t, err)
				shown += string(buf[:n])
			}
		}
		await.Closed(t, "it waits no longer", closed)
		require.Equal(t, before, modes())
	}
}

func exe(t *testing.T) string {
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

func needs(t *testing.T, program string) string {
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("needs %s", program)
	}
	return path
}

// shell starts an interactive shell on a terminal.
func shell(t *testing.T) *host {
	bash := needs(t, "bash")
	h := newHost(t)
	h.run([]string{"PS1=ready$ ", "HISTFILE=", "TERM=xterm", "BASH_SILENCE_DEPRECATION_WARNING=1"}, bash, "--norc", "--noediting", "-i")
	h.expect("ready$ ")
	return h
}

func TestSuspend(t *testing.T) {
	h := shell(t)
	before := h.modes()
	h.typed("TERMINAL_TEST=launcher " + exe(t) + " sh -c 'echo up; exec cat'\n")
	h.expect("up\r\n")
	h.typed("one\n")
	h.expect("one\r\none\r\n")
	require.Zero(t, h.modes().Lflag&unix.ICANON)
	for _, word := range []string{"two", "three"} {
		h.typed("\x1a")
		h.expect("Stopped")
		h.expect("ready$ ")
		require.Equal(t, before.Lflag, h.modes().Lflag, "the shell has its terminal")
		h.typed("echo $((6*7))\n")
		h.expect("42")
		// In the background it is stopped again, since it reads.
		h.typed("bg\n")
		h.expect("ready$ ")
		h.stopped()
		h.typed("fg\n")
		h.expect("exec cat'\r\n")
		h.relayed()
		h.typed(word + "\n")
		h.expect(word + "\r\n" + word + "\r\n")
	}
	h.typed("\x04")
	h.expect("ready$ ")
	require.Equal(t, before, h.modes())
	h.typed("echo status $?\n")
	h.expect("status 0")
}

func TestInterruptAndStatus(t *testing.T) {
	h := shell(t)
	h.typed("TERMINAL_TEST=launcher " + exe(t) + " sh -c 'echo up; exec sleep 1000'\n")
	h.expect("up\r\n")
	h.typed("\x03")
	h.expect("ready$ ")
	h.typed("echo status $?\n")
	h.expect("status 130")
}

func TestStartInBackground(t *testing.T) {
	h := shell(t)
	before := h.modes()
	h.typed("TERMINAL_TEST=launcher " + exe(t) + " sh -c 'echo up; read x; echo got $x' &\n")
	h.expect("up\r")
	require.Equal(t, before.Lflag, h.modes().Lflag, "the terminal stays the shell's")
	h.typed("echo $((6*7))\n")
	h.expect("42")
	h.stopped()
	h.typed("fg\n")
	h.expect("got $x'")
	h.relayed()
	h.typed("hello\n")
	h.expect("got hello")
	h.expect("ready$ ")
	require.Equal(t, before, h.modes())
}

// A shell that edits its line has the terminal without lines and echo as it starts a
// background job. In the foreground the command finds the modes that any other finds
// there: the control, a cat that nothing wraps.
func TestStartInBackgroundOfAnEditor(t *testing.T) {
	h := newHost(t)
	h.run([]string{"PS1=ready$ ", "HISTFILE=", "INPUTRC=/dev/null", "TERM=dumb"}, needs(t, "bash"), "--norc", "-i")
	h.expect("ready$ ")
	await.Until(t, "the shell edits its line", func() bool { return h.modes().Lflag&unix.ICANON == 0 })
	for _, program := range []string{"", "TERMINAL_TEST=launcher " + exe(t) + " "} {
		h.typed(program + "sh -c 'stty -a; exec cat' &\n")
		h.expect("ready$ ")
		h.stopped()
		h.typed("fg\n")
		h.expect("exec cat'")
		if program == "" { // what is typed before it has the terminal is edited by nobody
			await.Until(t, "the shell has left the terminal", func() bool { return h.modes().Lflag&unix.ICANON != 0 })
		} else {
			h.relayed()
		}
		h.typed("hello\n")
		h.expect("hello\r\nhello\r\n") // the echo, and what cat has read
		h.typed("\x04")
		h.expect("ready$ ")
		require.NotContains(t, h.last, "\x04", "an end of input, and not a letter")
		h.typed("echo status $?\n")
		h.expect("status 0")
		h.expect("ready$ ")
	}
	// Modes that the command has made itself are its own.
	h.typed("TERMINAL_TEST=launcher " + exe(t) + " sh -c 'trap \"\" TTOU; stty -echo quit ^X; read x; stty -a; echo got $x' &\n")
	h.expect("ready$ ")
	h.stopped()
	h.typed("fg\n")
	h.expect("got $x'")
	h.relayed()
	h.typed("hello\r\n")
	h.expect("got hello")
	require.Contains(t, h.last, " -echo ")
	require.Contains(t, h.last, "quit = ^X")
	h.expect("ready$ ")
}

// The terminal belongs to the other program of the pipeline until the
// command wants it.
func TestLazy(t *testing.T) {
	h := shell(t)
	before := h.modes()
	h.typed("LAZY=1 STDOUT_PIPE=1 TERMINAL_TEST=launcher " + exe(t) + " sh -c 'echo up; sleep 0.2; echo down' | cat\n")
	h.expect("up\r\n")
	require.Equal(t, before.Lflag, h.modes().Lflag)
	h.expect("down\r\n")
	h.expect("ready$ ")
	h.typed("LAZY=1 STDOUT_PIPE=1 TERMINAL_TEST=launcher " + exe(t) + " sh -c 'echo up; read x; echo got $x' | cat\n")
	h.expect("cat\r\nup") // and "\r\n", or "\n" where cat is later than the command's wish for the keys
	h.relayed()
	h.typed("hello\n")
	h.expect("got hello")
	h.expect("ready$ ")
	require.Equal(t, before, h.modes())
	// And from the background it is stopped, as any reader of it.
	h.typed("LAZY=1 TERMINAL_TEST=launcher " + exe(t) + " sh -c 'read x; echo got $x' &\n")
	h.expect("ready$ ")
	h.stopped()
	h.typed("fg\n")
	h.expect("got $x'")
	h.relayed()
	h.typed("again\n")
	h.expect("got again")
	h.expect("ready$ ")
}

func TestRestoredWhenKilledOrBroken(t *testing.T) {
	h := shell(t)
	before := h.modes()
	h.typed("TERMINAL_TEST=launcher " + exe(t) + " sh -c 'printf \"\\033[?1049h\\033[?25lup\"; sleep 1000' & p=$!; fg\n")
	h.expect("\x1b[?1049h\x1b[?25lup")
	h.relayed()
	group, err := unix.IoctlGetInt(int(h.master.Fd()), unix.TIOCGPGRP)
	require.NoError(t, err)
	require.NoError(t, unix.Kill(group, unix.SIGTERM))
	h.expect("\x1b[?1049l\x1b[?25h")
	h.expect("ready$ ")
	require.Equal(t, before, h.modes())

	h.typed("PANIC=1 TERMINAL_TEST=launcher " + exe(t) + " echo hello 2>/dev/null\n")
	h.expect("ready$ ")
	require.Equal(t, before, h.modes())
}

func TestFullScreen(t *testing.T) {
	vim := needs(t, "vim")
	h := shell(t)
	before := h.modes()
	file := filepath.Join(t.TempDir(), "file")
	h.typed("TERMINAL_TEST=launcher " + exe(t) + " " + vim + " -u NONE -i NONE -n " + file + "\n")
	h.expect("\x1b[?1049h")
	h.expect("[New")
	h.typed("ihello from inside\x1b")
	// Into a file, since vim draws no more of the screen than has changed.
	lines := func(want string, rows ...uint16) {
		t.Helper()
		await.Until(t, "vim has "+want+" lines", func() bool {
			for _, n := range rows {
				require.NoError(t, unix.IoctlSetWinsize(int(h.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: n, Col: 60}))
				time.Sleep(50 * time.Millisecond)
			}
			h.typed("\x1b:call writefile([&lines], '" + file + ".lines')\r")
			time.Sleep(20 * time.Millisecond)
			got, _ := os.ReadFile(file + ".lines")
			return string(got) == want+"\n"
		})
	}
	lines("33")
	// More than once: vim forgets the one or other size (strace shows that it gets SIGWINCH,
	// and does not ask).
	lines("20", 21, 20)
	h.typed("\x1b:wq\r")
	h.expect("\x1b[?1049l")
	h.expect("ready$ ")
	require.Equal(t, before, h.modes())
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "hello from inside\n", string(data))
}

// A pseudo-terminal without a line discipline passes each byte on as it is.
func TestMakeRaw(t *testing.T) {
	master, slave, err := OpenPair()
	require.NoError(t, err)
	defer master.Close()
	defer slave.Close()
	require.NoError(t, MakeRaw(slave))
	_, err = master.WriteString("a\r\x03")
	require.NoError(t, err)
	b := make([]byte, 3)
	_, err = io.ReadFull(slave, b)
	require.NoError(t, err)
	require.Equal(t, "a\r\x03", string(b))
}
