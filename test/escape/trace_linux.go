package escape

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A launcher can be killed at any moment of its set-up, and the moments that
// differ are its system calls and those of what it clones. A tracer counts
// them, stops everything at the one that is asked for, kills the launcher and
// lets the others go on: ptrace(2) is the hook, so the launcher that ships is
// the one that is tried, and any other launcher too.

// traced is what a tracer tells of one run.
type traced struct {
	Calls   int      // counted until the command had started and the launcher was idle, or the launcher was killed
	Cloned  int      // of those, by processes that the launcher had cloned
	Started bool     // the command did
	At      string   // the call at which it was killed, and whose it was
	Left    []string // what was alive some seconds later, with what the kernel says of it
	Looks   [2]int   // calls that named a path: see looks
}

const tracedPrefix = "@@traced "

// tracer is a helper: N ARGV… runs a launcher and kills it at the Nth system
// call, at the -Nth of what it has cloned where N is negative, or at none where
// it is 0. What it started dies with it.
func tracer(args []string) int {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	return newTrace(n).run(args[1:])
}

func newTrace(n int) *trace {
	return &trace{n: n, known: map[int]bool{}, free: map[int]bool{}, own: map[int]bool{}, deadline: time.Now().Add(runTime)}
}

func (t *trace) run(argv []string) int {
	go t.watch()
	if err := t.follow(argv); err != nil {
		fmt.Fprintln(os.Stderr, "tracer:", err)
		return 1
	}
	t.finish()
	return 0
}

const traceOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
	unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL

// trace is a run that is being traced.
type trace struct {
	n        int // the call at which the launcher is killed: see tracer
	launcher int
	looks    *looks // a path that is swapped between them, if one is: the run goes on to its end

	mu       sync.Mutex
	told     traced
	known    map[int]bool // threads that are traced
	free     map[int]bool // those of the command, whose calls are not counted
	own      map[int]bool // whether they are the launcher's
	started  bool
	killed   bool
	deadline time.Time
}

func (t *trace) finish() {
	line, _ := json.Marshal(t.told)
	fmt.Printf("\n%s%s\n", tracedPrefix, line)
	os.Exit(0)
}

func (t *trace) kill(at string) {
	t.killed, t.told.At, t.deadline = true, at, time.Now().Add(runTime)
	unix.Kill(t.launcher, unix.SIGKILL)
}

// watch does what is due when nothing happens any more.
func (t *trace) watch() {
	for {
		time.Sleep(10 * time.Millisecond)
		t.mu.Lock()
		if time.Now().After(t.deadline) {
			switch {
			case t.n == 0:
				t.finish()
			case t.killed:
				for pid := range t.known {
					t.told.Left = append(t.told.Left, t.describe(pid))
				}
				t.finish()
			default: // it made fewer calls than the last time
				t.kill("the launcher, idle")
			}
		}
		t.mu.Unlock()
	}
}

// follow runs the launcher until everything has ended.
func (t *trace) follow(argv []string) error {
	runtime.LockOSThread() // the tracer is a thread, not a process
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.launcher = cmd.Process.Pid
	t.known[t.launcher] = true
	var status unix.WaitStatus
	if _, err := unix.Wait4(t.launcher, &status, 0, nil); err != nil {
		return err
	}
	if err := unix.PtraceSetOptions(t.launcher, traceOptions); err != nil {
		return err
	}
	if err := unix.PtraceSyscall(t.launcher, 0); err != nil {
		return err
	}
	for {
		pid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err == unix.ECHILD:
			return nil // all are gone
		case err != nil:
			return err
		default:
			t.stopped(pid, status)
		}
	}
}

// stopped lets a thread that has stopped, or ended, go on.
func (t *trace) stopped(pid int, status unix.WaitStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !status.Stopped() {
		delete(t.known, pid)
		delete(t.own, pid)
		return
	}
	signal := 0
	switch event := int(status) >> 16; {
	case event == unix.PTRACE_EVENT_EXEC && pid != t.launcher && !t.started && !t.killed:
		t.started, t.free[pid], t.told.Started = true, true, true
		if t.looks == nil {
			t.deadline = time.Now().Add(100 * time.Millisecond) // the launcher has little left to do
		}
	case event != 0:
	case status.StopSignal() == unix.SIGTRAP|0x80:
		call, entered := entry(pid)
		if t.looks != nil && !entered {
			t.looks.done(pid)
		}
		if entered && !t.killed {
			t.told.Calls++
			cloned := !t.ofLauncher(pid)
			if cloned {
				t.told.Cloned++
			}
			if t.told.Calls == t.n || cloned && t.told.Cloned == -t.n {
				t.kill(t.whose(pid) + " at system call " + strconv.FormatUint(call.Nr, 10))
			}
			if t.looks != nil {
				t.looks.at(pid, call, cloned)
				t.told.Looks = t.looks.seen
			}
		}
	case !t.known[pid]: // the stop that every new thread begins with
		t.free[pid] = t.started && !t.ofLauncher(pid)
	default:
		signal = int(status.StopSignal())
	}
	t.known[pid] = true
	if t.killed || t.free[pid] {
		unix.PtraceCont(pid, signal)
	} else {
		unix.PtraceSyscall(pid, signal)
	}
}

// ofLauncher says whether a thread is one of the launcher's; that stays as it is
// and is looked up once.
func (t *trace) ofLauncher(pid int) bool {
	is, known := t.own[pid]
	if !known {
		is = pid == t.launcher || statusLine(strconv.Itoa(pid), "Tgid") == strconv.Itoa(t.launcher)
		t.own[pid] = is
	}
	return is
}

// describe says what a thread is and does.
func (t *trace) describe(pid int) string {
	return t.whose(pid) + " " + describe(pid)
}

// describe says of a process or thread what it is and does.
func describe(pid int) string {
	id := strconv.Itoa(pid)
	call, _ := os.ReadFile("/proc/" + id + "/syscall")
	where, _ := os.ReadFile("/proc/" + id + "/wchan")
	return fmt.Sprintf("%s (%s, %s, child of %s, system call %.20q, waits in %s)", id, statusLine(id, "Name"), statusLine(id, "State"), statusLine(id, "PPid"), call, where)
}

// described describes each of them.
func described(pids []int) string {
	var list []string
	for _, pid := range pids {
		list = append(list, describe(pid))
	}
	return strings.Join(list, ", ")
}

// whose says which process made a call.
func (t *trace) whose(pid int) string {
	if t.ofLauncher(pid) {
		return "the launcher"
	}
	return ofCloned
}

const ofCloned = "a process that it cloned"

// A call is one that is about to be made.
type call struct {
	Nr   uint64
	Args [6]uint64
}

// entry says whether a traced process is about to make a system call, and
// which: struct ptrace_syscall_info, ptrace(2).
func entry(pid int) (c call, is bool) {
	const getInfo, atEntry = 0x420e, 1
	var info [88]byte
	if _, err := Call(unix.SYS_PTRACE, getInfo, uintptr(pid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info))); err != nil {
		return c, false
	}
	_, err := binary.Decode(info[24:], binary.NativeEndian, &c)
	return c, err == nil && info[0] == atEntry
}

// clonedKills is how many of the kills are at calls of what the launcher has
// cloned, by their own numbers: they come in between the launcher's, each time
// at other places, so an even spread over all calls can miss them.
const clonedKills = 8

// killPoints returns at most so many calls, evenly spread, and, where those are
// not all, some of a clone's.
func killPoints(whole traced, most int) []int {
	spread := func(n, most int) (list []int) {
		for i := 1; i <= n; i += max(1, n/most) {
			list = append(list, i)
		}
		return list
	}
	points := spread(whole.Calls, most)
	if len(points) < whole.Calls {
		for _, i := range spread(whole.Cloned, clonedKills) {
			points = append(points, -i)
		}
	}
	return points
}

// killedAtCalls kills the launcher at system calls of its set-up, at most so
// many, evenly spread, and some of what it has cloned, and looks each time what is
// left.
func killedAtCalls(d *Drive, most int) Outcome {
	defer d.sweep()
	before, home := leftovers(), d.homeFiles()
	whole, err := d.trace(0)
	if err != nil {
		return needsPtrace(err)
	}
	if d.job.Launcher != "" && !whole.Started {
		return Broken("the command had not started after %d calls: a busy machine", whole.Calls)
	}
	files := d.workspaceFiles()
	points, tried, where := killPoints(whole, most), 0, map[string]int{}
	if d.job.Control {
		points = []int{math.MaxInt} // never reached: it is killed at rest, however many calls it makes until its daemon runs
	}
	for _, n := range points {
		if d.ctx.Err() != nil {
			break // a slow machine: what was tried is told
		}
		// Each try begins as the first did. A launcher that looks through what
		// killed ones have left makes more calls each time, and the later steps
		// of its set-up would never be reached.
		d.forget(home)
		t, err := d.trace(n)
		if err != nil {
			continue // threads: the number of calls is not the same each time
		}
		tried++
		who, _, _ := strings.Cut(t.At, " at ")
		where[who]++
		if len(t.Left) > 0 {
			return Escaped("killed at call %d, %s: left: %s", t.Calls, t.At, strings.Join(t.Left, ", "))
		}
		var left []int
		if !eventually(10*time.Second, func() bool { left = d.Survivors(); return len(left) == 0 }) {
			return Escaped("killed at call %d, %s: processes are left: %s", t.Calls, t.At, described(left))
		}
		more := slices.DeleteFunc(newIn(d.workspaceFiles(), files), func(path string) bool { // empty, for the next launch to remove
			return strings.HasPrefix(filepath.Base(path), quarantine.Prefix) && unix.Rmdir(d.Workspace+path) == nil
		})
		if len(more) > 0 {
			return Escaped("killed at call %d, %s: in the workspace: %s", t.Calls, t.At, strings.Join(more, ", "))
		}
	}
	if more := newIn(leftovers(), before); len(more) > 0 {
		return Escaped("left behind: %s", strings.Join(more[:min(5, len(more))], ", "))
	}
	if 2*tried < min(len(points), most) {
		return Broken("only %d of %d calls were reached", tried, whole.Calls)
	}
	if cloned := where[ofCloned]; cloned == 0 && whole.Cloned > 0 && !d.job.Control {
		return Broken("none of %d kills was at a call of what the launcher cloned, which makes %d of %d calls", tried, whole.Cloned, whole.Calls)
	}
	var parts []string
	for who, n := range where {
		parts = append(parts, fmt.Sprintf("%d of %s", n, who))
	}
	slices.Sort(parts)
	return Blocked("killed at %d of %d calls (%s), nothing is left", tried, whole.Calls, strings.Join(parts, ", "))
}

func needsPtrace(err error) Outcome {
	if errors.Is(err, unix.EPERM) || strings.Contains(err.Error(), unix.EPERM.Error()) {
		return Needing("leave to trace its own children")
	}
	return Broken("%v", err)
}

// trace runs the launcher under a tracer.
func (d *Drive) trace(n int) (traced, error) {
	t, _, err := d.underTracer("tracer", strconv.Itoa(n))
	return t, err
}

// underTracer runs the launcher under one of the helpers that trace.
func (d *Drive) underTracer(helper string, args ...string) (t traced, run *Run, err error) {
	run = d.wait(d.launch(slices.Concat([]string{d.self, helperVerb, helper, d.Tag}, args, d.Command())))
	_, line, found := bytes.Cut(run.Output, []byte(tracedPrefix))
	if !found {
		return t, run, fmt.Errorf("the tracer: %s", tail(run))
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	return t, run, json.Unmarshal(line, &t)
}

// homeFiles are the names in the home, less those in the workspace.
func (d *Drive) homeFiles() map[string]bool {
	seen := map[string]bool{}
	filepath.WalkDir(d.Home, func(path string, e fs.DirEntry, err error) error {
		if path == d.Workspace {
			return fs.SkipDir
		}
		seen[path] = true
		return nil
	})
	return seen
}

// forget removes what was not in the home before: a launcher's records.
func (d *Drive) forget(before map[string]bool) {
	for path := range d.homeFiles() {
		if !before[path] {
			removeAll(path)
		}
	}
}

// workspaceFiles are the names in the workspace, but for what the payload
// itself makes there.
func (d *Drive) workspaceFiles() map[string]bool {
	seen := map[string]bool{}
	filepath.WalkDir(d.Workspace, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() != "heart" {
			seen[strings.TrimPrefix(path, d.Workspace)] = true
		}
		return nil
	})
	return seen
}
