package terminal

import (
	"context"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// asked is what came of a question.
type asked struct {
	key byte
	err error
}

func (r *Relay) askTest(ctx context.Context) <-chan asked {
	done := make(chan asked, 1)
	go func() {
		key, err := r.Ask(ctx, "may it?\ny or n", "yn")
		done <- asked{key, err}
	}()
	return done
}

// answer types a key until it is taken for an answer: on a busy machine the relay may hear of
// one, or of the question, so late that the key is none. It returns how often it has typed.
func (h *host) answer(key string, want byte, done <-chan asked) (typed int) {
	h.t.Helper()
	for end := await.Deadline(); time.Now().Before(end); typed++ {
		select {
		case got := <-done:
			require.Equal(h.t, asked{key: want}, got, "%q", key)
			return typed
		case <-time.After(deafFor + 200*time.Millisecond):
			h.typed(key)
		}
	}
	require.FailNow(h.t, "no answer", "%q", key)
	return typed
}

// TestListen types at a question, by a clock of its own: what was typed or pasted before is no
// answer, nor what somebody types for the command, or a terminal says in two pieces.
func TestListen(t *testing.T) {
	const pause = "" // as long as the command's user has to be silent
	for _, c := range []struct {
		typed []string
		want  byte
	}{
		{[]string{pause, "n"}, 'n'}, {[]string{pause, "Y"}, 'y'}, {[]string{pause, "\x1b"}, 0}, {[]string{pause, "\x03"}, 0},
		{[]string{"y", "y", pause, "x", "\x1b[200~y\x1b[201~", "yy", "\x1b[M y!", pause, "\x1b[121u"}, 'y'},
		{[]string{pause, "t", "y", "p", "i", "n", "g", pause, "n"}, 'n'},     // for the command: who types did not look
		{[]string{pause, "\x1b[?2026;2$", "y", pause, "n"}, 'n'},             // a terminal's own answer, in two pieces
		{[]string{pause, "x", "\x03"}, 0}, {[]string{pause, "x", "\x1b"}, 0}, // a no need not wait
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &Relay{hungUp: make(chan struct{}), ended: make(chan struct{})}
			typed, answered := make(chan []byte), make(chan byte, 1)
			go func() { answered <- r.listen(t.Context(), typed, "yn") }()
			synctest.Wait()
			for _, text := range c.typed {
				require.Empty(t, answered, "%q", c.typed)
				if text == pause {
					time.Sleep(deafFor)
				} else {
					typed <- []byte(text)
					time.Sleep(20 * time.Millisecond)
				}
			}
			synctest.Wait()
			require.Len(t, answered, 1, "%q", c.typed)
			require.Equal(t, c.want, <-answered, "%q", c.typed)
		})
	}
}

// TestAsk has a program on the main screen: the question has the other one to
// itself, output and keys wait.
func TestAsk(t *testing.T) {
	h, r, slave := joined(t, Options{})
	modes, _ := getModes(int(slave.Fd()))
	modes = RawModes(modes)
	modes.Cc[unix.VMIN] = 1
	require.NoError(t, setModes(int(slave.Fd()), modes))
	_, err := slave.WriteString("before\n")
	require.NoError(t, err)
	h.expect("before\n")
	more := 0 // keys that came when the question had its answer, and so for the program
	for key, want := range map[string]byte{"n": 'n', "Y": 'y', "\x1b": 0} {
		done := r.askTest(t.Context())
		h.expect("\x1b[?1049h\x1b[?6l\x1b[m\x0f\x1b(B\x1b[H\x1b[2Jmay it?\r\ny or n")
		h.typed("x") // for the program, a moment too late
		_, err := slave.WriteString("meanwhile\n")
		require.NoError(t, err)
		more += h.answer(key, want, done) - 1
		require.Equal(t, "", h.expect("\x1b[2J\x1b[?1049l"), "nothing of the program's between")
		h.expect("meanwhile\n")
	}
	h.typed("k")
	got := ""
	for buf := make([]byte, 10); !strings.HasSuffix(got, "k"); {
		n, err := slave.Read(buf)
		require.NoError(t, err)
		got += string(buf[:n])
	}
	require.LessOrEqual(t, len(got), 1+more, "no key of an answer, and each key behind it, is the program's: %q", got)
	require.NotContains(t, got, "x")

	ctx, cancel := context.WithCancel(t.Context())
	done := r.askTest(ctx)
	h.expect("y or n")
	cancel()
	require.Equal(t, asked{}, <-done, "the end of the time")
	h.expect("\x1b[?1049l")

	_, err = slave.WriteString("then \x1b]0;half a title")
	require.NoError(t, err)
	h.expect("then ") // the relay has what was written at once
	require.Equal(t, asked{err: ErrCannotAsk}, <-r.askTest(t.Context()), "in the middle of a sequence")
	_, err = slave.WriteString("\a\x1b[?2026h")
	require.NoError(t, err)
	h.expect("\x1b[?2026h")
	done = r.askTest(t.Context())
	h.expect("\x1b[?2026l\x1b[?1049h")
	r.Close(0)
	require.Equal(t, asked{}, <-done, "the end of the relay")
	h.expect("\x1b[?1049l\x1b[?2026h")
	require.Equal(t, asked{err: ErrCannotAsk}, <-r.askTest(t.Context()))
}

// TestAskFullScreen has a program that draws on the alternate screen, and again
// when the window's size changes.
func TestAskFullScreen(t *testing.T) {
	h, r, slave := joined(t, Options{})
	cmd := exec.Command("bash", "-c", `trap 'printf "drawn in %s." "$(stty size)"' WINCH; printf '\033[?1049hdrawn'; while :; do sleep 0.01; done`)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	h.expect("drawn")
	done := r.askTest(t.Context())
	h.expect("\x1b7\x1b[?6l\x1b[m\x0f\x1b(B\x1b[H\x1b[2Jmay it?\r\ny or n")
	h.answer("y", 'y', done)
	require.Equal(t, "", h.expect("\x1b[2J\x1b8"))
	h.expect("drawn in 33 77.") // a slow one does not see the size between, for which alone the kernel tells it of one
}

// What a question ends with is what matters of it: a command chooses the names in
// it, and could have the window cut them where they look harmless.
func TestAskLong(t *testing.T) {
	name := "good.example." + strings.Repeat("a", 60) + ".evil.example"
	window := &unix.Winsize{Row: 10, Col: 41}
	for _, full := range []bool{true, false} {
		enter, leave, err := new(screen).around(full, "may it reach "+name+"? [y]es, [n]o\n\nmore", window)
		require.NoError(t, err)
		require.Contains(t, strings.ReplaceAll(string(enter), "\r\n", ""), name+"? [y]es, [n]o")
		require.Contains(t, string(leave), "\x1b[2J", "no line of it is left")
		_, _, err = new(screen).around(full, "may it reach "+name+"?", &unix.Winsize{Row: 2, Col: 41})
		require.ErrorIs(t, err, ErrCannotAsk, "half of it is worse than none")
		_, _, err = new(screen).around(full, "may it?\n"+strings.Repeat("more\n", 99), &unix.Winsize{Row: 2, Col: 41})
		require.NoError(t, err, "of what stands below as much as there is room for")
	}
}

func FuzzKeyOf(f *testing.F) {
	for _, s := range []string{"y", "Y", "\x1b[121u", "\x1b[121;2u", "\x1b[121;5u", "\x1b[u", "yy", "\x03"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		key := keyOf(b)
		if key >= 'A' && key <= 'Z' {
			t.Fatalf("%q: %q", b, key)
		}
		if key != 0 && len(b) != 1 && (!strings.HasPrefix(string(b), "\x1b[") || !strings.HasSuffix(string(b), "u")) {
			t.Fatalf("%q is taken for %q", b, key)
		}
	})
}
