//go:build unix

package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/programs"
)

// A Stop says when the user has had enough. Soft ends what works at the task, and what stands is committed; Hard ends
// whatever goes on.
type Stop struct{ Soft, Hard context.Context }

// A phase is one run of this program, as a child: `pccrun run FLAGS -- COMMAND`.
type phase struct {
	dir     string   // the work tree
	place   []string // flags of run that say where; nil for this machine
	flags   []string // of run
	command []string
	timeout time.Duration // 0 for none; what is below is over at once
	in      string        // what it reads, "" for nothing: a text, so that the phase can be carried out again
	out     func(io.Reader)
	seen    func(events.Event) // called for each event, one after the other; may be nil
	keepOn  bool               // only a hard stop ends it
	spent   <-chan struct{}    // closed when the budget is: it is interrupted then; nil for none
}

// An outcome is how a phase has ended.
type outcome struct {
	code     int              // the run's exit status
	timedOut bool             // its time was up
	stopped  bool             // a stop ended it
	failed   bool             // by its own exit status
	signal   syscall.Signal   // what ended the run itself, which could not clean up; 0 for none
	refused  *events.Refused  // why the command did not run
	changed  []events.Changed // what to look at
	said     string           // the last that was written to standard error
	session  string           // the run's
	placeUSD float64          // what its sandbox has cost
}

// statusRefused is the exit status of a run that pccrun refused.
const statusRefused = 125

// impatience is how long a phase may take to end after a signal.
const impatience = 20 * time.Second

// overdue is how much longer than its time a run on this machine may take, to begin and to end, before it is killed.
const overdue = 10 * time.Minute

// together is how long after an interrupt another one of a run's comes: two of them end all that is inside, in order.
const together = 200 * time.Millisecond

// run carries a phase out. An error says why the run could not be followed: how it ended is none.
func (p phase) run(stop Stop) (outcome, error) {
	said := &tail{}
	cmd, err := p.child(said)
	if err != nil {
		return outcome{}, err
	}
	var o outcome
	log, err := newPipe(func(r io.Reader) { p.read(r, &o) })
	if err != nil {
		return outcome{}, err
	}
	out := &pipe{}
	if p.out != nil {
		if out, err = newPipe(p.out); err != nil {
			log.close()
			return outcome{}, err
		}
		cmd.Stdout = out.w
	}
	cmd.ExtraFiles = []*os.File{log.w}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		log.close()
		out.close()
		return outcome{}, fmt.Errorf("start a run: %w", err)
	}
	log.begin()
	out.begin()
	over := make(chan struct{})
	stopped := make(chan bool, 1)
	go func() { stopped <- p.endBy(stop, cmd.Process, over) }()
	stuck := p.killOverdue(cmd.Process, overdue)
	err = cmd.Wait()
	close(over)
	log.end()
	out.end()
	o.timedOut = stuck() || o.timedOut
	o.stopped, o.said, o.code = <-stopped, said.String(), cmd.ProcessState.ExitCode()
	var status *exec.ExitError
	if errors.As(err, &status) || errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if o.code < 0 {
		o.code, o.signal = statusRefused, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
	}
	return o, err
}

// Program is a command of this program, in a process group of its own, so that a terminal's Ctrl-C reaches this process alone,
// which then ends the child in order. The child gets a signal when this process dies. Under Linux that goes with the thread that
// has started it (prctl(2), PR_SET_PDEATHSIG): it is to be locked meanwhile.
func Program(death syscall.Signal, args ...string) (*exec.Cmd, error) {
	self, err := programs.Self()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0], cmd.WaitDelay, cmd.SysProcAttr = "pccrun", programs.PipeDelay, attributes(death)
	return cmd, nil
}

// child is the command that a phase is.
func (p phase) child(said io.Writer) (*exec.Cmd, error) {
	place := p.place
	if place == nil {
		place = []string{"--provider", "native"}
	}
	args := slices.Concat([]string{"run", "-q"}, place, []string{"--workspace", p.dir, "--events", "fd:3"})
	if p.timeout != 0 {
		args = append(args, "--timeout", strconv.FormatInt(max(p.timeout.Milliseconds(), 1), 10)+"ms")
	}
	cmd, err := Program(syscall.SIGKILL, slices.Concat(args, p.flags, []string{"--"}, p.command)...)
	if err == nil {
		cmd.Dir, cmd.Stderr = p.dir, said
	}
	if err == nil && p.in != "" { // else /dev/null
		cmd.Stdin = strings.NewReader(p.in)
	}
	return cmd, err
}

// read takes the events of a run in.
func (p phase) read(r io.Reader, o *outcome) {
	for reader := events.NewReader(r); ; {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, events.ErrRead) {
			return
		}
		o.session = record.Session
		switch e := record.Event.(type) {
		case events.Refused:
			o.refused = &e
		case events.Changed:
			o.changed = append(o.changed, e)
		case events.Exit:
			o.timedOut, o.placeUSD = e.TimedOut, e.PriceUSD
		}
		if p.seen != nil && record.Event != nil {
			p.seen(record.Event)
		}
	}
}

// killOverdue kills a run on this machine that does not end with its time; a provider elsewhere has an end for each of its
// steps. ended is to be called when it has ended, reports whether it was killed, and says so.
func (p phase) killOverdue(child *os.Process, after time.Duration) (ended func() bool) {
	if p.place != nil || p.timeout == 0 {
		return func() bool { return false }
	}
	timer := time.AfterFunc(max(p.timeout, 0)+after, func() { _ = child.Kill() })
	return func() bool {
		if timer.Stop() {
			return false
		}
		if p.seen != nil {
			p.seen(events.Warning{Text: "the run did not end within " + timeText(after) + " of its time: it was killed"})
		}
		return true
	}
}

// endBy ends a run when a stop says so, and reports whether one did: by an interrupt first, which the command gets, then by
// two that end all that is inside, and at last at once. What a shell has put in its background ignores interrupts: there it is
// by TERM.
func (p phase) endBy(stop Stop, child *os.Process, over <-chan struct{}) bool {
	soft, interrupt := stop.Soft.Done(), syscall.SIGINT
	if signal.Ignored(interrupt) {
		interrupt = syscall.SIGTERM
	}
	if p.keepOn {
		soft = nil
	}
	var late, last <-chan time.Time
	for stopped := false; ; stopped = true {
		select {
		case <-over:
			return stopped
		case <-stop.Hard.Done():
			_ = child.Kill()
			<-over
			return true
		case <-last:
			_ = child.Kill()
			last = nil
		case <-late:
			_ = child.Signal(interrupt)
			time.Sleep(together)
			_ = child.Signal(interrupt)
			late, last = nil, time.After(impatience)
		case <-soft:
			_ = child.Signal(interrupt)
			soft, late = nil, time.After(impatience)
		case <-p.spent:
			_ = child.Signal(interrupt)
			p.spent, late = nil, time.After(impatience)
		}
	}
}

// A pipe is what a child writes to and a goroutine reads from. The zero value is none.
type pipe struct {
	r, w *os.File
	read func(io.Reader)
	done chan struct{}
}

func newPipe(read func(io.Reader)) (*pipe, error) {
	r, w, err := os.Pipe()
	return &pipe{r: r, w: w, read: read, done: make(chan struct{})}, err
}

// begin reads, once the child has its end.
func (p *pipe) begin() {
	if p.r == nil {
		return
	}
	p.w.Close()
	go func() {
		defer close(p.done)
		p.read(p.r)
		_, _ = io.Copy(io.Discard, p.r)
	}()
}

// end waits for what was written before the child ended.
func (p *pipe) end() {
	if p.r == nil {
		return
	}
	for waited := true; waited; {
		select {
		case <-p.done:
			waited = false
		case <-time.After(programs.PipeDelay):
			if waited = unread(p.r); !waited { // somebody else has the other end
				_ = p.r.SetReadDeadline(time.Now())
				<-p.done
			}
		}
	}
	p.r.Close()
}

// unread reports whether there is something to read: then nobody has come to it yet.
func unread(f *os.File) (is bool) {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			is = err == unix.EINTR || n > 0 && fds[0].Revents != 0
		})
	}
	return is
}

// close is for a child that did not start.
func (p *pipe) close() {
	if p.r != nil {
		p.r.Close()
		p.w.Close()
	}
}

// refusal is the error of a phase that pccrun refused, nil for another.
func (o outcome) refusal(what string) error {
	if o.refused == nil {
		return nil
	}
	return hint.Errorf(o.refused.Hint, "%s: %s", what, o.refused.Cause)
}

// lastLines are the last lines that a phase has written to standard error.
func (o outcome) lastLines(most int) []string {
	lines := strings.FieldsFunc(strings.TrimSpace(o.said), func(r rune) bool { return r == '\n' })
	return lines[max(0, len(lines)-most):]
}

// maxFailure is among how many last lines git's own word for what failed is looked for.
const maxFailure = 16

// failure says how a phase of git's has failed, "" for one that has not.
func (o outcome) failure() string {
	switch lines := o.lastLines(maxFailure); {
	case o.code == 0:
		return ""
	case o.stopped:
		return "interrupted"
	case o.signal != 0:
		return "its run was ended by a signal: " + o.signal.String()
	case len(lines) > 0:
		lines = slices.DeleteFunc(lines, func(l string) bool { return len(lines) > 1 && strings.HasPrefix(l, "pccrun: hint: ") })
		said := lines[len(lines)-1]
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "fatal: ") }); i >= 0 {
			said = lines[i] // advice follows
		}
		return strings.TrimPrefix(strings.TrimPrefix(said, "pccrun: "), "fatal: ")
	}
	return "exit status " + strconv.Itoa(o.code)
}

// A tail keeps the end of what is written to it, as text that can be an argument.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// tailSize bounds what is kept of a phase's standard error.
const tailSize = 16 << 10

func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text[max(0, len(text)-tailSize):]...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(strings.ToValidUTF8(string(t.text), "\uFFFD"), "\x00", "\uFFFD")
}
