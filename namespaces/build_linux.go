package namespaces

import (
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces/network"
	"github.com/pccrun/pccrun/profiles"
)

// Command is what runs inside.
type Command struct {
	Paths []string // tried in order, as execvp(3) does
	Argv  []string
	Env   []string
	Dir   string
	Umask int
}

// Plan is a run, decided down to each mount. It is a value: nothing in it
// depends on the kernel any more, and --dry-run prints it.
type Plan struct {
	Shell
	Additions
	Mounts   []Mount
	Disk     int64 // bytes of all fresh directories together; 0: half of the memory, as tmpfs(5) has it
	Inodes   int64
	Landlock int        // ABI version to use, 0 for none
	Readable []Readable // what Landlock lets be read; none: it leaves reading to the mounts
	Rlimits  []Rlimit
	OOMScore int // how soon the kernel ends what is inside for want of memory, proc_pid_oom_score_adj(5): sooner than the launcher
	Deadline time.Duration
	Grace    time.Duration
	Unhidden bool           // a path that a rule hides does not exist: there is nothing to cover
	Folding  survey.Folding // where names are reached by other spellings than the rules'

	// CoreHandler is what of the host a crash inside would feed, as its
	// core_pattern names it; "" if nothing.
	CoreHandler string

	Command Command
	Staging *Staging       // nil for none
	Configs map[string]int // as root: descriptors of the directories of configurations of git that the launcher merges into, and the command may not write
	Checked map[string]int // as root: descriptors of the directories that the post-run check looks through

	guarded []string // the directories that the launcher looks through at the end
}

// Additions are what a plan has more than mounts and processes.
type Additions struct {
	Floor      []byte // a filter below the other, and a layer of its own: what not even a filter of the user's own may allow
	Filter     []byte
	FilterName string
	OwnFilter  bool             // the filter is the user's: it may refuse what pid 1 would still like to do
	Sockets    []byte           // a filter more, which lets no unix socket be made but pairs; nil for none
	Watch      *Watch           // a filter more, which asks the launcher; nil for none
	CPUs       []byte           // processors that the sandbox may run on, as sched_setaffinity(2) takes them; nil for all
	Segments   bool             // the launcher gets the tables of System V objects ([Sandbox.SysV])
	Listen     []netip.AddrPort // of the sandbox's loopback, served by the launcher
	Network    *network.Plan    // the way out for what does not know of those; nil for none
	Questions  bool             // the launcher hears what the sandbox's name server is asked, where Network is nil: see [Sandbox.Questions]
	Dial       int              // sockets with which the launcher can connect to ports inside at once
	PassFDs    []int            // descriptors beyond 2 that the command gets as they are
}

// Watch is a filter that asks the launcher about some calls, and lets all else
// pass: [Sandbox.Listener] says where it asks.
type Watch struct {
	Filter   []byte
	Flags    int  // of seccomp(2)
	Broker   bool // the launcher makes names in place of the command: see [Plan.At]
	Opens    bool // and opens files for it
	Required bool // else the run goes on without where the kernel has a supervisor around this one already
}

// Rlimit is one setrlimit(2) of the command.
type Rlimit struct {
	Resource   int
	Name       string
	Soft, Hard uint64
}

// Shell is the part of a plan that does not depend on the survey, so that it
// can be started before it.
type Shell struct {
	Identity Identity
	Nested   bool
	Without  []profiles.Layer

	// Cgroup is a descriptor of the cgroup v2 directory that the sandbox is born
	// in, 0 for the caller's own: 0 to 2 are always the standard descriptors.
	Cgroup int
}

// has reports whether a layer is on.
func (p Shell) has(l profiles.Layer) bool {
	for _, w := range p.Without {
		if w == l {
			return false
		}
	}
	return true
}

// Build plans what the policy asks of mounts and processes; [Plan.With] adds the filter, the
// limits and the network. Both are pure.
func Build(policy *profiles.Policy, s *survey.Survey, f *Facts, c Command) (*Plan, error) {
	mounts, err := Mounts(s.Places)
	if err != nil {
		return nil, err
	}
	guarded := []string{s.Query.Root}
	for _, t := range s.Trees {
		guarded = append(guarded, t.Query.Root)
	}
	p := &Plan{
		guarded:     guarded,
		Shell:       Shell{Identity: f.Identity, Nested: policy.Nested, Without: policy.Without},
		Mounts:      mounts,
		Disk:        policy.Resources.Disk.Value,
		Landlock:    f.Landlock,
		Readable:    f.Readable,
		Deadline:    policy.Resources.Deadline(),
		CoreHandler: f.CoreHandler,
		OOMScore:    f.OOMScore,
		Unhidden:    s.Unhidden,
		Folding:     s.Folding,
		Grace:       5 * time.Second,
		Command:     c,
	}
	p.Inodes = max(p.Disk>>15, 128) // one for each 32 KiB: many empty files fill a disk as well
	for i := range mounts {         // what is not the command's own does not count
		if mounts[i].Kind == PrivateCopy && p.Disk > 0 {
			p.Disk += (int64(len(mounts[i].Text)) + pageSize - 1) &^ (pageSize - 1)
			p.Inodes += 3 // the link, the directory of the copy, and that
		}
	}
	p.Mounts = append(p.Mounts, f.Texts...)
	p.Rlimits = rlimits(&policy.Resources, f)
	traced := s.Traces
	for _, n := range s.Named {
		name := strings.TrimPrefix(n.Path, n.In+"/")
		if n.In == policy.Home {
			traced = append(traced, name)
		} else {
			p.trace(n.In, []string{name})
		}
	}
	p.trace(policy.Home, traced)
	return p, nil
}

// pageSize is what a file of a tmpfs takes at least.
const pageSize = 4096

// rlimits returns what the command gets, getrlimit(2).
func rlimits(r *profiles.Resources, f *Facts) []Rlimit {
	files := Rlimit{unix.RLIMIT_NOFILE, "open files", f.Files.Cur, f.Files.Max}
	if n := uint64(r.Files.Value); n > 0 {
		files.Soft, files.Hard = n, n
	}
	// A limit of 0 does not stop a core_pattern that pipes to a handler of the
	// host's root; 1 does (core(5)). The filter keeps it so.
	list := []Rlimit{files, {unix.RLIMIT_CORE, "core dumps", min(1, f.Core.Max), min(1, f.Core.Max)}, {unix.RLIMIT_RTPRIO, "real-time priority", 0, 0}, {unix.RLIMIT_NICE, "priority", 0, 0}}
	// Counted for the user, on the host too: without one, none of his programs
	// there makes a timer. The other half is theirs.
	if n := f.Pending.Cur / 2; n > 0 {
		list = append(list, Rlimit{unix.RLIMIT_SIGPENDING, "signals that wait", n, n})
	}
	if n := uint64(r.FileSize.Value); n > 0 {
		list = append(list, Rlimit{unix.RLIMIT_FSIZE, "file size", n, n})
	}
	// What is so already is left alone: some kernels refuse to set what they do not have.
	return slices.DeleteFunc(list, func(l Rlimit) bool {
		have, known := f.Limits[l.Resource]
		return known && have == unix.Rlimit{Cur: l.Soft, Max: l.Hard}
	})
}

// With is what [Plan.With] adds.
type With struct {
	Additions
	Programs []Readable // what may be executed where the launcher opens all else: see [Plan.Programs]
	Rlimits  []Rlimit   // in addition to those of [Build]
	Disk     int64      // where the policy has no limit of its own
	Told     string     // a directory that the command can read and only the launcher can write ([Sandbox.Create]); "" for none
}

// With returns the plan with what w adds.
func (p *Plan) With(w With) *Plan {
	p = p.clone()
	p.Additions = w.Additions
	p.Readable = slices.Concat(p.Readable, w.Programs)
	p.Rlimits = slices.Concat(p.Rlimits, w.Rlimits)
	if p.Disk == 0 && w.Disk > 0 {
		p.Disk, p.Inodes = w.Disk, max(w.Disk>>15, 128)
	}
	if w.Told != "" {
		p.addFresh(w.Told, "denials, for the command to read")
	}
	return p
}

// Bound is what a run gives to its plan when it begins.
type Bound struct {
	Upper string     // the directory for what overlays change: each gets one in it, named by number: 0, 1, …
	Texts []TextFile // read-only files of the launcher's own
	Env   []string

	Staging *Staging // nil for none
}

// TextFile is such a file, over the host's of that name, or in [With.Told].
type TextFile struct{ Path, Text, Why string }

// Bind returns the plan as a run begins with it: it is the run's own, which opens what it
// binds ([Plan.Donate]).
func (p *Plan) Bind(b Bound) *Plan {
	p = p.clone()
	for n, m := range p.Overlays() {
		m.Upper = filepath.Join(b.Upper, strconv.Itoa(n))
	}
	for _, t := range b.Texts {
		p.addText(t)
	}
	p.Command.Env, p.Staging = b.Env, b.Staging
	return p
}

// clone returns a plan that shares nothing with the plan which is changed later.
func (p *Plan) clone() *Plan {
	q := *p
	q.Mounts = slices.Clone(p.Mounts)
	for i := range q.Mounts {
		q.Mounts[i].Stubs = slices.Clip(q.Mounts[i].Stubs)
	}
	q.Checked, q.Configs = maps.Clone(p.Checked), maps.Clone(p.Configs)
	return &q
}

// addFresh adds an empty directory. Its parent must be private.
func (p *Plan) addFresh(path, why string) {
	for i := range p.Mounts {
		if m := &p.Mounts[i]; m.Kind == Fresh && m.Target == filepath.Dir(path) {
			m.stub(Stub{Name: filepath.Base(path), Node: Directory})
			p.Mounts = append(p.Mounts, Mount{Kind: Fresh, Target: path, ReadOnly: true, Mode: 0o755, Donated: -1, Why: why})
			return
		}
	}
}

func (p *Plan) addText(t TextFile) {
	m := Mount{Kind: Text, Target: t.Path, Text: t.Text, Mode: 0o444, ReadOnly: true, Donated: -1, Why: t.Why}
	i := slices.IndexFunc(p.Mounts, func(m Mount) bool { return m.Kind == Fresh && m.Target == filepath.Dir(t.Path) })
	if i >= 0 {
		p.Mounts[i].stub(Stub{Name: filepath.Base(t.Path), Node: File})
	}
	m.Optional = i < 0 // the policy may hide what it would cover
	p.Mounts = append(p.Mounts, m)
}

// KernelFiles returns which of the kernel's own files this plan's sandbox makes
// read-only, and which it covers: for whoever hands the plan to another runtime.
func (p *Plan) KernelFiles() (readOnly, covered []string) {
	if p.Nested || !p.has(profiles.LayerProcMasks) {
		return nil, nil
	}
	return KernelFiles()
}

// HomeStubs returns what must stand in the persistent home for the mounts in it, parents
// first; nil where there is none.
func (p *Plan) HomeStubs() []Stub {
	if i := slices.IndexFunc(p.Mounts, func(m Mount) bool { return m.Kind == Persist }); i >= 0 {
		return p.Mounts[i].Stubs
	}
	return nil
}
