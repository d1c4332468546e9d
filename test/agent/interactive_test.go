//go:build linux

package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// What Claude Code asks before it works, without its spaces, and the keys that
// agree.
var questions = []question{
	{"theme", "Choosethetextstyle", "\r"},
	{"notes", "PressEntertocontinue", "\r"},
	{"trust", "Yes,Itrustthisfolder", "\x1b[B|\r"},
}

type question struct{ name, screen, keys string }

// ready is on the screen when it waits for work.
const ready = "shift+tabtocycle"

// TestInteractive is a developer who works with Claude Code on a terminal: what he
// has answered once he is not asked again, whether it trusts the workspace is no question in
// the sandbox, and the host's own Claude Code knows nothing of it.
func TestInteractive(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	program, err := claude.Fetch(t.Context())
	if err != nil {
		t.Skip("needs claude code:", err)
	}
	pccrun := host.Program(t)
	all := []string{"theme", "notes", "trust"}
	for name, c := range map[string]struct {
		before        []string // the command
		first, second []string // what is asked
	}{
		"inside":                       {[]string{pccrun, "--"}, all[:2], nil},
		"outside":                      {nil, all, nil},
		"a control: no answer is kept": {[]string{pccrun, "--fresh-home", "--"}, all[:2], all[:2]},
	} {
		t.Run(name, func(t *testing.T) {
			project := newProject(t)
			require.NoError(t, project.Install(program))
			args := append(slices.Clip(c.before), "claude")
			require.Equal(t, c.first, converse(t, project, args))
			require.Equal(t, c.second, converse(t, project, args))
			text, err := os.ReadFile(filepath.Join(project.Home, ".claude.json"))
			if name != "outside" {
				require.ErrorIs(t, err, os.ErrNotExist, "nothing comes to be there")
				return
			}
			require.NoError(t, err)
			require.Contains(t, string(text), `"hasTrustDialogAccepted": true`)
		})
	}
}

var sequences = regexp.MustCompile(`\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[()].|\x1b[@-Z=>78]|\s`)

// converse runs a command on a terminal until it waits for work, agrees to what it
// asks, and returns what that was.
func converse(t *testing.T, p Project, args []string) (asked []string) {
	t.Helper()
	// No service is asked before the first message in this mode.
	variables := []string{"CLAUDE_CODE_USE_BEDROCK=1", "CLAUDE_CODE_SKIP_BEDROCK_AUTH=1", "ANTHROPIC_BEDROCK_BASE_URL=http://127.0.0.1:9", "TERM=xterm"}
	name, args := args[0], args[1:]
	if name == "claude" { // outside, where what it makes in /tmp would stay
		name = filepath.Join(p.Home, ".local", "bin", "claude")
		variables = append(variables, "CLAUDE_CODE_TMPDIR="+t.TempDir())
	}
	cmd := p.Command(name, args...)
	cmd.Env = append(slices.DeleteFunc(cmd.Env, func(e string) bool { return strings.HasPrefix(e, "ANTHROPIC_API_KEY=") }), variables...)
	cmd.Env = append(cmd.Env, "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
	master := terminal(t, cmd)
	require.NoError(t, cmd.Start())
	cmd.Stdin.(*os.File).Close()
	pieces := make(chan string, 64)
	go func() {
		defer close(pieces)
		b := make([]byte, 64<<10)
		for {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			pieces <- string(b[:n])
		}
	}()
	shown := ""
	defer func() {
		if t.Failed() {
			t.Logf("%q", sequences.ReplaceAllString(shown, ""))
		}
	}()
	read := func() { shown += await.Receive(t, "it waits for work", pieces) }
	for {
		text := sequences.ReplaceAllString(shown, "")
		if strings.Contains(text, ready) {
			break
		}
		i := slices.IndexFunc(questions, func(q question) bool { return !slices.Contains(asked, q.name) && strings.Contains(text, q.screen) })
		if i < 0 {
			read()
			continue
		}
		asked = append(asked, questions[i].name)
		for keys := range strings.SplitSeq(questions[i].keys, "|") {
			for drawing := true; drawing; { // it drops keys while it draws
				select {
				case piece, more := <-pieces:
					require.True(t, more, "it ended")
					shown += piece
				case <-time.After(time.Second):
					drawing = false
				}
			}
			for drawn, late := false, await.Deadline(); !drawn; { // it draws what a key brings about
				require.True(t, time.Now().Before(late), "it takes no key")
				_, err := master.WriteString(keys)
				require.NoError(t, err)
				select {
				case piece, more := <-pieces:
					require.True(t, more, "it ended")
					shown, drawn = shown+piece, true
				case <-time.After(20 * time.Second): // a busy machine was still at the screen before, and the key is dropped
				}
			}
		}
	}
	await.Until(t, "it keeps the answers", func() bool { return p.answered(len(asked) == len(questions)) || slices.Contains(args, "--fresh-home") })
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	go func() {
		for range pieces {
		}
	}()
	_ = cmd.Wait() // by a signal
	master.Close()
	return asked
}

// answered reports whether the agent has written that its questions were answered, and that it trusts the workspace.
func (p Project) answered(trusts bool) bool {
	files, _ := filepath.Glob(filepath.Join(p.Home, ".local/state/pccrun/homes/*/home/.claude.json"))
	return slices.ContainsFunc(append(files, filepath.Join(p.Home, ".claude.json")), func(name string) bool {
		text, _ := os.ReadFile(name)
		return strings.Contains(string(text), `"hasCompletedOnboarding": true`) && (!trusts || strings.Contains(string(text), `"hasTrustDialogAccepted": true`))
	})
}

// terminal gives a command a terminal of its own, and returns the other side.
func terminal(t *testing.T, cmd *exec.Cmd) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 140}))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	return master
}
