package egress

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// A screen is a terminal with somebody before it.
type screen struct {
	t      *testing.T
	master *os.File
	slave  *os.File

	mu    sync.Mutex
	shown []byte
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	require.NoError(t, unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(m, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 200}))
	s := &screen{t: t, master: os.NewFile(uintptr(m), "master"), slave: slave}
	t.Cleanup(func() {
		s.master.Close()
		s.slave.Close()
		if t.Failed() {
			t.Logf("shown: %q", s.shown)
		}
	})
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := s.master.Read(buf)
			s.mu.Lock()
			s.shown = append(s.shown, buf[:n]...)
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// expect waits for text and forgets what came up to it.
func (s *screen) expect(text string) (before string) {
	s.t.Helper()
	await.Until(s.t, fmt.Sprintf("%q", text), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := bytes.Index(s.shown, []byte(text))
		if i < 0 {
			return false
		}
		before, s.shown = string(s.shown[:i]), s.shown[i+len(text):]
		return true
	})
	return before
}

func (s *screen) press(key string) {
	time.Sleep(500 * time.Millisecond) // what comes at once is no answer
	_, err := s.master.WriteString(key)
	require.NoError(s.t, err)
}

// answer presses a key until the question is taken away: to a program that was slow to listen the first came at once.
func (s *screen) answer(key string) {
	s.t.Helper()
	answered := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return bytes.Contains(s.shown, []byte("\x1b[?1049l")) || bytes.Contains(s.shown, []byte("\x1b8"))
	}
	var pressed time.Time
	await.Until(s.t, "the question is taken away", func() bool {
		if time.Since(pressed) > 10*time.Second {
			s.press(key)
			pressed = time.Now()
		}
		return answered()
	})
}

// on runs a command at the terminal.
func (b *bench) on(s *screen, argv ...string) *exec.Cmd {
	b.t.Helper()
	cmd := b.command(argv...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.slave, s.slave, s.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	start(b.t, cmd)
	b.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// TestAsk answers in each way, for programs with the proxy's variables and
// without, and from a full-screen program.
func TestAsk(t *testing.T) {
	s := newScreen(t)
	b := newBench(t, "--ask", "--deny", "evil.example")
	b.on(s, b.sandboxed(`for n in 1 2 3 4 5 6 7 8; do read -r line; echo "begin $n"; eval "$line"; echo "end $n"; done`)...)
	say := func(line string) {
		_, err := s.master.WriteString(line + "\n")
		require.NoError(t, err)
		s.expect("begin ")
	}
	const question = "allow it [o]nce, for this [s]ession, "
	asked, reached := theWorld.since(func() {
		say(bare + "getent hosts www.good.example; curl -sS -m 100 http://api.good.example/")
		s.expect("wants to reach api.good.example, port 80. " + question)
	})
	require.Empty(t, asked, "nobody is asked for a name before the answer")
	require.Empty(t, reached)
	s.answer("o")
	s.expect("\x1b[?1049l")
	require.Contains(t, s.expect("end "), "hello api.good.example")

	say("curl -sS -m 100 https://api.good.example/ 2>&1") // by the proxy: another port
	s.expect("wants to reach api.good.example, port 443. ")
	s.answer("s")
	require.Contains(t, s.expect("end "), "hello api.good.example")
	say(bare + "curl -sS -m 100 https://api.good.example/ 2>&1")
	require.Contains(t, s.expect("end "), "hello api.good.example", "remembered")

	say("curl -sS -m 100 http://six.good.example/ 2>&1")
	s.expect(question)
	s.answer("n")
	require.Contains(t, s.expect("end "), "allow_with=\"--allow six.good.example\"")
	say("curl -sS -m 100 http://six.good.example/ http://evil.example/ http://rebind.good.example.invalid./ 2>&1; true")
	s.expect("rebind.good.example.invalid")
	s.answer("\x1b")
	require.NotContains(t, s.expect("end "), "hello", "a no is remembered, and what a rule denies is not asked")

	say(`trap 'printf "drawn $(stty size)."' WINCH; printf '\033[?1049hfull'; curl -sS -m 100 http://www.good.example/; for i in 1 2 3 4 5 6 7 8 9; do sleep 0.05; done; printf '\033[?1049l'`)
	s.expect("\x1b7\x1b[?6l\x1b[m\x0f\x1b(B\x1b[H\x1b[2J")
	s.expect(question)
	s.answer("o")
	s.expect("\x1b[2J\x1b8")
	s.expect("drawn 30 200.")
	s.expect("end ")

	say("curl -sS -m 100 http://good.example/ 2>&1")
	s.expect(question)
	s.answer("s")
	s.expect("end ")
}

// TestAskAlways answers always, which root is not offered, and finds it in the next run
// where the profile that it changes was shown and agreed to.
//
//test:root
func TestAskAlways(t *testing.T) {
	s := newScreen(t)
	b := newBench(t, "--ask")
	if os.Getuid() == 0 {
		cmd := b.on(s, b.sandboxed("curl -sS -m 100 http://good.example/")...)
		s.expect("allow it [o]nce, for this [s]ession, or [n]ot?")
		s.answer("o")
		s.expect("hello good.example")
		require.NoError(t, cmd.Wait())
		return
	}
	file := filepath.Join(b.home, ".config/pccrun/profiles/default.jsonc")
	cmd := b.on(s, b.sandboxed("curl -sS -m 100 http://good.example/")...)
	s.expect("allow it [o]nce, for this [s]ession, [a]lways, or [n]ot?")
	s.answer("a")
	s.expect("pccrun: write good.example into " + file + "? [y]es, [n]o")
	require.Contains(t, s.expect("\r\n}"), `"extends": "default"`)
	s.answer("n")
	s.expect("hello good.example")
	require.NoError(t, cmd.Wait())
	require.NoFileExists(t, file)
	for n, host := range []string{"good.example", "api.good.example"} {
		cmd := b.on(s, b.sandboxed("curl -sS -m 100 http://"+host+"/")...)
		s.expect("wants to reach " + host)
		s.answer("a")
		s.expect("[y]es, [n]o")
		s.answer("y")
		s.expect("hello " + host)
		require.NoError(t, cmd.Wait())
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, n+1, strings.Count(string(text), "good.example\""), string(text))
	}
	b.flags = nil
	out, _ := b.inside("curl -sS -m 100 http://good.example/ http://api.good.example/")
	require.Contains(t, out, "hello good.example")
	require.Contains(t, out, "hello api.good.example")

	// Of a profile that somebody wrote all the rest stays.
	require.NoError(t, os.WriteFile(file, []byte("{\"extends\": \"default\"} // mine\n"), 0o600))
	b.flags = []string{"--ask"}
	cmd = b.on(s, b.sandboxed("curl -sS -m 100 http://good.example/")...)
	s.expect("[a]lways, or [n]ot?")
	s.answer("a")
	s.expect("[y]es, [n]o")
	s.answer("y")
	s.expect("hello good.example")
	require.NoError(t, cmd.Wait())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Regexp(t, `(?s)"extends": "default".*"good.example".*} // mine`, string(text))
}

// TestAskRefused: never without a terminal.
func TestAskRefused(t *testing.T) {
	b := newBench(t, "--ask")
	out, code := b.inside("echo ran")
	require.Equal(t, 125, code, out)
	require.Contains(t, out, "flag --ask: there is no terminal to ask at")
	require.NotContains(t, out, "ran")
}
