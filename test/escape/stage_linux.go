package escape

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
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

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// Times that bound a run: the payload gives up first, then the run, then the cage around
// it. The last two end what hangs, and are long: a run that a busy machine made slow would
// else be one that failed.
const (
	payloadTime = 8 * time.Second
	runTime     = time.Minute
	cageTime    = 2 * time.Minute
	longTime    = 40 * time.Minute // of what starts the launcher many times
)

// patience is a time that grows with the load of the machine, up to ten times:
// what is slow must not look like what is blocked.
func patience(d time.Duration) time.Duration { return time.Duration(slowness() * float64(d)) }

func slowness() float64 {
	var load float64
	data, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(data), &load)
	}
	if err != nil {
		return 1
	}
	return min(max(load/float64(runtime.NumCPU()), 1), 10)
}

// A job is one probe to be performed once: as the control or behind a launcher.
type job struct {
	ID         string
	Argv       []string // the launcher with {names} to be filled in; nil: the control
	Launcher   string   // the launcher's own program, bound into a cage
	Control    bool
	Alone      profiles.Layer // the control runs with this one layer
	Caged      bool
	User       bool   // the launcher in the cage is not root: give it an identity without capabilities
	UID, GID   int    // that identity
	Dir        string // of the suite
	Run        string // the id of the site: see there
	Profile    string // a profile's file, bound into a cage
	Engine     bool   // see Target
	Provider   string
	Environ    []string
	Namespaces map[string]string // of the suite's own process, for these
	Shared     bool              // the cage has the files of this machine, as an engine sees them
	Self       string            // a copy of this program
}

// perform builds a world, runs the probe in it, lets the observer look, and
// takes the world down.
func perform(ctx context.Context, j *job) Outcome {
	p := Find(j.ID)
	if p == nil {
		return Broken("no such probe")
	}
	w := newWorld()
	defer w.close()
	limit := patience(cageTime)
	if p.Drive != nil {
		limit = longTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return outcomeOf(func() Outcome {
		w.build(j)
		if j.Engine {
			// a client that is killed leaves its container behind
			w.later(func() { exec.Command("env", "-u", "DOCKER_HOST", "docker", "rm", "--force", w.Tag).Run() })
		}
		if j.Caged || j.Control {
			w.enterInternet()
		}
		if p.Setting&Proxy != 0 && j.Control {
			w.openProxy()
		}
		d := &Drive{world: w, job: j, probe: p, ctx: ctx}
		if p.Drive != nil {
			return p.Drive(d)
		}
		return d.Run()
	})
}

// A Drive starts the sandbox, once or as often as a probe wants.
type Drive struct {
	*world
	job           *job
	probe         *Probe
	ctx           context.Context
	extra         []string // environment of the next run
	dir           string   // where it starts, if not in the workspace
	stdin         *os.File // its standard input, if not empty
	keep          bool     // leave the terminal open in slave
	slave, master *os.File
}

// A Run is one run of the launcher, seen from outside.
type Run struct {
	Output []byte // what came out, both streams, bounded
	Total  int64  // all that came out, bytes
	State  *os.ProcessState
	Took   time.Duration
	Late   bool // ended by the suite
}

// Outside is what an observer works with.
type Outside struct {
	*Drive
	*Run
}

// Run starts the launcher with the probe's payload and judges.
func (d *Drive) Run() Outcome {
	return outcomeOf(func() Outcome {
		run := d.Start()
		defer d.sweep()
		return d.judge(run)
	})
}

// from is Run with a file or directory of the host's as standard input.
func (d *Drive) from(path string) Outcome {
	f, err := os.Open(path)
	must(err)
	defer f.Close()
	d.stdin = f
	return d.Run()
}

// orRefused takes what came of a run with such a standard input: a launcher may
// refuse that, but must then start with another, or it has proved nothing.
func (d *Drive) orRefused(o Outcome) Outcome {
	if o.Kind != Broke || d.job.Control {
		return o
	}
	d.stdin = nil
	if again := d.Run(); again.Kind == Broke {
		return again
	}
	return Blocked("refused: %s", o.Detail)
}

func (d *Drive) judge(run *Run) Outcome {
	o, ran := readReport(run.Output, d.Nonce)
	if !ran && refused(run, d.probe.Guarantee) {
		return Needing("a host on which " + string(d.probe.Guarantee) + " can be kept: " + tail(run))
	}
	if flag := d.refusedFlag(run); !ran && flag != "" {
		return Needing("a provider that takes " + flag + ": " + tail(run))
	}
	if !ran {
		return Broken("the payload did not run: %s", tail(run))
	}
	if d.probe.Observe != nil {
		return d.probe.Observe(&Outside{d, run}, o)
	}
	return o
}

// refused says whether pccrun refused to start because of this guarantee, by
// its exit status and by name: a probe's own flags may ask what a host cannot keep.
func refused(run *Run, g profiles.Guarantee) bool {
	return !run.Late && run.State != nil && run.State.ExitCode() == 125 && bytes.Contains(run.Output, []byte("pccrun: guarantee "+string(g)+": missing: "))
}

// refusedFlag is the probe's own flag that a provider refused by name, "" for none.
func (d *Drive) refusedFlag(run *Run) string {
	if d.job.Provider == "" || run.Late || run.State == nil || run.State.ExitCode() != 125 {
		return ""
	}
	for _, flag := range d.probe.Flags {
		word := strings.ReplaceAll(strings.TrimPrefix(flag, "--"), "-", ".")
		if strings.HasPrefix(flag, "--") && bytes.Contains(run.Output, []byte(d.job.Provider+": "+word)) {
			return flag
		}
	}
	return ""
}

func tail(run *Run) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(run.Output), "?"))
	if len(text) > 300 {
		text = "… " + text[len(text)-300:]
	}
	state := "still running, ended"
	if !run.Late && run.State != nil {
		state = run.State.String()
	}
	return state + ": " + strings.Join(strings.Fields(text), " ")
}

// Command is the launcher's command line around the payload of a probe.
func (d *Drive) Command() []string {
	if d.probe.Setting&Terminal != 0 {
		// before the payload is told its name
		var err error
		d.master, d.slave, err = openTerminal()
		must(err)
		d.HostTTY = d.slave.Name()
		var st unix.Stat_t
		must(unix.Fstat(int(d.slave.Fd()), &st))
		d.HostTTYDev = uint64(st.Dev)
	}
	spec := d.specFile()
	names := d.names()
	var argv []string
	for _, arg := range d.job.Argv {
		switch arg {
		case "{flags}":
			for _, flag := range d.probe.Flags {
				argv = append(argv, names.Replace(flag))
			}
		default:
			argv = append(argv, names.Replace(arg))
		}
	}
	if d.job.Alone != "" {
		argv = append(argv, d.self, aloneVerb, string(d.job.Alone), d.Workspace)
	}
	return append(argv, d.self, probeVerb, spec, d.probe.ID)
}

// names fills in the {names} of a command line and of observers' paths.
func (d *Drive) names() *strings.Replacer {
	return strings.NewReplacer(
		"{workspace}", d.Workspace, "{home}", d.Home, "{canary}", d.Canary, "{shown}", d.Shown, "{tmp}", d.Tmp,
		"{self}", d.job.Launcher, "{profile}", d.job.Profile, "{probe}", d.self, "{published}", strconv.Itoa(d.Published), "{port}", strconv.Itoa(d.TCP4),
		"{tag}", d.Tag, "{uid}", strconv.Itoa(os.Getuid()), "{gid}", strconv.Itoa(os.Getgid()),
	)
}

// Start runs the launcher with the probe's payload to its end, and begin only starts it.
func (d *Drive) Start() *Run { return d.wait(d.begin()) }

func (d *Drive) begin() (*exec.Cmd, *sink) { return d.launch(d.Command()) }

// launch starts a command line in the world.
func (d *Drive) launch(argv []string) (*exec.Cmd, *sink) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = cmp.Or(d.dir, d.Workspace)
	if d.stdin != nil {
		cmd.Stdin = d.stdin
	}
	cmd.Env = append(append(d.environment(), d.job.Environ...), d.extra...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if d.job.Caged && d.job.User && !d.job.Control {
		identity(cmd.SysProcAttr, d.job.UID, d.job.GID)
	}
	out := &sink{}
	if d.probe.Setting&Leaky != 0 {
		cmd.ExtraFiles = d.leaks()
		defer func() {
			for _, f := range cmd.ExtraFiles {
				f.Close()
			}
		}()
	}
	if d.probe.Setting&Terminal != 0 {
		must(d.startOnTerminal(cmd, out))
		return cmd, out
	}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Second
	must(cmd.Start())
	return cmd, out
}

// wait waits for the launcher, and ends it when its time is up.
func (d *Drive) wait(cmd *exec.Cmd, out *sink) *Run {
	began := time.Now()
	ended := make(chan struct{})
	run := &Run{}
	go func() {
		cmd.Wait()
		close(ended)
	}()
	limit := time.NewTimer(patience(runTime))
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
		run.Late = true
	case <-d.ctx.Done():
		run.Late = true
	}
	if run.Late {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Process.Kill()
		<-ended
	}
	run.Took, run.State = time.Since(began), cmd.ProcessState
	out.finish()
	run.Output, run.Total = out.bytes()
	return run
}

// identity gives a command of a cage whose user namespace has only its own
// root the user's own numbers, without capabilities.
func identity(attr *syscall.SysProcAttr, uid, gid int) {
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: 0, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: 0, Size: 1}}
}

// leaks opens the descriptors that a careless caller would leave open: the
// root directory, the canary directory, the secret, a socket. They become 3 to 6.
func (d *Drive) leaks() (files []*os.File) {
	for _, path := range []string{"/", d.Canary, d.Canary + "/secret"} {
		f, err := os.Open(path)
		must(err)
		files = append(files, f)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(err)
	mine := os.NewFile(uintptr(pair[0]), "pair")
	io.WriteString(mine, d.secret+"\n")
	d.later(func() { mine.Close() })
	return append(files, os.NewFile(uintptr(pair[1]), "pair"))
}

// Survivors returns the processes that carry this run's tag and are not the
// suite's own.
func (d *Drive) Survivors() []int {
	return slices.DeleteFunc(processesWhose("cmdline", holding(d.Tag)), func(pid int) bool { return pid == d.HostPID })
}

// sweep ends what outlived its sandbox: by number, and only what carries the
// tag or was started with this world's home, such as a launcher's own helpers.
func (d *Drive) sweep() {
	for _, pid := range d.Survivors() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if d.Caged {
		return // they end with the cage
	}
	for _, pid := range processesWhose("environ", holding("HOME="+d.Home+"\x00")) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// Changed returns the canary files that are not as they were made, less those
// in the workspace.
func (d *Drive) Changed() []string {
	var list []string
	for path, content := range d.files {
		if strings.HasPrefix(path, d.Workspace+"/") {
			continue
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != content {
			list = append(list, path)
		}
	}
	for _, dir := range []string{d.Canary, d.Shown, d.Tmp} {
		filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || e.Type()&(os.ModeSocket|os.ModeNamedPipe) != 0 {
				return nil
			}
			if _, known := d.files[path]; !known {
				list = append(list, path)
			}
			return nil
		})
	}
	slices.Sort(list)
	return list
}

// Same says whether a canary file holds what it was made with.
func (d *Drive) Same(path string) bool {
	data, err := os.ReadFile(path)
	return err == nil && string(data) == d.files[path]
}

// Hits returns what arrived at the listeners under names that begin so.
func (d *Drive) Hits(prefix string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	for _, hit := range d.hits {
		if strings.HasPrefix(hit, prefix) {
			list = append(list, hit)
		}
	}
	return list
}

// A sink keeps the beginning and the end of what comes out.
type sink struct {
	mu         sync.Mutex
	head, rest []byte
	total      int64
	master     *os.File
	copied     chan struct{}
}

const sinkSize = 1 << 19

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += int64(len(p))
	data := p
	if room := sinkSize - len(s.head); room > 0 {
		n := min(room, len(data))
		s.head = append(s.head, data[:n]...)
		data = data[n:]
	}
	s.rest = append(s.rest, data...)
	if len(s.rest) > 2*sinkSize {
		s.rest = append(s.rest[:0], s.rest[len(s.rest)-sinkSize:]...)
	}
	return len(p), nil
}

func (s *sink) bytes() ([]byte, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.head, s.rest), s.total
}

// finish waits for the copy from the terminal, if there is one.
func (s *sink) finish() {
	if s.master == nil {
		return
	}
	select {
	case <-s.copied:
	case <-time.After(time.Second):
	}
	s.master.Close()
}

// startOnTerminal starts a command with the run's terminal as its own.
