// Package native runs a policy on this machine, with nothing but this program:
// it puts mounts, filter, limits and egress together, and says of each
// guarantee how far the whole keeps it.
//
// The promise: it is a [providers.Provider] like any other. Its plan is a value, and what it
// answers of each guarantee is kept by the kernel, or the start ends with a
// [providers.MissingError] before the command runs.
package native

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/cgroups"
	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/namespaces/network"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/seccomp"
	"github.com/pccrun/pccrun/seccomp/supervisor"
	"github.com/pccrun/pccrun/workspace"
)

// DenialsPath is where the command can read what was refused, and why.
const DenialsPath = "/run/pccrun/denials.jsonl"

// options are what a run takes from the request and from this process.
type options struct {
	learn   bool // refused reads are recorded too, and the network is there whatever the policy allows
	passFDs []int

	environ  []string
	programs *programs.Finder                                                        // see [providers.Host]
	stateDir string                                                                  // where pccrun keeps its runs, and what package managers answered; "" for nowhere
	secrets  *egress.Secrets                                                         // what is injected from files and commands; nil reads none, for a run that is only looked at
	budget   *spending.Budget                                                        // see [providers.Host]
	ask      func(ctx context.Context, host string, port uint16) netproxy.Permission // nil asks nobody
}

// facts are what this machine says of itself, as far as a policy wants to know.
type facts struct {
	kernel    *namespaces.Facts
	way       *egress.Plan // what clients, and the host's proxy, make of the policy's network
	routes    network.Range
	limits    cgroups.Plan
	cpus      []byte                // that the command may run on; nil for all
	tables    bool                  // the kernel has tables of System V objects
	filter    []byte                // the user's own; nil: a built-in one
	powerless error                 // why the launcher makes no names in place of the command
	programs  []namespaces.Readable // see [namespaces.Plan.Programs]
	umask     int
	supervise int // flags of seccomp(2) by which the launcher is asked, if the policy has it asked
}

// Planned is a run that is decided, as a value: nobody changes it.
type Planned struct {
	Policy   *profiles.Policy
	Plan     *namespaces.Plan
	Limits   cgroups.Plan
	Egress   *egress.Plan
	Answers  []profiles.Answer
	Warnings []string

	learn   bool
	signs   survey.Signing
	outward []survey.Named // directories of the home that the workspace names and the command does not see
	trees   []survey.Tree  // the workspace, and what else the command may write
}

// A Run is a plan that is being carried out: its Plan is bound to what was made for it.
type Run struct {
	Planned
	report *reporter

	plan  *plan // that it carries out
	io    providers.Stdio
	stdio *namespaces.Stdio
	box   *namespaces.Sandbox // nil: none was begun
	given bool                // it has its plan

	overlaid func() int64 // bytes that the overlays take; nil without any
	homed    func() int64 // bytes that the persistent home takes, likewise

	group   *cgroups.Group               // made before the sandbox is begun, or root is shed
	remover *namespaces.DirectoryRemover // as root

	looked, made []string        // as in [namespaces.Result], of what the workspace names
	named        []events.Hidden // as root, who gives up what it may see: see [Run.hiddenNames]

	sockets  []string // of unix(7), that the command asked for, where a report is wanted
	sought   []sought // where refused reads are recorded
	unsought int64    // for which there was no room
	closed   []uint16 // ports of its own loopback that the command asked for and nobody listened at
}

// run begins to carry a plan out.
func (p *Planned) run(o providers.Observer) *Run {
	r := &Run{Planned: *p, report: &reporter{o: o, policy: p.Policy, signs: p.signs}}
	return r
}

// examine asks this machine what the plan of a policy has to know.
func examine(policy *profiles.Policy, survey *providers.Survey, o *options, command providers.Command) (*facts, error) {
	looked := machine(survey)
	f := &facts{routes: network.NewRange(rand.Uint64()), tables: unix.Access("/proc/sysvipc/shm", unix.F_OK) == nil}
	var err error
	if f.kernel, err = namespaces.Examine(policy, looked); err != nil {
		return nil, err
	}
	f.umask = syscall.Umask(0)
	syscall.Umask(f.umask)
	f.way, err = egress.New(policy, egress.Host{Environ: o.environ, Programs: o.programs, StateDir: o.stateDir, Secrets: o.secrets,
		Certificates: looked.Workspace.Certificates, Ask: o.ask, Budget: o.budget}, egress.Sandbox{Hostname: namespaces.Hostname, Names: f.kernel.LocalNames,
		IPv6: network.HasIPv6(), Learn: o.learn, Environ: environ(policy, looked, f.kernel.Identity, o.environ, command)})
	if err != nil {
		return nil, err
	}
	if policy.Syscalls != "" && policy.Syscalls != "default" {
		if f.filter, err = ownFilter(policy.Syscalls); err != nil {
			return nil, &profiles.Error{Origin: policy.SyscallsAt, Cause: err.Error()}
		}
	}
	if (policy.Strict || policy.ProtectStrict) && !f.kernel.Identity.Root { // else it is shed before the start
		f.powerless = supervisor.Powerless()
	}
	if policy.Attempts || policy.Strict || policy.ProtectStrict || o.learn {
		f.supervise = supervisor.InstallFlags()
	}
	if err := f.bound(policy); err != nil {
		return nil, err
	}
	if policy.Strict {
		draft, err := decide(policy, survey, f, o, command)
		if err == nil && draft.Plan.Watch != nil && draft.Plan.Watch.Opens {
			f.programs, err = draft.Plan.Programs(draft.gate().hides)
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// machine is what a survey holds for the provider of this machine.
func machine(s *providers.Survey) *survey.Survey { return s.Machine.(*survey.Survey) }

// decide plans a run, given what this machine is and says.
func decide(policy *profiles.Policy, s *providers.Survey, f *facts, o *options, command providers.Command) (*Planned, error) {
	looked := machine(s)
	p := &Planned{Policy: policy, Limits: f.limits, Egress: f.way, learn: o.learn}
	p.outward, p.signs = looked.Named, looked.Signing
	p.trees = append([]survey.Tree{{Query: looked.Query, Found: looked.Workspace}}, looked.Trees...)
	p.Warnings = slices.Clone(looked.Notes)
	if policy.Decide(policy.Workspace).Access == profiles.Overlay {
		p.Warnings = append(p.Warnings, "the workspace is an overlay: file watchers inside do not see changes by the host")
	}
	p.Warnings = append(p.Warnings, f.way.Warnings...)
	c := namespaces.Command{Paths: s.Command, Argv: command.Argv, Env: f.way.Environ, Dir: command.Dir, Umask: f.umask}
	with, err := p.filters(f.filter)
	if err != nil {
		return nil, err
	}
	p.leave(&with, f)
	if with.Told != "" {
		c.Env = append(c.Env, "PCCRUN_DENIALS="+DenialsPath)
	}
	p.bound(&with, f)
	with.PassFDs, with.Programs = o.passFDs, f.programs
	mounts, err := namespaces.Build(policy, looked, f.kernel, c)
	if err != nil {
		return nil, err
	}
	p.Plan = mounts.With(with)
	if with.Watch, err = p.watch(f); err != nil {
		return nil, err
	}
	p.Plan = mounts.With(with)
	p.Answers = p.answers()
	return p, nil
}

// environ is the environment of the command, before it is told of the way out.
func environ(policy *profiles.Policy, looked *survey.Survey, id namespaces.Identity, host []string, c providers.Command) []string {
	env := slices.Clone(c.Env)
	if slices.Contains(policy.Without, profiles.LayerEnv) {
		env = slices.Clone(host)
	} else if id.Root {
		for i, e := range env {
			if strings.HasPrefix(e, "USER=") || strings.HasPrefix(e, "LOGNAME=") {
				env[i] = e[:strings.IndexByte(e, '=')+1] + "pccrun"
			}
		}
	}
	if inside := (profiles.Host{Environ: env}); strings.HasPrefix(policy.Home, profiles.NoHome) && inside.Getenv("HOME") == "" {
		env = append(slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "HOME=") }), "HOME="+policy.Home) // nor does the user database say it
	}
	for _, v := range looked.Env {
		env = append(env, v.Entry)
	}
	if looked.CallerPath != "" && c.Dir == policy.WorkDir { // as it is outside: getcwd(3) knows no links, shells go by it
		env = append(env, "PWD="+looked.CallerPath)
	}
	return env
}

// ownFilter compiles the user's filter.
func ownFilter(file string) ([]byte, error) {
	text, err := profiles.ReadFile(file)
	if err != nil {
		return nil, err
	}
	filter, err := seccomp.CompileOCI(text, runtime.GOARCH)
	if err == nil {
		err = startable(filter)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return filter, nil
}

// filters picks the seccomp filters.
func (p *Planned) filters(own []byte) (w namespaces.With, err error) {
	if r := p.Policy; r.Strict && len(r.Network.Sockets) == 0 && !slices.Contains(r.AllowMissing, profiles.IPCUnix) {
		w.Sockets, err = seccomp.Watch(seccomp.PairsAlone(), runtime.GOARCH)
	}
	w.Floor, w.Filter, w.FilterName = seccomp.Floor(), own, p.Policy.Syscalls
	if p.Policy.Nested {
		w.Floor = seccomp.NestedFloor()
	}
	switch w.OwnFilter = own != nil; {
	case w.OwnFilter:
	case p.Policy.Nested:
		w.Filter, w.FilterName = seccomp.Nested(), "nested"
	default:
		w.Filter, w.FilterName = seccomp.Default(), "default"
	}
	return w, err
}

// startable is an error where a filter lets no command start, or none end: nobody
// could be told why.
func startable(filter []byte) error {
	for _, c := range []struct {
		name string
		nr   uint32
	}{{"execve", unix.SYS_EXECVE}, {"exit_group", unix.SYS_EXIT_GROUP}} {
		if a, passes, err := seccomp.Answer(filter, c.nr); err != nil {
			return err
		} else if !passes {
			return fmt.Errorf("%s gets %s: too little for any command", c.name, a)
		}
	}
	return nil
}

// bound finds what bounds memory, processors and processes. Limits that only
// the defaults set must not cost what moving a process into a group costs.
func (f *facts) bound(policy *profiles.Policy) error {
	res := &policy.Resources
	want := cgroups.Limits{Memory: res.Memory.Value, CPUs: res.CPUs.Value, Pids: res.Pids.Value}
	var need, cheap cgroups.Resource
	for _, l := range [...]struct {
		r cgroups.Resource
		v profiles.Limit
	}{{cgroups.Memory, res.Memory}, {cgroups.CPUs, res.CPUs}, {cgroups.Pids, res.Pids}} {
		switch {
		case l.v.Value == 0:
		case requires(policy, guaranteeOf(l.r)):
			need |= l.r
		default:
			cheap |= l.r
		}
	}
	f.limits = cgroups.Survey(need).Plan(want, cgroups.Options{Cheap: cheap, Sheds: f.kernel.Identity.Root})
	if n := f.limits.Affinity; n > 0 {
		set, err := cgroups.Processors(n)
		if err != nil {
			return err
		}
		f.cpus = unsafe.Slice((*byte)(unsafe.Pointer(&set)), unsafe.Sizeof(set))
	}
	return nil
}

// bound says what of the limits the plan carries out.
func (p *Planned) bound(w *namespaces.With, f *facts) {
	if n := uint64(f.limits.NProc); n > 0 {
		w.Rlimits = []namespaces.Rlimit{{Resource: unix.RLIMIT_NPROC, Name: "processes", Soft: n, Hard: n}}
	}
	w.Disk = f.limits.Supervise // private files count as memory
	w.Segments = f.limits.Supervise > 0 && f.tables && !slices.Contains(p.Policy.Without, profiles.LayerIpcns)
	w.CPUs = f.cpus
}

// moves reports whether the sandbox is moved into control groups, and was not born in one.
func (p *Planned) moves() bool {
	return len(p.Limits.Dirs) > 1 || len(p.Limits.Dirs) == 1 && !p.Limits.Born()
}

func requires(p *profiles.Policy, g profiles.Guarantee) bool {
	for _, q := range p.Requirements {
		if q.Guarantee == g {
			return q.Required
		}
	}
	return false
}

// shell returns what [namespaces.Begin] takes. Where the sandbox is to be born
// in a control group it makes that first.
func (r *Run) shell() (namespaces.Shell, error) {
	shell := r.Plan.Shell
	if r.Limits.Born() && r.group == nil {
		var err error
		if r.group, err = r.Limits.Create(); err != nil {
			return shell, err
		}
		shell.Cgroup = r.group.FD()
	}
	return shell, nil
}

// release removes what shed or shell has made, for a run that is
// not begun after all.
func (r *Run) release() error {
	if r.group == nil {
		return nil
	}
	return r.group.Remove(time.Second)
}

// Started is a run whose pid 1 is cloned.
type Started struct {
	box *namespaces.Sandbox

	Unreported bool // refused writes are not reported: there is a supervisor around this run already

	run     *Run
	environ []string // of the command, where it is not the plan's
	group   *cgroups.Group
	way     *egress.Service
	watch   *cgroups.Supervisor
	cancel  context.CancelFunc
	seen    *supervisor.Supervisor // nil: nobody asks
	full    chan int64
	filled  chan bool // says, when the run is over, whether its private directories were full; nil if nobody looked

	drain   func(patience time.Duration) error // once it is attended
	relay   *terminal.Relay                    // nil: the command has no terminal
	denials *os.File                           // where the command reads of refusals; nil for none
	pinned  []workspace.Refusal                // see [Started.Refused]

	refusals chan struct{} // closed when the last refused packet was reported
}

// started is the run once its sandbox has its plan.
func (r *Run) started() *Started {
	return &Started{box: r.box, run: r, group: r.group, full: make(chan int64, 1)}
}

// attend sets everything around the sandbox going.
func (s *Started) attend() error {
	r, box := s.run, s.box
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if err := s.observe(); err != nil {
		return err
	}
	box.Keep()
	if limit := r.Limits.Supervise; limit > 0 {
		s.watch = &cgroups.Supervisor{Limit: limit, PID: box.Pid, Filesystems: []int{box.Private}, Segments: box.SysV[0], Semaphores: box.SysV[1], Queues: box.SysV[2], Over: func(int64) { box.Kill() }}
		go s.watch.Run(ctx)
	}
	if limit := r.Policy.Resources.Disk.Value; limit > 0 && (r.overlaid != nil || r.homed != nil) {
		go s.watchDisk(ctx, limit)
	}
	if r.Policy.Resources.Disk.Value > 0 {
		s.watchPrivate(ctx)
	}
	if err := s.serve(ctx); err != nil {
		box.Abort(err) // nobody would say why there is no way out
	}
	s.way.Published(ctx, box.Dial)
	return nil
}

// watchDisk ends the run when its overlays, its private directories and what it adds to a persistent
// home together take more than the limit: nobody but root can bound a directory of a disk.
// It looks more seldom the more there is to count.
func (s *Started) watchDisk(ctx context.Context, limit int64) {
	before := int64(0) // what stood in the home is no run's
	if s.run.homed != nil {
		before = s.run.homed()
	}
	for {
		begun := time.Now()
		used := int64(0)
		if s.run.overlaid != nil {
			used = s.run.overlaid()
		}
		if s.run.homed != nil {
			used += max(0, s.run.homed()-before)
		}
		var private unix.Statfs_t
		if unix.Fstatfs(s.box.Private, &private) == nil {
			used += int64(private.Blocks-private.Bfree) * private.Bsize
		}
		if used > limit {
			s.full <- used
			s.box.Kill()
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
	Filled  bool   // the private directories were full
	Forks   int64  // processes that the limit refused, where a control group counts them; else 1 if there were as many as it allows
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

// collect returns when nothing of the sandbox is left, and takes away what the run needed.
func (s *Started) collect() (*End, error) {
	result, err := s.box.Collect()
	s.cancel()
	if s.seen != nil {
		err = errors.Join(err, s.seen.Wait())
	}
	if s.refusals != nil {
		<-s.refusals // all that was refused is reported: whoever tried is dead
	}
	s.way.Close()
	end := &End{Limit: s.run.Policy.Resources.Memory.Value}
	if s.watch != nil {
		end.Peak, end.OOM = s.watch.Peak(), s.watch.Exceeded()
		if limit := s.run.Policy.Resources.Pids.Value; limit > 0 && s.watch.Processes() >= limit {
			end.Forks = 1
		}
	}
	select {
	case <-s.full:
		end.Full = true
	default:
	}
	if s.filled != nil {
		end.Filled = <-s.filled
	}
	if result != nil {
		end.Result = *result
		end.count()
	}
	if s.group != nil {
		happened := s.group.Events()
		end.Kills, end.Forks = happened.OOMKills, max(end.Forks, happened.PidsDenied)
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
