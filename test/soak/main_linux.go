// Command soak is `make soak`: it launches pccrun thousands of times, in a
// row, at once, and to be killed at random moments, has many tasks done at
// once, and then looks for what is left.
//
// It promises that nothing that a launch made is passed over: it is the reaper
// of all that its launchers leave, whatever its name or session, so a process
// that outlives its launcher is its child; sessions are kept in directories of
// its own; mounts are counted in its own table, control groups by the names of
// its launchers.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/groups"
	"github.com/pccrun/pccrun/test/internal/orphans"
)

const usage = `usage: go run ./test/soak [flags]

Launches pccrun over and over, and says what is left of it.

  -row N       launches in a row (default 10000)
  -at-once N   launches that stand at the same time (default 1000)
  -kills N     launchers that are killed at random moments (default 1000)
  -tasks N     tasks, eight at a time (default 200)
  -limits      with control groups, where this user may make them
  -program P   pccrun (default bin/pccrun)
`

// patience is how long the kernel may take to end what a killed launcher
// leaves, on a machine that does other work.
const patience = 20 * time.Second

// A soak is one run of the command.
type soak struct {
	program string
	limits  bool
	dir     string // of its own: homes, state, workspace
	mu      sync.Mutex
	pids    map[int]bool // of launchers
	stood   []string     // control groups that are others'
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "test/soak:", err)
		os.Exit(1)
	}
}

func run() error {
	var row, atOnce, kills, tasks int
	s := soak{pids: map[int]bool{}}
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.IntVar(&row, "row", 10000, "")
	flag.IntVar(&atOnce, "at-once", 1000, "")
	flag.IntVar(&kills, "kills", 1000, "")
	flag.IntVar(&tasks, "tasks", 200, "")
	flag.BoolVar(&s.limits, "limits", false, "")
	flag.StringVar(&s.program, "program", "bin/pccrun", "")
	flag.Parse()
	var err error
	if s.program, err = filepath.Abs(s.program); err != nil {
		return err
	}
	if err := orphans.Adopt(); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "pccrun-soak-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	if err := errors.Join(os.Chmod(s.dir, 0o755), os.MkdirAll(s.dir+"/home", 0o755), os.MkdirAll(s.dir+"/ws/.git/objects", 0o755), os.MkdirAll(s.dir+"/ws/.git/refs", 0o755),
		os.WriteFile(s.dir+"/ws/.git/HEAD", []byte("ref: refs/heads/main\n"), 0o644), os.WriteFile(s.dir+"/ws/.env", []byte("secret\n"), 0o644)); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	before, err := mounts()
	if err != nil {
		return err
	}
	s.stood = groupsOf(func(int) bool { return true })
	var problems []error
	for _, part := range []struct {
		name string
		n    int
		do   func(context.Context, int) error
	}{{"in a row", row, s.inARow}, {"at once", atOnce, s.atOnce}, {"killed", kills, s.killed}, {"tasks", tasks, s.tasks}} {
		began := time.Now()
		err := errors.Join(part.do(ctx, part.n), s.left(before))
		took := time.Since(began)
		verdict := "nothing is left"
		if err != nil {
			verdict = err.Error()
			problems = append(problems, err)
		}
		fmt.Printf("%6d %-9s %8.1f s, %6.2f ms each: %s\n", part.n, part.name, took.Seconds(), took.Seconds()*1000/float64(max(part.n, 1)), verdict)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := s.settle(); err != nil {
		fmt.Println(err)
		problems = append(problems, err)
	}
	if len(problems) > 0 {
		return errors.New("something is left, or did not start")
	}
	return nil
}

// A launch is one launcher and what it says.
type launch struct {
	*exec.Cmd
	said bytes.Buffer
}

// launch prepares one.
func (s *soak) launch(ctx context.Context, command ...string) *launch {
	args := []string{"run", "-q"}
	if s.limits {
		args = append(args, "--memory", "256m", "--pids", "64")
	}
	l := &launch{Cmd: exec.CommandContext(ctx, s.program, slices.Concat(args, []string{"--"}, command)...)}
	l.Dir = s.dir + "/ws"
	l.Env = append(os.Environ(), "HOME="+s.dir+"/home", "XDG_STATE_HOME="+s.dir+"/state", "XDG_CACHE_HOME="+s.dir+"/cache", "XDG_CONFIG_HOME="+s.dir+"/config")
	l.Stderr = &l.said
	return l
}

// start starts one.
func (s *soak) start(l *launch) error {
	if err := l.Start(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pids[l.Process.Pid] = true
	return nil
}

// inARow launches one after the other.
func (s *soak) inARow(ctx context.Context, n int) error {
	for i := range n {
		l := s.launch(ctx, "true")
		err := s.start(l)
		if err == nil {
			err = l.Wait()
		}
		if err != nil {
			return fmt.Errorf("launch %d: %w: %s", i, err, l.said.String())
		}
	}
	return nil
}

// atOnce has all stand at the same time: each waits until its input ends.
func (s *soak) atOnce(ctx context.Context, n int) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	var wait sync.WaitGroup
	var failed atomic.Int64
	var first atomic.Value
	for i := range n {
		l := s.launch(ctx, "sh", "-c", "echo up; read line")
		l.Stdin = r
		out, err := l.StdoutPipe()
		if err == nil {
			err = s.start(l)
		}
		if err != nil {
			w.Close()
			wait.Wait()
			return fmt.Errorf("launch %d: %w", i, err)
		}
		_, err = out.Read(make([]byte, 3)) // it stands
		wait.Go(func() {
			end := l.Wait()
			if err != nil || end != nil && l.ProcessState.ExitCode() != 1 { // read(1) at the end of the input
				failed.Add(1)
				first.CompareAndSwap(nil, fmt.Sprintf("%v, %v: %s", err, end, l.said.String()))
			}
		})
	}
	w.Close()
	wait.Wait()
	if bad := failed.Load(); bad > 0 {
		return fmt.Errorf("%d of %d did not stand; the first: %v", bad, n, first.Load())
	}
	return nil
}

// killed kills launchers, a few at a time, at moments from before the first
// clone until after the command runs.
func (s *soak) killed(ctx context.Context, n int) error {
	const lanes = 4
	var wait sync.WaitGroup
	errs := make([]error, lanes)
	for lane := range lanes {
		wait.Go(func() {
			for range n / lanes {
				l := s.launch(ctx, "sh", "-c", "(trap '' TERM HUP; sleep 600) & setsid sleep 600 & sleep 600")
				if errs[lane] = s.start(l); errs[lane] != nil {
					return
				}
				time.Sleep(time.Duration(rand.Int64N(int64(40 * time.Millisecond))))
				_ = l.Process.Kill()
				_ = l.Wait() // killed
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// left looks for everything that a launch makes. What a launcher that was
// killed leaves in its session is for gc to clear; nothing else may be left.
func (s *soak) left(before int) error {
	var problems []error
	if left := orphans.End(patience); len(left) > 0 {
		problems = append(problems, fmt.Errorf("%d processes outlived their launchers: %s", len(left), strings.Join(left[:min(len(left), 5)], "; ")))
	}
	if err := s.gc(); err != nil {
		problems = append(problems, err)
	}
	if ids := s.sessions(); len(ids) > 0 {
		problems = append(problems, fmt.Errorf("%d sessions are left after gc, such as %s", len(ids), ids[0]))
	}
	if now, err := mounts(); err != nil || now != before {
		problems = append(problems, fmt.Errorf("%d mounts, and %d before: %v", now, before, err))
	}
	if left := s.groups(); len(left) > 0 {
		has, err := groups.Read(left[0])
		problems = append(problems, fmt.Errorf("%d control groups are left, such as %s, with the processes %v", len(left), left[0], has.Processes), err)
	}
	var in []string
	workspace, _ := os.ReadDir(s.dir + "/ws")
	for _, e := range workspace {
		in = append(in, e.Name())
	}
	if !slices.Equal(in, []string{".env", ".git"}) {
		problems = append(problems, fmt.Errorf("the workspace has %q", in))
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil && len(fds) > 64 {
		problems = append(problems, fmt.Errorf("%d descriptors are open here", len(fds)))
	}
	return errors.Join(problems...)
}

// gc clears what crashed launchers left.
func (s *soak) gc() error {
	cmd := exec.Command(s.program, "gc", "--all")
	cmd.Env = append(os.Environ(), "HOME="+s.dir+"/home", "XDG_STATE_HOME="+s.dir+"/state")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("gc: %w: %s", err, out)
	}
	return nil
}

// sessions returns those that have begun. A directory without a record may be
// of a launch that begins: gc leaves it alone for a minute. Root's launcher,
// which has given root up by its end, leaves one each time.
func (s *soak) sessions() (ids []string) {
	files, _ := filepath.Glob(s.dir + "/state/pccrun/sessions/*/session.json")
	for _, file := range files {
		ids = append(ids, filepath.Base(filepath.Dir(file)))
	}
	return ids
}

// settle is the post-run check at the sessions, when gc may clear those without a
// record.
func (s *soak) settle() error {
	dirs, _ := filepath.Glob(s.dir + "/state/pccrun/sessions/*")
	if len(dirs) == 0 {
		return nil
	}
	time.Sleep(61 * time.Second)
	if err := s.gc(); err != nil {
		return err
	}
	if dirs, _ = filepath.Glob(s.dir + "/state/pccrun/sessions/*"); len(dirs) > 0 {
		return fmt.Errorf("%d sessions are left after gc, such as %s", len(dirs), dirs[0])
	}
	return nil
}

func mounts() (int, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	return bytes.Count(text, []byte("\n")), err
}

// groups returns the new control groups that are named for one of the launchers, or for a process that is no more: those of
// tasks start launchers of their own.
func (s *soak) groups() []string {
	found := groupsOf(func(pid int) bool { return s.pids[pid] || errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
	return slices.DeleteFunc(found, func(name string) bool { return slices.Contains(s.stood, name) })
}

// groupsOf returns the control groups of launchers.
func groupsOf(launcher func(pid int) bool) (found []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil
		}
		rest, ok := strings.CutPrefix(e.Name(), "pccrun-")
		number, _, _ := strings.Cut(rest, "-")
		if pid, err := strconv.Atoi(number); ok && err == nil && launcher(pid) {
			found = append(found, name)
		}
		return nil
	})
	return found
}
