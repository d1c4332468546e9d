// Package native runs a policy on this machine, with nothing but this program:
// it puts mounts, filter, limits and egress together, and says of each
// guarantee how far the whole keeps it.
//
// The promise: [New] either returns a run that keeps what the policy requires,
// or a [providers.MissingError] that names what is not kept, why, and what mends it.
package native

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/cgroups"
	"github.com/pccrun/pccrun/egress"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/seccomp"
	"github.com/pccrun/pccrun/seccomp/supervisor"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/workspace"
)

// DenialsPath is where the command can read what was refused, and why.
const DenialsPath = "/run/pccrun/denials.jsonl"

// Host is what a run takes from this process.
type Host struct {
	// Learn, if set, hears of each call that names something: opens for reading,
	// status, programs, connections and removals too, whatever the policy makes of
	// them, before the kernel carries it out; from one goroutine, for which the
	// process waits. See [supervisor.Call] for what a call tells. It costs each such
	// call two switches between processes, and is no protection.
	Learn func(*supervisor.Call)

	Environ []string
	// Ask asks the user about a host that no rule speaks of; nil asks nobody.
	Ask func(ctx context.Context, host string, port uint16) netproxy.Permission

	Secrets  *Secrets // what is injected from files and commands; nil reads none, for a run that is only looked at
	StateDir string   // where pccrun keeps its runs, and what package managers answered: never shown inside; "" for nowhere

}

// Getenv returns a variable of the host's environment.
func (h *Host) Getenv(name string) string {
	host := profiles.Host{Environ: h.Environ}
	return host.Getenv(name)
}

// A Run is a run that is planned and checked, and has not begun.
type Run struct {
	Policy   *profiles.Policy
	Plan     *namespaces.Plan
	Limits   cgroups.Plan
	Egress   *egress.Plan
	Answers  []profiles.Answer
	Warnings []string

	// Settled, if set, is called by [Run.Start] when Answers say what became of the
	// plan, and before anything of the command is told.
	Settled func()

	Overlaid func() int64 // bytes that the overlays take, set before the start; nil without any
	Homed    func() int64 // bytes that the persistent home takes, likewise

	// Attempted hears of what the command tried of files and was refused, from
	// one goroutine; set before the start. See [profiles.Policy.Attempts].
	Attempted func(Attempt)

	// Tried hears of what the command tried of the host and did not get, from
	// one goroutine; set before the start of a run whose Host.Learn calls [Run.Study].
	Tried func(Try)

	room    int64 // for processes: see countForks
	learn   func(*supervisor.Call)
	group   *cgroups.Group      // made before the sandbox is begun, or root is shed
	janitor *namespaces.Janitor // as root

	serveAfter time.Duration // see serveSoon; tests have more patience

	found *workspace.Found
	trees []survey.Tree // the workspace, and what else the command may write
}

// New plans a run of a command under a policy, given what this machine is and which files the
// command's name stands for.
func New(policy *profiles.Policy, looked *survey.Survey, paths []string, host Host, argv []string) (*Run, error) {
	r := &Run{Policy: policy, learn: host.Learn, serveAfter: serveAfter}
	command := r.command(argv, paths, &host)
	r.Warnings, r.found = append(r.Warnings, looked.Notes...), looked.Workspace
	if policy.Decide(policy.Workspace).Access == profiles.Overlay {
		r.Warnings = append(r.Warnings, "the workspace is an overlay: a program inside that watches files is not told what the host changes in them")
	}
	r.trees = append([]survey.Tree{{Query: looked.Query, Found: looked.Workspace}}, looked.Trees...)
	facts, err := namespaces.Examine(policy, looked)
	if err != nil {
		return nil, err
	}
	if r.Plan, err = namespaces.Build(policy, looked, facts, command); err != nil {
		return nil, err
	}
	for _, v := range looked.Env {
		r.Plan.Command.Env = append(r.Plan.Command.Env, v.Entry)
	}
	if looked.Spelled != "" && command.Dir == policy.WorkDir { // as it is outside: getcwd(3) knows no links, shells go by it
		r.Plan.Command.Env = append(r.Plan.Command.Env, "PWD="+looked.Spelled)
	}
	if err := r.network(&host); err != nil {
		return nil, err
	}
	if err := r.filter(); err != nil {
		return nil, err
	}
	if err := r.watch(host.Learn); err != nil {
		return nil, err
	}
	if err := r.limits(); err != nil {
		return nil, err
	}
	r.Answers = r.answers()
	warnings, err := providers.Check(policy, r.Answers)
	r.Warnings = append(r.Warnings, warnings...)
	return r, err
}

// command is what the copy executes, and with what.
func (r *Run) command(argv, paths []string, host *Host) namespaces.Command {
	c := namespaces.Command{Paths: paths, Argv: argv, Env: r.Policy.Environ(host.Environ), Dir: r.Policy.WorkDir}
	if namespaces.WhoAmI().Root {
		for i, e := range c.Env {
			if strings.HasPrefix(e, "USER=") || strings.HasPrefix(e, "LOGNAME=") {
				c.Env[i] = e[:strings.IndexByte(e, '=')+1] + "pccrun"
			}
		}
	}
	if r.Policy.Decide(c.Dir).Access < profiles.Read {
		c.Dir = r.Policy.Workspace
	}
	for _, l := range r.Policy.Without {
		if l == profiles.LayerEnv {
			c.Env = host.Environ
		}
	}
	if strings.HasPrefix(r.Policy.Home, profiles.NoHome) && (&Host{Environ: c.Env}).Getenv("HOME") == "" {
		c.Env = append(slices.DeleteFunc(slices.Clone(c.Env), func(e string) bool { return strings.HasPrefix(e, "HOME=") }), "HOME="+r.Policy.Home) // nor does the user database say it
	}
	c.Umask = syscall.Umask(0)
	syscall.Umask(c.Umask)
	return c
}

// ownFilter compiles the user's filter.
func (r *Run) ownFilter() error {
	file := r.Policy.Syscalls
	text, err := profiles.ReadFile(file)
	if err != nil {
		return err
	}
	if r.Plan.Filter, err = seccomp.CompileOCI(text, runtime.GOARCH); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := startable(r.Plan.Filter); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	r.Plan.FilterName, r.Plan.OwnFilter = file, true
	return nil
}

// filter picks the seccomp filter, or compiles the user's.
func (r *Run) filter() error {
	switch {
	case r.Policy.Syscalls != "" && r.Policy.Syscalls != "default":
		if err := r.ownFilter(); err != nil {
			return &profiles.Error{Origin: r.Policy.SyscallsAt, Cause: err.Error()}
		}
	case r.Policy.Nested:
		r.Plan.Filter, r.Plan.FilterName = seccomp.Nested(), "nested"
	default:
		r.Plan.Filter, r.Plan.FilterName = seccomp.Default(), "default"
	}
	r.Plan.Floor = seccomp.Floor()
	if r.Policy.Nested {
		r.Plan.Floor = seccomp.NestedFloor()
	}
	return nil
}

// startable is an error where a filter lets no command start, or none end: nobody
// could be told why.
func startable(filter []byte) error {
	program, err := seccomp.Load(filter)
	if err != nil {
		return err
	}
	own := map[string]uint32{"amd64": seccomp.ArchX86_64, "arm64": seccomp.ArchAarch64}[runtime.GOARCH]
	for _, c := range []struct {
		name string
		nr   uint32
	}{{"execve", unix.SYS_EXECVE}, {"exit_group", unix.SYS_EXIT_GROUP}} {
		if a := program.Run(seccomp.Data{Nr: c.nr, Arch: own}); a != seccomp.RetAllow && a != seccomp.RetLog {
			return fmt.Errorf("%s gets %s: no command could start and end", c.name, a)
		}
	}
	return nil
}

// limits plans what bounds memory, processors and processes. Limits that only
// the defaults set must not cost what moving a process into a group costs.
func (r *Run) limits() error {
	res := &r.Policy.Resources
	want := cgroups.Limits{Memory: res.Memory.Value, CPUs: res.CPUs.Value, Pids: res.Pids.Value}
	var need, cheap cgroups.Resource
	for _, l := range [...]struct {
		r cgroups.Resource
		v profiles.Limit
	}{{cgroups.Memory, res.Memory}, {cgroups.CPUs, res.CPUs}, {cgroups.Pids, res.Pids}} {
		switch {
		case l.v.Value == 0:
		case r.requires(guaranteeOf(l.r)):
			need |= l.r
		default:
			cheap |= l.r
		}
	}
	o := cgroups.Options{Cheap: cheap}
	if id := r.Plan.Identity; id.Root {
		o.UID = id.HostUID
	}
	r.Limits = cgroups.Survey(need).Plan(want, o)
	if n := uint64(r.Limits.NProc); n > 0 {
		r.Plan.Rlimits = append(r.Plan.Rlimits, namespaces.Rlimit{Resource: unix.RLIMIT_NPROC, Name: "processes", Soft: n, Hard: n})
	}
	if m := r.Limits.Supervise; m > 0 && r.Plan.Disk == 0 {
		r.Plan.Disk, r.Plan.Inodes = m, max(m>>15, 128) // private files count as memory
	}
	if r.Limits.Supervise > 0 && !slices.Contains(r.Policy.Without, profiles.LayerIpcns) {
		r.Plan.Segments = unix.Access("/proc/sysvipc/shm", unix.F_OK) == nil // else the kernel has none
	}
	r.Plan.Await = len(r.Limits.Dirs) > 1 || len(r.Limits.Dirs) == 1 && !r.Limits.Born()
	if n := r.Limits.Affinity; n > 0 {
		set, err := cgroups.Processors(n)
		if err != nil {
			return err
		}
		r.Plan.CPUs = unsafe.Slice((*byte)(unsafe.Pointer(&set)), unsafe.Sizeof(set))
	}
	return nil
}

func (r *Run) requires(g profiles.Guarantee) bool {
	for _, q := range r.Policy.Requirements {
		if q.Guarantee == g {
			return q.Required
		}
	}
	return false
}

// Born reports whether the sandbox has to begin in a control group, so that
// one that was begun before the policy was read is of no use.
func (r *Run) Born() bool { return r.Limits.Born() }

// Shell returns what [namespaces.Begin] takes. Where the sandbox is to be born
// in a control group it makes that first.
func (r *Run) Shell() (namespaces.Shell, error) {
	shell := r.Plan.Shell
	if r.Born() && r.group == nil {
		var err error
		if r.group, err = r.Limits.Create(); err != nil {
			return shell, err
		}
		shell.Cgroup = r.group.FD()
	}
	return shell, nil
}

// Release removes what [Run.Shed] or [Run.Shell] has made, for a run that is
// not begun after all.
func (r *Run) Release() error {
	if r.group == nil {
		return nil
	}
	return r.group.Remove(time.Second)
}

// Started is a run under way.
type Started struct {
	*namespaces.Sandbox

	Unreported bool // refused writes are not told: there is a supervisor around this run already

	run    *Run
	group  *cgroups.Group
	way    *egress.Service
	watch  *cgroups.Supervisor
	cancel context.CancelFunc
	seen   *supervisor.Supervisor // nil: nobody asks
	full   chan int64
	brim   chan bool  // says, when the run is over, whether its private directories were full; nil if nobody looked
	broken chan error // why the run had to be ended

	serve    func()        // sets the network's service going, once; nil if there is none
	soon     *time.Timer   // until then
	refusals chan struct{} // closed when the last refused packet was told of
}

// Start finishes a sandbox that was begun and sets everything around it going.
// decided hears of each decision of the proxy, from many goroutines.
func (r *Run) Start(box *namespaces.Sandbox, io *namespaces.Stdio, decided func(netproxy.Event)) (*Started, error) {
	s := &Started{Sandbox: box, run: r, group: r.group, full: make(chan int64, 1), broken: make(chan error, 1)}
	var err error
	if s.way, err = r.Egress.Open(decided); err != nil {
		box.Close()
		return nil, s.close(err)
	}
	box.Connected = func() error { return r.connected(box) }
	if err := box.Start(r.Plan, io); err != nil {
		return nil, s.close(r.unkept(r.overlayMissing(err)))
	}
	if r.Settled != nil {
		r.Settled()
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if r.Plan.Await {
		var err error
		if s.group == nil {
			s.group, err = r.Limits.Create()
		}
		if err == nil {
			err = s.group.Attach(box.Pid)
		}
		if err == nil {
			err = box.Continue()
		}
		if err != nil {
			box.Close()
			return nil, s.close(err)
		}
	}
	if err := s.observe(); err != nil {
		box.Close()
		return nil, s.close(err)
	}
	s.keep()
	if limit := r.Limits.Supervise; limit > 0 {
		s.watch = &cgroups.Supervisor{Limit: limit, PID: box.Pid, Filesystems: []int{box.Private}, Segments: box.SysV[0], Semaphores: box.SysV[1], Queues: box.SysV[2], Over: func(int64) { box.Kill() }}
		go s.watch.Run(ctx)
	}
	if limit := r.Policy.Resources.Disk.Value; limit > 0 && (r.Overlaid != nil || r.Homed != nil) {
		go s.watchDisk(ctx, limit)
	}
	if r.Policy.Resources.Disk.Value > 0 && r.Tried != nil {
		s.watchPrivate(ctx)
	}
	s.serveSoon(ctx)
	s.way.Published(ctx, s.Dial)
	return s, nil
}

// Cgroups returns the control groups of the run's own.
func (s *Started) Cgroups() []string {
	if s.group == nil {
		return nil
	}
	return s.group.Paths()
}

// keep begins to cover again what the host replaces. A keeper that cannot go on
// ends the run: what it kept would be open.
func (s *Started) keep() {
	s.Keep(func(err error) {
		select {
		case s.broken <- err:
		default:
		}
		s.Kill()
	})
}

// watchDisk ends the run when its overlays, its private directories and what it adds to a persistent
// home together take more than the limit: nobody but root can bound a directory of a disk.
// It looks more seldom the more there is to count.
func (s *Started) watchDisk(ctx context.Context, limit int64) {
	before := int64(0) // what stood in the home is no run's
	if s.run.Homed != nil {
		before = s.run.Homed()
	}
	for {
		begun := time.Now()
		used := int64(0)
		if s.run.Overlaid != nil {
			used = s.run.Overlaid()
		}
		if s.run.Homed != nil {
			used += max(0, s.run.Homed()-before)
		}
		var private unix.Statfs_t
		if unix.Fstatfs(s.Private, &private) == nil {
			used += int64(private.Blocks-private.Bfree) * private.Bsize
		}
		if used > limit {
			s.full <- used
			s.Kill()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(100*time.Millisecond, 20*time.Since(begun))):
		}
	}
}

// An End is how a run ended.
type End struct {
	namespaces.Result
	OOM     bool   // memory ran out
	Kills   int64  // processes that the kernel killed for that; 0 where the whole sandbox was ended
	Full    bool   // more of the disk was used than is allowed
	Brim    bool   // the private directories were full: looked at where a run learns
	Forks   int64  // processes that the limit refused, where a control group counts them
	Limit   int64  // of memory, in bytes
	Peak    int64  // of memory, in bytes; 0 if nobody looked
	Tasks   int64  // processes and threads, the most at a time; 0 if nobody counted
	Read    int64  // bytes from storage
	Written int64  // bytes to storage
	IOBy    string // what counted them: "cgroup v2", else "rusage"
}

// Told says what every provider tells of an end.
func (e *End) Told() *providers.Result {
	r := &providers.Result{
		TimedOut: e.TimedOut, OOM: e.OOM, DiskFull: e.Full, Killed: e.Killed, Wall: e.Wall, User: time.Duration(e.Usage.Utime.Nano()), System: time.Duration(e.Usage.Stime.Nano()),
		Memory: max(e.Peak, int64(e.Usage.Maxrss)<<10), Kills: e.Kills, Processes: e.Tasks, Read: e.Read, Written: e.Written, IOBy: e.IOBy, Survivors: e.Survivors,
	}
	if e.Status.Signaled() {
		r.Signal = int(e.Status.Signal())
	} else {
		r.Code = e.Status.ExitStatus()
	}
	return r
}

// count takes over what wait4(2) counted. Processes that were killed with pid 1 nobody has
// waited for, so that of those it knows nothing: half of the truth is left out.
func (e *End) count() {
	if e.Killed {
		e.Usage = unix.Rusage{}
		return
	}
	e.IOBy = "rusage"
	e.Read, e.Written = e.Usage.Inblock<<9, e.Usage.Oublock<<9 // sectors, getrusage(2)
}

// Wait follows the run to its end and takes away what it needed.
func (s *Started) Wait(stopped func(unix.Signal)) (*End, error) {
	s.Gone = s.servedBefore(s.Gone)
	result, err := s.Sandbox.Wait(stopped)
	s.cancel()
	if s.seen != nil {
		err = errors.Join(err, s.seen.Wait())
	}
	if s.refusals != nil {
		<-s.refusals // all that was refused is told: whoever tried is dead
	}
	s.way.Close()
	// What the keeper meets while a sandbox that has ended is taken apart is no
	// reason of anything.
	if err == nil && result.Killed {
		select {
		case err = <-s.broken:
		default:
		}
	}
	end := &End{Limit: s.run.Policy.Resources.Memory.Value}
	if s.watch != nil {
		end.Peak, end.OOM = s.watch.Peak(), s.watch.Exceeded()
	}
	select {
	case <-s.full:
		end.Full = true
	default:
	}
	if s.brim != nil {
		end.Brim = <-s.brim
	}
	if result != nil {
		end.Result = *result
		end.count()
	}
	if s.group != nil {
		happened := s.group.Events()
		end.Kills, end.Forks = happened.OOMKills, happened.PidsDenied
		end.OOM = end.OOM || end.Kills > 0
		used := s.group.Usage()
		end.Peak, end.Tasks = used.Memory, used.Tasks
		if used.IO {
			end.Read, end.Written, end.IOBy = used.Read, used.Written, cgroups.ByV2
		}
		if end.Killed {
			end.Usage.Utime, end.Usage.Stime = unix.NsecToTimeval(int64(used.User)), unix.NsecToTimeval(int64(used.System))
		}
	}
	if err = s.close(err); err != nil {
		return nil, err
	}
	return end, nil
}

// close gives the host's ports back and removes the control groups.
func (s *Started) close(err error) error {
	if s.way != nil {
		s.way.Close()
	}
	if s.group != nil {
		if e := s.group.Remove(2 * time.Second); err == nil {
			err = e
		}
	}
	return err
}
