package escape

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pccrun/pccrun/profiles"
)

// A Suite runs probes against targets.
type Suite struct {
	Probes   []*Probe
	Targets  []*Target
	Long     bool                  // run the long ones too
	Parallel int                   // runs at a time; 0: one per processor, at most two
	Progress func(done, total int) // called from one goroutine at a time; may be nil
	Command  string                // how a user calls this program, for the lines that reproduce

	enough   func(*Probe) int // how many layers are looked for that stop a probe alone; nil: all
	site     *site            // of this run
	host     *host
	controls sync.Map // probe id → func() Outcome, once
	smokes   sync.Map // *Target → func() string, once
}

// host is what the suite needs to know of the machine.
type host struct {
	root   bool
	cgroup string
	arch   string
}

func survey() *host {
	h := &host{root: os.Geteuid() == 0, arch: runtime.GOARCH}
	for _, dir := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		if _, err := os.Stat(dir + "/cgroup.procs"); err == nil {
			h.cgroup = dir
			break
		}
	}
	return h
}

// capability says whether the suite has one, in effect.
func (h *host) capability(bit uint) bool {
	mask, err := strconv.ParseUint(statusLine("self", "CapEff"), 16, 64)
	return err == nil && mask>>bit&1 == 1
}

// Run performs every probe against every target. The results are sorted by
// target, then as the probes are. If ctx ends, those that had not ended by then
// are skipped, and the error says why.
func (s *Suite) Run(ctx context.Context) ([]Result, error) {
	if s.site == nil {
		site, err := openSite()
		if err != nil {
			return nil, err
		}
		defer site.close()
		s.site = site
	}
	s.host = survey()
	results := make([]Result, len(s.Probes)*len(s.Targets))
	s.inParallel(len(results), func(i int) { // by probe, since all targets share its control
		probe, target := i/len(s.Targets), i%len(s.Targets)
		results[target*len(s.Probes)+probe] = s.one(ctx, s.Probes[probe], s.Targets[target])
	})
	return results, context.Cause(ctx)
}

// inParallel does n things, some at a time, and tells of its progress.
func (s *Suite) inParallel(n int, do func(int)) {
	var mu sync.Mutex
	done := 0
	work := make(chan int)
	var group sync.WaitGroup
	for range s.parallel() {
		group.Go(func() {
			for i := range work {
				do(i)
				mu.Lock()
				if done++; s.Progress != nil {
					s.Progress(done, n)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	group.Wait()
}

func (s *Suite) parallel() int {
	if s.Parallel > 0 {
		return s.Parallel
	}
	return min(2, runtime.NumCPU())
}

// one performs one probe against one target: control first, since a probe
// that proves nothing need not be tried.
func (s *Suite) one(ctx context.Context, p *Probe, t *Target) (r Result) {
	began := time.Now()
	r = Result{
		Schema: Schema, ID: p.ID, Name: p.Name, Guarantee: p.Guarantee, Severity: p.Severity, Target: t.Name,
		Expect: p.Expect, Refs: p.References, Claim: t.claim(p.Guarantee).State, Reproduce: s.reproduce(p, t),
	}
	if p.Gap != "" && t.Native {
		if c := s.claimWith(ctx, p, t); c.State == profiles.Weak.String() && strings.Contains(c.Cause, p.Gap) {
			r.Claim, r.Gap = c.State, p.Gap
		}
	}
	defer func() {
		r.Duration = time.Since(began)
		if ctx.Err() != nil { // what it saw may be the end that it was put to
			r.Verdict, r.Reason, r.Findings, r.Control, r.Inside = VerdictSkipped, context.Cause(ctx).Error(), nil, Outcome{}, Outcome{}
		}
	}()
	if ctx.Err() != nil {
		return r
	}
	if need := t.lacks(p, s.host); need != "" {
		r.Verdict, r.Reason = VerdictSkipped, "needs "+string(need)
		return r
	}
	if p.Long && !s.Long {
		r.Verdict, r.Reason = VerdictSkipped, "needs --long"
		return r
	}
	if broken := s.smoke(ctx, t); broken != "" {
		r.Verdict, r.Reason = VerdictError, notStarted+broken
		return r
	}
	r.Control = s.control(ctx, p)
	if r.Control.Kind == DidEscape {
		r.Inside = s.perform(ctx, s.job(p, t))
	}
	r.Verdict, r.Reason = judge(p, r.Control, r.Inside, t.claim(p.Guarantee))
	if r.Verdict == VerdictBlocked || r.Verdict == VerdictDegraded {
		r.Findings = findings(p, r.Inside)
	}
	return r
}

// claimWith is what a target says of a probe's guarantee under the probe's own flags.
func (s *Suite) claimWith(ctx context.Context, p *Probe, t *Target) Claim {
	if len(p.Flags) == 0 || t.plan == nil {
		return t.claim(p.Guarantee)
	}
	with := *t
	with.Argv = slices.Insert(slices.Clone(t.Argv), len(t.Argv)-2, p.Flags...)
	if with.ask(ctx, s.site.dir) != nil {
		return t.claim(p.Guarantee)
	}
	return with.claim(p.Guarantee)
}

// smoke says why a target cannot run even a payload that does nothing, "" if it
// can: known once, it need not be found out by every probe.
func (s *Suite) smoke(ctx context.Context, t *Target) string {
	once, _ := s.smokes.LoadOrStore(t, sync.OnceValue(func() string {
		var o Outcome
		for range 3 { // one start in three may fail for a reason of the machine's
			if o = s.perform(ctx, s.job(Find(smokeID), t)); o.Kind != Broke {
				return ""
			}
		}
		return o.Detail
	}))
	return once.(func() string)()
}

const notStarted = "the launcher does not start: "

// smokeID is the probe whose payload does what honest programs do.
const smokeID = "KS-040"

// control performs a probe without protection, once for all targets.
func (s *Suite) control(ctx context.Context, p *Probe) Outcome {
	once, _ := s.controls.LoadOrStore(p.ID, sync.OnceValue(func() Outcome {
		j := s.job(p, nil)
		j.Control, j.Caged = true, true
		return s.perform(ctx, j)
	}))
	return once.(func() Outcome)()
}

func (s *Suite) job(p *Probe, t *Target) *job {
	j := &job{ID: p.ID, Dir: s.site.dir, Run: s.site.id, Self: s.site.self, Caged: p.Setting&Caged != 0, User: !s.host.root, UID: os.Getuid(), GID: os.Getgid()}
	if t != nil {
		j.Argv, j.Launcher, j.Profile, j.Engine = t.Argv, t.Launcher, t.Profile, t.Engine
		j.Environ, j.Provider = t.Environ, t.Provider
		if j.Shared = j.Caged && t.Provider != ""; j.Shared {
			j.Namespaces = ownNamespaces()
		}
	}
	return j
}

func (s *Suite) perform(ctx context.Context, j *job) Outcome {
	if ctx.Err() != nil {
		return Broken("%v", context.Cause(ctx))
	}
	if !j.Caged {
		return perform(ctx, j)
	}
	o, err := cage(ctx, j)
	if err != nil {
		return Broken("%v", err)
	}
	return o
}

// reproduce is a command line that runs this probe alone.
func (s *Suite) reproduce(p *Probe, t *Target) string {
	line := s.Command + " escape --id " + p.ID
	if !t.Native {
		line += " --wrap '" + strings.ReplaceAll(strings.Join(t.Argv, " "), "'", `'\''`) + "'"
	} else {
		line += strings.Join(append([]string{""}, t.flags()...), " ")
	}
	return line
}

// untested lists the guarantees that a target claims and no probe has tried.
func untested(t *Target, results []Result) []profiles.Guarantee {
	var list []profiles.Guarantee
	for _, c := range t.Claims {
		if c.State != profiles.Kept.String() && c.State != profiles.Weak.String() {
			continue
		}
		if !slices.ContainsFunc(results, func(r Result) bool {
			return r.Target == t.Name && r.Guarantee == c.Guarantee && (r.Verdict == VerdictBlocked || r.Verdict == VerdictDegraded || r.Verdict == VerdictEscaped)
		}) {
			list = append(list, c.Guarantee)
		}
	}
	return list
}

// Hidden runs one of the verbs by which the program starts itself; it is false
// if args are none of them.
func Hidden(args []string) (code int, is bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch verb, rest := args[0], args[1:]; {
	case verb == probeVerb && len(rest) == 2:
		return runPayload(rest[0], rest[1]), true
	case verb == helperVerb && len(rest) >= 2:
		return runHelper(rest[0], rest[1], rest[2:]), true
	case verb == cageVerb && len(rest) == 1:
		return runCage(rest[0]), true
	case verb == aloneVerb && len(rest) >= 3:
		return runAlone(profiles.Layer(rest[0]), rest[1], rest[2:]), true
	case verb == runcVerb && len(rest) >= 4:
		return runRunc(rest[0], rest[1], rest[2], rest[3], rest[4:]), true
	}
	return 0, false
}
