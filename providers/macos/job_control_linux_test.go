package macos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/providers"
)

// job runs a command as pccrun does from a shell: the terminal is 0.
func job(args []string) int {
	m := &machine{root: args[0], system: linux(args[1])}
	m.system.stage[0], _ = os.Executable()
	result, err := m.run(context.Background(), same, providers.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Terminal: &providers.Terminal{
		Name: "xterm", Resized: make(chan struct{}), Size: func() (int, int) { return 80, 24 },
		Relay: func(o terminal.Options) (*terminal.Relay, error) {
			o.Terminal = 0
			return terminal.Start(o)
		},
	}}, new(heard), args[2:]...)
	if err != nil {
		fmt.Println(err)
		return 125
	}
	return result.Code
}

// A screen is a terminal with an interactive shell.
type screen struct {
	*testing.T
	keys *os.File
	mu   sync.Mutex
	text strings.Builder
}

func newScreen(t *testing.T) *screen {
	outside, inside, err := terminal.OpenPair()
	require.NoError(t, err)
	s := &screen{T: t, keys: outside}
	shell := exec.Command("bash", "--norc", "--noprofile", "-i")
	shell.Env = append(os.Environ(), "PS1=$ ")
	shell.Stdin, shell.Stdout, shell.Stderr = inside, inside, inside
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, shell.Start())
	inside.Close()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := outside.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		outside.Close() // the kernel hangs up
		late := time.AfterFunc(await.Patience, func() { _ = shell.Process.Kill() })
		defer late.Stop()
		_ = shell.Wait()
	})
	return s
}

// types writes keys, and waits for what they bring about.
func (s *screen) types(keys, want string) {
	s.Helper()
	s.mu.Lock()
	s.text.Reset()
	s.mu.Unlock()
	_, err := s.keys.WriteString(keys)
	require.NoError(s, err)
	seen := regexp.MustCompile(want)
	defer func() {
		if s.Failed() {
			s.Logf("on the screen: %q", s.text.String())
		}
	}()
	await.Until(s, want+" is on the screen", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return seen.MatchString(s.text.String())
	})
}

// TestJobControl stops a command by its key, and lets it go on in the foreground, and after a while in
// the background: where it wants the keys it is stopped until it has them.
func TestJobControl(t *testing.T) {
	m := newMachine(t)
	self, err := os.Executable()
	require.NoError(t, err)
	start := self + " job " + m.root + " " + strings.TrimSuffix(m.system.exec, "/sandbox-exec")
	s := newScreen(t)
	const prompt = `\$ $` // before it what is typed may be lost
	s.types(start+" /bin/sh -c 'echo be''gun; read x; echo got $x; exit 7'\r", `begun\s*\n`)
	s.types("\x1a", `(?s)Stopped.*`+prompt)
	s.types("echo he''re\r", `(?s)here\r\n.*`+prompt)
	s.types("fg\r", `job .*\n`)
	s.types("word\r", `(?s)got word.*`+prompt)
	s.types("echo status $?\r", `(?s)status 7.*`+prompt)

	// Begun in the background, it is stopped when it reads.
	s.types(start+" /bin/sh -c 'echo be''gun; read x; echo got $x' &\r", `begun\s*\n`)
	s.types("until jobs -s | grep ' job '; do sleep 0.05; done\r", `(?s)Stopped.*`+prompt) // the shell hears of it by and by
	s.types("fg\r", `job .*\n`)
	s.types("again\r", `(?s)got again.*`+prompt)
	// Its end is known, also without a stop.
	s.types(start+" /bin/sh -c 'echo be''gun; exit 3'; echo status $?\r", "status 3")
}
