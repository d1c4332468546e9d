package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// away starts a run with --detach that no terminal has, and ends it with the test.
func (p *pupil) away(args ...string) (id string) {
	p.t.Helper()
	stdout, stderr, code := p.pccrun(append([]string{"-q", "--detach"}, args...)...)
	require.Equal(p.t, 0, code, stderr)
	require.Empty(p.t, stderr)
	id = strings.TrimSuffix(stdout, "\n")
	require.Regexp(p.t, `^\d{8}T\d{6}Z-[0-9a-f]{8}$`, id, "the id alone")
	p.t.Cleanup(func() { p.ends(id) })
	return id
}

// watches attaches without a terminal.
func (p *pupil) watches(id string) (cmd *exec.Cmd, out *printedText) {
	p.t.Helper()
	cmd, out = p.command("attach", id), &printedText{}
	cmd.Stdout = out
	require.NoError(p.t, cmd.Start())
	return cmd, out
}

// printedText is what a process has printed by now.
type printedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *printedText) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printedText) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// ends ends a run, if it goes on, and waits for what held its terminal.
func (p *pupil) ends(id string) {
	_, _, _ = p.pccrun("kill", "--force", id)
	await.Until(p.t, "what held it has ended", func() bool { return p.holds(".local/state/pccrun/sessions/" + id + "/detach.json") })
}

// A run goes on without the process that has started it, whoever looks: what it printed is there, its end, and its status.
//
//test:root
func TestDetached(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	id := p.away("--", "sh", "-c", "echo before; read line || echo nothing to read; until [ -e go ]; do sleep .05; done; echo after >&2; exit 7")
	ps, _, _ := p.pccrun("ps")
	require.Contains(t, ps, id)
	watch, seen := p.watches(id)
	p.write("project/go", "", 0o644)
	require.NoError(t, ignoreExit(watch.Wait()))
	require.Equal(t, 7, watch.ProcessState.ExitCode())
	require.Equal(t, "before\nnothing to read\nafter\n", seen.String())

	stdout, stderr, code := p.pccrun("attach", id)
	require.Equal(t, 7, code)
	require.Equal(t, "before\nnothing to read\nafter\n", stdout)
	require.Contains(t, stderr, "has ended with status 7")
	_, stderr, code = p.pccrun("detach", id)
	require.Equal(t, failed, code)
	require.Contains(t, stderr, "has ended")
	ps, _, _ = p.pccrun("ps", "--all")
	require.Regexp(t, id+` +ended 7`, ps)

	for range 10 {
		short := p.away("--", "sh", "-c", "exit 5")
		await.Until(t, "it has ended", func() bool { return p.holds(".local/state/pccrun/sessions/" + short + "/detach.json") })
		_, _, code = p.pccrun("attach", short)
		require.Equal(t, 5, code, "one that is over at once is there too")
	}
}

// What is refused is refused before the caller goes, with the status and the words of a run that is not detached; nothing stays.
//
//test:root
func TestDetachedRefused(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	p.write("project/text", "no program", 0o644)
	for _, line := range []string{
		"-- nonesuch", "-- ./text", "--memory 1 -- true", "--profile nonesuch -- true", "--hide /nonesuch/x --write / -- true", "--provider native --runtime runc -- true", "--allow-missing nonesuch -- true",
	} {
		args := strings.Fields(line)
		_, want, status := p.pccrun(args...)
		require.NotEqual(t, 0, status, line)
		stdout, stderr, code := p.pccrun(append([]string{"--detach"}, args...)...)
		require.Equal(t, status, code, line)
		require.Equal(t, want, stderr, line)
		require.Empty(t, stdout, line)
	}
	for line, want := range map[string]string{
		"--detach --pass-fd 3 -- true": "flag --detach: not with", "--detach --events fd:3 -- true": "flag --detach: not with", "-t -- true": "flag -t: goes with --detach", "--detach --json -- true": "flag --json",
	} {
		_, stderr, code := p.pccrun(strings.Fields(line)...)
		require.Equal(t, refused, code, line)
		require.Contains(t, stderr, want, line)
	}
	sessions, err := filepath.Glob(p.home + "/.local/state/pccrun/sessions/2*")
	require.NoError(t, err)
	require.Empty(t, sessions)
	for _, verb := range []string{"attach", "detach"} {
		_, stderr, code := p.pccrun(verb)
		require.Equal(t, failed, code)
		require.Contains(t, stderr, "nothing that was started with --detach runs in this workspace")
		_, stderr, code = p.pccrun(verb, "nonesuch")
		require.Equal(t, failed, code)
		require.Contains(t, stderr, "no such session")
	}
}

// Of what is printed while nobody is attached the end is kept, in bounded room.
func TestDetachedFlood(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	id := p.away("--", "sh", "-c", "head -c 200000000 /dev/zero | tr '\\0' x | fold -w 99; echo the end; echo > printed; until [ -e go ]; do sleep .05; done")
	dir := p.home + "/.local/state/pccrun/sessions/" + id
	await.Until(t, "all is printed", func() bool { return p.holds("project/printed") })
	watch, out := p.watches(id)
	await.Until(t, "the end is shown", func() bool { return strings.HasSuffix(out.String(), "the end\n") })
	p.write("project/go", "", 0o644)
	require.NoError(t, watch.Wait())
	require.LessOrEqual(t, len(out.String()), 256<<10)
	await.Until(t, "its end", func() bool { return p.holds(".local/state/pccrun/sessions/" + id + "/detach.json") })
	text, err := os.ReadFile(dir + "/screen")
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix(text, []byte("xthe end\n")))
	require.LessOrEqual(t, len(text), 256<<10)
	require.Greater(t, len(text), 127<<10)
}

// The sandbox has no way to the socket by which its terminal is reached. Outside, the control, it answers.
//
//test:root
func TestDetachedSocket(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	program, err := exec.LookPath("dial")
	require.NoError(t, err)
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	p.write("project/dial", string(text), 0o755)
	id := p.away("--", "sh", "-c", "until [ -s go ]; do sleep .05; done; ./dial $(cat go) && echo reached; ls $(dirname $(cat go)) && echo seen; echo tried; exec sleep 600")
	socket := p.home + "/.local/state/pccrun/sessions/" + id + "/terminal"
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	control := exec.Command(program, socket)
	answer := &printedText{}
	control.Args[0], control.Stdout = "dial", answer
	require.NoError(t, control.Start())
	await.Until(t, "outside it answers", func() bool { return strings.Contains(answer.String(), "Greeting") })
	require.NoError(t, control.Process.Kill())
	_ = control.Wait()
	other := exec.Command("unshare", "--user", program, socket)
	if os.Getuid() != 0 { // a user namespace of the user's own; root is another user's there
		out, err := other.CombinedOutput()
		if err == nil {
			require.Contains(t, string(out), "another user namespace")
		}
	}
	p.write("project/go", socket, 0o644)
	watch, out := p.watches(id)
	await.Until(t, "it has tried", func() bool { return strings.Contains(out.String(), "tried\n") })
	require.NotContains(t, out.String(), "reached")
	require.NotContains(t, out.String(), "seen")
	p.ends(id)
	require.NoError(t, ignoreExit(watch.Wait()))
	require.Equal(t, 143, watch.ProcessState.ExitCode())
}

// Who kills the launcher kills the run, and who kills what holds the terminal too. Both are seen.
//
//test:root
func TestDetachedKilled(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	parent := func(pid int) int {
		n, _ := strconv.Atoi(statsOfAll()[pid][1])
		return n
	}
	for _, holder := range []bool{false, true} {
		stdout, stderr, code := p.pccrun("-q", "--detach", "-t", "--", "sh", "-c", "echo here; exec sleep 600")
		require.Equal(t, 0, code, stderr)
		id := strings.TrimSuffix(stdout, "\n")
		ps, _, _ := p.pccrun("ps", "--json")
		_, rest, _ := strings.Cut(ps, `"pid": `)
		launcher, err := strconv.Atoi(rest[:strings.IndexAny(rest, ",\n")])
		require.NoError(t, err)
		watch, seen := p.watches(id)
		await.Until(t, "the command prints", func() bool { return strings.Contains(seen.String(), "here") })
		victim := launcher
		if holder {
			victim = parent(launcher)
		}
		require.NoError(t, syscall.Kill(victim, unix.SIGKILL))
		_ = watch.Wait()
		await.Until(t, "the launcher is gone", func() bool {
			stat := statsOfAll()[launcher]
			return stat == nil || stat[0] == "Z"
		})
		if !holder {
			await.Until(t, "its end is written down", func() bool { return p.holds(".local/state/pccrun/sessions/" + id + "/detach.json") })
			stdout, _, code = p.pccrun("attach", id)
			require.Equal(t, 137, code)
			require.Contains(t, stdout, "here")
			ps, _, _ = p.pccrun("ps")
			require.Contains(t, ps, "crashed")
		} else {
			await.Until(t, "it is no running session", func() bool {
				ps, _, _ = p.pccrun("ps")
				return !strings.Contains(ps, "running")
			})
			_, stderr, code = p.pccrun("attach", id)
			require.Equal(t, failed, code)
			require.Contains(t, stderr, "what held its terminal was killed")
		}
		_, stderr, code = p.pccrun("gc", "--all")
		require.Equal(t, 0, code, stderr)
		ps, _, _ = p.pccrun("ps", "--all")
		require.NotContains(t, ps, id)
	}
}

// A run's terminal goes on when the one it was started at is gone, and comes to another, of its size, with what it showed.
// A third takes it over.
//
//test:root
func TestAttachTerminal(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	p.write("project/inside.sh", `stty size
printf '\033[?2004ha\033[cb\n'
trap 'stty size' WINCH
while :; do if read line; then echo "read $line."; [ "$line" != end ] || exit 6; fi; done
`, 0o644)
	first := newSeat(t, p)
	first.typed("stty rows 33 cols 111; pccrun -q --detach -- sh inside.sh > id; echo status $?; pccrun attach\n")
	first.awaits(`status 0`)
	first.awaits(`33 111`)
	first.typed("words\n")
	first.awaits(`read words\.`)
	text, err := os.ReadFile(p.dir + "/id")
	require.NoError(t, err)
	id := strings.TrimSuffix(string(text), "\n")
	t.Cleanup(func() { p.ends(id) })
	first.typed("\x10")
	first.typed("\x11")
	first.awaits(`detached; it goes on`)
	first.typed("echo status $?; pccrun attach --detach-keys ctrl-x " + id + "\n")
	first.awaits(`read words\.[\s\S]+read words\.`)
	require.NoError(t, first.master.Close(), "the terminal is gone")

	p.home += "/second"
	require.NoError(t, os.Mkdir(p.home, 0o755))
	second := newSeat(t, p)
	p.home = filepath.Dir(p.home)
	second.typed("stty rows 20 cols 60; stty -g > before; pccrun attach " + id + "\n")
	second.awaits(`33 111[\s\S]+read words\.`)
	second.awaits(`20 60`)
	require.Contains(t, second.all(), "\x1b[?2004h")
	require.Contains(t, second.all(), "ab\r\n", "what was asked is not asked again")
	second.typed("more\n")
	second.awaits(`read more\.`)

	p.home += "/third"
	require.NoError(t, os.Mkdir(p.home, 0o755))
	third := newSeat(t, p)
	p.home = filepath.Dir(p.home)
	third.typed("stty rows 20 cols 60; pccrun attach " + id + "\n")
	second.awaits(`another terminal has attached, and this one is detached; it goes on`)
	second.forget()
	second.typed("echo status $?; stty -g > after; cmp before after && echo the \"same.\"\n")
	second.awaits(`status 0`)
	second.awaits(`the same\.`)
	third.awaits(`read more\.[\s\S]+20 60`) // and 19 60 before, on a machine that is not busy
	second.typed("pccrun detach\n")
	third.awaits(`pccrun detach has detached this terminal; it goes on`)
	third.forget()
	third.typed("pccrun attach\n")
	third.awaits(`read more\.`)
	third.typed("end\n")
	third.awaits(`read end\.[\s\S]+at the prompt:`)
	third.typed("echo status $?\n")
	third.awaits(`status 6`)
	for _, again := range []string{"attach ", "logs --output "} {
		third.forget()
		third.typed("pccrun " + again + id + "; echo over\n")
		third.awaits(`read end\.[\s\S]+over\r`)
		require.Contains(t, third.all(), "ab\r")
		require.NotContains(t, third.all(), "\x1b[c", "what was asked is not asked again")
	}
}
