package namespaces

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
)

// A role is what this test binary does when a test has started it again: what
// changes a process for good, or judges its standard descriptors.
type role func(args []string) error

var roles = map[string]role{"stdio": stdioRole, "pump": pumpRole, "begin": beginRole, "connect": connectRole, "handed": handedRole, "write": writeRole, "shed": shedRole, "watched": watchedRole, "queue": queueRole}

const roleVariable = "PCCRUN_NAMESPACES_TEST_ROLE"

func TestMain(m *testing.M) {
	if play, ok := roles[os.Getenv(roleVariable)]; ok {
		if err := play(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// self is this test binary in a role.
func self(t *testing.T, role string, args ...string) *exec.Cmd {
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	if os.Getenv("GOCOVERDIR") == "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+t.TempDir())
	}
	return cmd
}

// me is the caller's own identity. Root is somebody else inside, but stays root
// for the disk: giving that up is for good.
func me() Identity {
	id := Identity{HostUID: os.Getuid(), HostGID: os.Getgid(), UID: os.Getuid(), GID: os.Getgid()}
	if id.UID == 0 {
		id.UID, id.GID = insideRoot, insideRoot
	}
	return id
}

// A bench is a directory with files, and a plan of a run in it.
type bench struct {
	t    *testing.T
	dir  string
	plan *Plan
}

// newBench makes the files of [fakeHome] and plans a run that may write dir,
// less what the rules say. A rule is "access name", below dir.
func newBench(t *testing.T, files []string, rules ...string) *bench {
	b := &bench{t: t, dir: fakeHome(t, files...)}
	score, err := oomScore("/proc/self/oom_score_adj") // a unit of a user's manager may not go below its own
	require.NoError(t, err)
	b.plan = &Plan{
		Shell: Shell{Identity: me()}, OOMScore: score, Landlock: landlockABI(), Grace: time.Second,
		Command: Command{Env: []string{"PATH=/usr/bin:/bin", "DIR=" + b.dir}, Dir: b.dir, Umask: 0o022},
	}
	list := []Place{b.place("write .")}
	for _, rule := range rules {
		list = append(list, b.place(rule))
	}
	b.plan.Mounts, err = Mounts(list)
	require.NoError(t, err)
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) write(name, text string) {
	require.NoError(b.t, os.WriteFile(b.path(name), []byte(text), 0o644))
}

func (b *bench) read(name string) string {
	text, err := os.ReadFile(b.path(name))
	require.NoError(b.t, err)
	return string(text)
}

// place reads "access name [pin] [protect]", as it stands on the disk.
func (b *bench) place(rule string) Place {
	f := strings.Fields(rule)
	p := place(b.t, f[0]+" absent "+b.path(f[1])+" "+strings.Join(f[2:], " "))
	var st unix.Stat_t
	require.NoError(b.t, unix.Lstat(p.Path, &st))
	p.Node, p.Dev, p.Ino = survey.NodeOf(st.Mode), survey.Device(st.Dev), st.Ino
	return p
}

// without takes layers away.
func (b *bench) without(layers ...profiles.Layer) *bench {
	b.plan.Without = append(b.plan.Without, layers...)
	return b
}

// sh makes a shell script the command.
func (b *bench) sh(script string) *bench {
	b.plan.Command.Paths, b.plan.Command.Argv = []string{"/bin/sh"}, []string{"sh", "-c", script}
	return b
}

// launch takes a sandbox that was begun through the steps of a launch.
func launch(box *Sandbox, p *Plan, io *Stdio) error {
	err := box.Give(p, io)
	if err == nil {
		err = box.Network()
	}
	if err == nil {
		err = box.Go(nil)
	}
	return err
}

// end waits for the end of a sandbox.
func end(box *Sandbox) (*Result, error) {
	for {
		if _, end := box.Next(); end != nil {
			return box.Collect()
		}
	}
}

// A trial is a run under way.
type trial struct {
	*Sandbox
	b    *bench
	text chan string
}

// begin starts the run; what it writes is collected.
func (b *bench) begin() (*trial, error) {
	b.t.Helper()
	in, err := os.Open(os.DevNull)
	require.NoError(b.t, err)
	defer in.Close()
	r, w, err := os.Pipe()
	require.NoError(b.t, err)
	box, err := Begin(b.plan.Shell)
	require.NoError(b.t, err)
	err = launch(box, b.plan, &Stdio{Fds: [3]int{int(in.Fd()), int(w.Fd()), int(w.Fd())}, Host: -1})
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	run := &trial{box, b, make(chan string, 1)}
	go func() {
		text, _ := io.ReadAll(r)
		r.Close()
		run.text <- string(text)
	}()
	return run, nil
}

// outcome is what a run wrote, and how it ended.
type outcome struct {
	out string
	*Result
}

// end waits for the end of the run.
func (r *trial) end() outcome {
	r.b.t.Helper()
	result, err := end(r.Sandbox)
	require.NoError(r.b.t, err)
	return outcome{<-r.text, result}
}

// run is the whole of it.
func (b *bench) run() outcome {
	b.t.Helper()
	r, err := b.begin()
	require.NoError(b.t, err)
	return r.end()
}

// succeeds reports whether a script succeeds inside.
func (b *bench) succeeds(script string) bool {
	b.t.Helper()
	return b.sh(script).run().Status == 0
}
