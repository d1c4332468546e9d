package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// flood makes forty protected names at once, again and again, until a file says that
// it is enough, and counts how often it was made to go on.
const flood = `n=0 i=0
trap 'n=$((n+1))' CONT
for k in 1 2 3 4; do mkdir -p $k/0 $k/1 $k/2 $k/3 $k/4 $k/5 $k/6 $k/7 $k/8 $k/9; done
echo begun.
while [ ! -e enough ]; do
	for d in */*/; do : > $d.envrc; done
	i=$((i+1))
	[ $((i % 20)) -ne 0 ] || echo "went on $n times."
done
echo "over, status 0"
`

// For so many names a guard stops the run until all of them are quarantined. A shell
// outside is told nothing of it, and Ctrl-Z stops the run while that goes on, and
// fg lets it go on, on a machine that has more to do than it can.
func TestFloodAtTerminal(t *testing.T) {
	if os.Getenv("PCCRUN_LONG") == "" {
		t.Skip("needs make test-long")
	}
	p := newPupil(t)
	script := fmt.Sprintf("flood-%d.sh", os.Getpid())
	p.write("project/"+script, flood, 0o644)
	for range 4 {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		busy.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		require.NoError(t, busy.Start())
		t.Cleanup(func() { busy.Process.Kill(); busy.Wait() })
	}
	s := newSeat(t, p)
	s.typed("PATH=$HOME/bin:$PATH\nunset ENV\npccrun -- sh " + script + "\n")
	s.awaits(`begun\.`)
	s.shows(func(shown string) bool { return wentOn(shown) >= 10 }, "the guard has stopped it ten times")
	require.NotRegexp(t, `(?i)stopped`, s.all(), "told of by the shell")
	lost := 0
	for range 5 {
		s.forget()
		for pressed := 1; ; pressed++ { // what is typed while all are stopped does not outlast that
			require.Less(t, pressed, 10, "Ctrl-Z does not stop it: %q", s.all())
			s.typed("\x1a")
			if s.within(2*time.Second, func(shown string) bool { return regexp.MustCompile(`(?i)stopped`).MatchString(shown) }) {
				break
			}
			lost++
		}
		for range 20 {
			for pid, state := range statesOf(script) {
				require.Equal(t, "T", state, "process %d runs while the run is stopped", pid)
			}
			time.Sleep(10 * time.Millisecond)
		}
		s.forget()
		s.typed("fg\n")
		s.awaits(`went on \d+ times\.`)
	}
	t.Logf("Ctrl-Z that was lost: %d", lost)
	s.forget()
	require.NoError(t, os.WriteFile(p.dir+"/enough", nil, 0o644))
	s.awaits(`over, status 0`)
	s.awaits(`quarantined: `)
	s.typed("echo end of $?.\n")
	s.awaits(`end of 0\.`)
	require.NotRegexp(t, `(?i)stopped`, s.all())
	require.Empty(t, statesOf(script))
}

// A shell inside that controls jobs does not take a job that a guard stops for one that
// Ctrl-Z has stopped: it is stopped before its job is.
func TestFloodUnderShell(t *testing.T) {
	p := newPupil(t)
	p.write("project/burst.sh", "for k in 1 2 3 4; do mkdir -p $k/0 $k/1 $k/2 $k/3 $k/4 $k/5 $k/6 $k/7 $k/8 $k/9; done\n"+
		"i=0\nwhile [ $i -lt 60 ]; do\nfor d in */*/; do : > $d.envrc; done\ni=$((i+1))\ndone\n", 0o644)
	s := newSeat(t, p)
	s.typed("$HOME/bin/pccrun -- sh -i\n")
	s.typed("echo within $$.\n")
	s.awaits(`within \d+\.`)
	for range 20 {
		s.forget()
		s.typed("sh burst.sh; echo status $?.\n")
		s.awaits(`status \d+\.`)
		require.Contains(t, s.all(), "status 0.", s.all())
	}
	s.forget()
	s.typed("exit\n")
	s.awaits(`quarantined: `)
	s.typed("echo end of $?.\n")
	s.awaits(`end of \d+\.`)
}

// A job that Ctrl-Z has stopped inside stays so when a guard lets all go on, and so does one
// that is stopped soon after: it was continued in its shell's background, up to four times.
func TestFloodSparesStopped(t *testing.T) {
	p := newPupil(t)
	p.write("project/burst.sh", "for k in $(seq 40); do (mkdir -p $k; cd $k; mkdir -p 0 1 2 3 4 5 6 7 8 9); done\n"+
		"n=0\ntrap 'n=$((n+1))' CONT\nwhile [ $n -eq 0 ]; do for d in */*/; do : > $d.envrc; done; done\necho \"burst went on $n times.\"\n", 0o644)
	p.write("project/count.sh", "echo counts.\nwhile :; do echo >> $1; sleep 0.02; done\n", 0o644)
	s := newSeat(t, p)
	s.typed("$HOME/bin/pccrun -- sh -i\n")
	s.typed("echo within $$.\n")
	s.awaits(`within \d+\.`)
	size := func(name string) int64 {
		st, err := os.Stat(p.dir + "/" + name)
		require.NoError(t, err)
		return st.Size()
	}
	stopped := func(name string) int64 {
		s.forget()
		s.typed("sh count.sh " + name + "\n")
		s.awaits(`counts\.`)
		require.Eventually(t, func() bool { _, err := os.Stat(p.dir + "/" + name); return err == nil }, time.Minute, time.Millisecond)
		s.typed("\x1a")
		s.awaits(`(?i)stopped`)
		return size(name)
	}
	before := stopped("before")
	s.forget()
	s.typed("sh burst.sh\n")
	s.awaits(`burst went on [1-9]\d* times\.`)
	after := stopped("after")
	time.Sleep(6 * time.Second) // the last reminder that the guard gives a run that it has let go on comes after 5
	// Told to stop again, it may get a turn in between.
	require.Less(t, size("before"), before+20, "it was stopped before the flood, and goes on")
	require.Less(t, size("after"), after+20, "it was stopped after the flood, and goes on")
	s.forget()
	s.typed("kill -CONT %1; echo continued.\n")
	s.awaits(`continued\.`)
	now := size("before")
	require.Eventually(t, func() bool { return size("before") > now }, time.Minute, 10*time.Millisecond, "control")
}

// wentOn returns how often the flood went on, as it last said.
func wentOn(shown string) int {
	said := regexp.MustCompile(`went on (\d+) times\.`).FindAllStringSubmatch(shown, -1)
	if len(said) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(said[len(said)-1][1])
	return n
}

// statesOf returns the states of the shells that run a script, by process.
func statesOf(script string) map[int]string {
	states := map[int]string{}
	for pid, f := range statsOfAll() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && string(line) == "sh\x00"+script+"\x00" {
			states[pid] = f[0]
		}
	}
	return states
}

// statsOfAll returns what proc(5) has in stat, from the state on, of each process.
func statsOfAll() map[int][]string {
	all := map[int][]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); err == nil && len(f) > 3 {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			all[pid] = f
		}
	}
	return all
}

// A seat is a terminal with a shell that controls jobs; pccrun is in the bin of its home.
type seat struct {
	t      *testing.T
	master *os.File
	mu     sync.Mutex
	shown  strings.Builder
}

func newSeat(t *testing.T, p *pupil) *seat {
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(p.home+"/bin", 0o755))
	require.NoError(t, os.Symlink(self, p.home+"/bin/pccrun"))
	fd, slave := newTerminal(t)
	require.NoError(t, unix.SetNonblock(fd, true))
	s := &seat{t: t, master: os.NewFile(uintptr(fd), "master")}
	defer slave.Close()
	shell := exec.Command("/bin/sh", "-i")
	shell.Dir, shell.Env = p.dir, append(p.env, "PS1=at the prompt: ", "ENV=")
	shell.Stdin, shell.Stdout, shell.Stderr = slave, slave, slave
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, shell.Start())
	t.Cleanup(func() {
		shell.Process.Kill()
		s.master.Close() // and so its jobs hang up
		shell.Wait()
		session := strconv.Itoa(shell.Process.Pid)
		for pid, f := range statsOfAll() { // those in the background the shell would have told
			if f[3] == session {
				_ = syscall.Kill(pid, syscall.SIGHUP)
			}
		}
		require.Eventually(t, func() bool { // a run records its end in what is to be removed
			for _, f := range statsOfAll() {
				if f[3] == session {
					return false
				}
			}
			return true
		}, time.Minute, 10*time.Millisecond, "its jobs go on")
	})
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := s.master.Read(b)
			s.mu.Lock()
			s.shown.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *seat) typed(keys string) {
	s.t.Helper()
	_, err := s.master.WriteString(keys)
	require.NoError(s.t, err)
}

// all is what has been shown since it was last forgotten.
func (s *seat) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

func (s *seat) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown.Reset()
}

func (s *seat) within(d time.Duration, enough func(shown string) bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if enough(s.all()) {
			return true
		}
	}
	return false
}

func (s *seat) shows(enough func(shown string) bool, what string) {
	s.t.Helper()
	if !s.within(time.Minute, enough) {
		require.FailNow(s.t, "not shown", "%s: %q", what, s.all())
	}
}

func (s *seat) awaits(pattern string) {
	s.t.Helper()
	s.shows(regexp.MustCompile(pattern).MatchString, pattern)
}
