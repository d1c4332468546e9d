// Package bare is a provider for tests: it runs the command as a child of this process, in a
// root directory if one is given, and keeps none of the guarantees, which it says of each.
//
// What it promises is to be honest: whatever of package run works with it uses nothing of
// this machine's own provider. It is part of no program.
package bare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// Provider is it, under the name that it is to stand in for.
type Provider struct {
	As   string
	Root string // for chroot(2); "" for none
	Gone bool   // its engine is not there
	Dir  string // holds what there is: a file for each run, by its label, with its process group
}

// Name returns the name.
func (p *Provider) Name() string { return p.As }

// Examine knows what runs the command, if that is there.
func (p *Provider) Examine(context.Context) (providers.Facts, error) {
	if p.Gone {
		return nil, &providers.UnusableError{Provider: p.As, Cause: "the engine is gone", Advice: "start it"}
	}
	return "a child of pccrun", nil
}

// plan is a command with its surroundings.
type plan struct {
	provider *Provider
	command  providers.Command
	paths    []string
	facts    string
	timeout  time.Duration
}

// Plan plans a run.
func (p *Provider) Plan(policy *profiles.Policy, survey *providers.Survey, facts providers.Facts, command providers.Command) (providers.Plan, error) {
	command.Env = append(append([]string{}, survey.Env...), command.Env...)
	return &plan{p, command, survey.Command, facts.(string), policy.Resources.Deadline()}, nil
}

// Answers says of each guarantee that it is missing.
func (p *plan) Answers() (list []profiles.Answer) {
	for i := range profiles.Guarantees {
		if g := profiles.Guarantees[i].Guarantee; g != profiles.SyncUp && g != profiles.SyncDown {
			list = append(list, profiles.Answer{Guarantee: g, State: profiles.Missing, Cause: p.facts + " keeps nothing"})
		}
	}
	return list
}

// Warnings warns.
func (p *plan) Warnings() []string { return []string{"nothing is kept: " + p.facts} }

// Describe returns the plan as a value.
func (p *plan) Describe() any {
	return struct {
		Root  string   `json:"root,omitempty"`
		Paths []string `json:"paths"`
		Argv  []string `json:"argv"`
		Dir   string   `json:"dir"`
	}{p.provider.Root, p.paths, p.command.Argv, p.command.Dir}
}

// Run runs the command.
func (p *plan) Run(ctx context.Context, stdio providers.Stdio, o providers.Observer) (result providers.Result, err error) {
	cmd := &exec.Cmd{Args: p.command.Argv, Env: p.command.Env, Dir: p.command.Dir, Stdin: stdio.In, Stdout: stdio.Out, Stderr: stdio.Err, SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Chroot: p.provider.Root}}
	if len(p.paths) > 0 {
		cmd.Path = p.paths[0]
	} else if cmd.Path, err = exec.LookPath(p.command.Argv[0]); err != nil {
		return result, &providers.ExecError{Name: p.command.Argv[0], Err: fs.ErrNotExist}
	}
	var master *os.File
	if stdio.Terminal != nil {
		var slave *os.File
		if master, slave, err = openTerminal(); err != nil {
			return result, err
		}
		defer master.Close()
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Chroot: p.provider.Root}
		resize(master, stdio.Terminal)
		defer slave.Close()
	}
	record := filepath.Join(p.provider.Dir, p.command.Label)
	if err := os.MkdirAll(p.provider.Dir, 0o700); err != nil {
		return result, err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return result, err
	}
	defer os.Remove(record)
	if err := os.WriteFile(record, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return result, err
	}
	o.Created(p.provider.resource(p.command.Label, cmd.Process.Pid))
	o.Warning(events.Warning{Text: "the command is a child"})
	o.Started()
	printed := make(chan struct{})
	close(printed)
	if master != nil {
		printed = make(chan struct{})
		cmd.Stdin.(*os.File).Close()
		go io.Copy(master, stdio.In)
		go func() {
			io.Copy(stdio.Out, master) // until the last of the other side is closed
			close(printed)
		}()
	}
	over := make(chan struct{})
	go p.follow(ctx, over, cmd.Process.Pid, master, stdio, &result)
	err = cmd.Wait()
	close(over)
	<-printed
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result, err
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	result.Wall, result.User, result.System = time.Since(begun), cmd.ProcessState.UserTime(), cmd.ProcessState.SystemTime()
	if status.Signaled() {
		result.Signal = int(status.Signal())
	} else {
		result.Code = status.ExitStatus()
	}
	return result, nil
}

// Exec runs another command, which has no terminal.
func (p *plan) Exec(ctx context.Context, argv, files []string, stdio providers.Stdio) (result providers.Result, err error) {
	cmd := &exec.Cmd{Path: files[0], Args: argv, Env: p.command.Env, Dir: p.command.Dir, Stdin: stdio.In, Stdout: stdio.Out, Stderr: stdio.Err, SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Chroot: p.provider.Root}}
	err = cmd.Start()
	for _, f := range []any{stdio.In, stdio.Out, stdio.Err} {
		if f, is := f.(*os.File); is {
			f.Close()
		}
	}
	if err != nil {
		return result, err
	}
	over := make(chan struct{})
	go p.follow(ctx, over, cmd.Process.Pid, nil, stdio, &result)
	_ = cmd.Wait()
	close(over)
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return providers.Result{Signal: int(status.Signal())}, nil
	}
	return providers.Result{Code: cmd.ProcessState.ExitCode()}, nil
}

// follow passes on what comes from outside.
func (p *plan) follow(ctx context.Context, over chan struct{}, pid int, master *os.File, stdio providers.Stdio, result *providers.Result) {
	var deadline <-chan time.Time
	if p.timeout > 0 {
		deadline = time.After(p.timeout)
	}
	var resized <-chan struct{}
	if master != nil {
		resized = stdio.Terminal.Resized
	}
	for {
		select {
		case <-over:
			return
		case <-deadline:
			result.TimedOut = true
			unix.Kill(-pid, unix.SIGKILL)
		case <-ctx.Done():
			result.Killed = true
			unix.Kill(-pid, unix.SIGKILL)
			return
		case <-resized:
			resize(master, stdio.Terminal)
		case sig := <-stdio.Signals:
			unix.Kill(-pid, unix.Signal(sig))
		}
	}
}

func (p *Provider) resource(label string, pid int) providers.Resource {
	return providers.Resource{Provider: p.As, ID: strconv.Itoa(pid), Region: "here", Labels: map[string]string{providers.LabelKey: label}}
}

// Find reads the records.
func (p *Provider) Find(_ context.Context, label string) (list []providers.Resource, err error) {
	entries, err := os.ReadDir(p.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(p.Dir, e.Name()))
		pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
		if err = errors.Join(err, bad); err != nil {
			return nil, err
		}
		if label == "" || label == e.Name() {
			list = append(list, p.resource(e.Name(), pid))
		}
	}
	return list, err
}

// Destroy kills a run's process group.
func (p *Provider) Destroy(_ context.Context, r providers.Resource) error {
	pid, err := strconv.Atoi(r.ID)
	if err != nil || pid <= 1 {
		return fmt.Errorf("resource %q: no process group", r.ID)
	}
	if err := unix.Kill(-pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return err
	}
	for range 10_000 { // its leader is gone, or waits for a parent
		status, err := os.ReadFile("/proc/" + r.ID + "/status")
		if err != nil || strings.Contains(string(status), "\nState:\tZ") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	err = os.Remove(filepath.Join(p.Dir, r.Labels[providers.LabelKey]))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func openTerminal() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	return master, slave, err
}

func resize(master *os.File, t *providers.Terminal) {
	columns, rows := t.Size()
	_ = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)})
}
