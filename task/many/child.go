//go:build unix

package many

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/task"
)

// A Child starts tasks as processes of this program.
type Child struct {
	Flags []string // of each
	Args  []string // of the agent
}

// patience is how long a task may take to end at once.
const patience = 30 * time.Second

// lineSize bounds a line that a task prints. It prints none that is longer.
const lineSize = 4 << 20

// Work is a [Worker].
func (c Child) Work(stop task.Stop, index int, t Task, said chan<- Said) {
	end := c.work(stop, t, func(line []byte) { said <- Said{Index: index, Line: line} })
	said <- Said{Index: index, End: &end}
}

func (c Child) work(stop task.Stop, t Task, each func(line []byte)) End {
	failed := func(err error) End { return End{Status: refused, How: err.Error()} }
	args := slices.Concat([]string{"task", "--json"}, c.Flags, []string{"--name", t.Name})
	if t.Agent != "" {
		args = append(args, "--agent", t.Agent)
	}
	if t.Budget != "" {
		args = append(args, "--budget", t.Budget)
	}
	last := ""
	// That signal comes as often as a thread of this process dies to which the kernel has given the child meanwhile (prctl(2)): so it
	// is one that ends nothing at once.
	cmd, err := task.Program(syscall.SIGHUP, slices.Concat(args, []string{"-", "--"}, c.Args)...)
	if err != nil {
		return failed(err)
	}
	cmd.Stdin = strings.NewReader(t.Prompt) // on its command line all users of the machine could read it
	cmd.Stdout = &lines{each: each}
	cmd.Stderr = &lines{each: func(line []byte) { last = string(line) }}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return failed(err)
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		interruptBy(stop, cmd.Process, over)
	}()
	_ = cmd.Wait() // its status says how it ended
	close(over)
	<-ended
	return End{cmd.ProcessState.ExitCode(), cmd.ProcessState.String(), strings.TrimPrefix(last, "pccrun: ")}
}

// interruptBy ends a task when a stop says so: by an interrupt first, then by a second one, at which it ends at once.
func interruptBy(stop task.Stop, child *os.Process, over <-chan struct{}) {
	soft, hard := stop.Soft.Done(), stop.Hard.Done()
	var late <-chan time.Time
	interrupted := false
	for {
		select {
		case <-over:
			return
		case <-soft:
			_ = child.Signal(syscall.SIGINT)
			soft, interrupted = nil, true
		case <-hard:
			if !interrupted { // both are asked of it, as of whoever presses Ctrl-C twice
				_ = child.Signal(syscall.SIGINT)
			}
			_ = child.Signal(syscall.SIGTERM) // another signal, so that the two do not become one
			soft, hard, late = nil, nil, time.After(patience)
		case <-late:
			_ = child.Kill()
			late = nil
		}
	}
}

// lines are written to, and call each with every line.
type lines struct {
	each func(line []byte)
	rest []byte
}

func (l *lines) Write(text []byte) (int, error) {
	n := len(text)
	for {
		line, more, whole := bytes.Cut(text, []byte("\n"))
		if l.rest = append(l.rest, line...); !whole {
			if len(l.rest) > lineSize {
				l.rest = nil
			}
			return n, nil
		}
		l.each(l.rest)
		l.rest, text = nil, more
	}
}
