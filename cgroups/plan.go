package cgroups

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Resource is something that a limit bounds. Resources are bits, so that a
// set of them is a Resource too.
type Resource uint8

// The resources, in the order in which plans name them.
const (
	Memory Resource = 1 << iota
	CPUs
	Pids
)

var resources = [...]Resource{Memory, CPUs, Pids}

// String returns the name of one resource.
func (r Resource) String() string {
	switch r {
	case Memory:
		return "memory"
	case CPUs:
		return "cpus"
	case Pids:
		return "pids"
	}
	return fmt.Sprintf("BUG: resources %#x", uint8(r))
}

// controller returns the kernel's name for what bounds r, the same in both
// versions of cgroups.
func (r Resource) controller() string {
	switch r {
	case Memory:
		return "memory"
	case CPUs:
		return "cpu"
	}
	return "pids"
}

// Limits bound a sandbox as a whole. Zero is no limit.
type Limits struct {
	Memory int64 // bytes; swap, shared memory and private filesystems included
	CPUs   int64 // thousandths of a processor
	Pids   int64 // processes and threads
}

// Of returns the limit of one resource.
func (l Limits) Of(r Resource) int64 {
	switch r {
	case Memory:
		return l.Memory
	case CPUs:
		return l.CPUs
	}
	return l.Pids
}

// State says how far a limit is kept.
type State uint8

// The states, from best to worst.
const (
	Kept    State = iota
	Weak          // by a mechanism whose gap the answer names
	Missing       // not at all
)

// The mechanisms that answers name.
const (
	ByV2         = "cgroup v2"
	BySystemd    = "cgroup v2 by systemd"
	ByV1         = "cgroup v1"
	ByNProc      = "RLIMIT_NPROC in the user namespace"
	BySupervisor = "supervisor over the process tree"
	ByAffinity   = "processor set"
	ByHardware   = "the machine has no more"
)

// An Answer says of one limit what keeps it.
type Answer struct {
	Resource  Resource
	State     State
	Mechanism string // one of the By constants
	Cause     string // weak: the gap
	Hint      string // what would make it kept, if known
}

// A Write puts a value into a file of a control group.
type Write struct {
	File, Value string
	Optional    bool // the kernel may have been built without this file
}

// A Dir is a control group to be made.
type Dir struct {
	Mechanism string   // ByV2, BySystemd or ByV1
	Parent    string   // the directory to make it in; "" where systemd will say
	Leaf      bool     // this process leaves Parent for a group beside the new one first, so that Parent may have controllers
	Enable    []string // v2: controllers that Parent does not yet hand down
	Writes    []Write  // in order
}

// A Plan says what [Plan.Create] will make, and what is left to the launcher.
type Plan struct {
	Answers   []Answer // one for each limit that is set, in the order of the resources
	Dirs      []Dir    // at most one of v2, and it comes first
	Bus       string   // the socket of the service manager that is asked for a scope; "" for none
	Sheds     bool     // see [Options.Sheds]
	NProc     int64    // RLIMIT_NPROC, hard and soft, to be set by a process that is in the sandbox's user namespace; 0 for none
	Supervise int64    // bytes that a [Supervisor] has to hold; 0 for none
	Affinity  int      // number of processors that the sandbox may run on; 0 for all. See [Processors]
}

// Born reports whether a process can be cloned into the group of cgroup v2 that
// the plan makes ([Group.FD]): there is one, and whoever makes it goes on as
// the same user.
func (p Plan) Born() bool {
	return !p.Sheds && len(p.Dirs) > 0 && p.Dirs[0].Mechanism != ByV1
}

// Options change how a plan is made.
type Options struct {
	// Cheap is the set of resources whose limits are not worth the 5 to 14 ms
	// that it takes to move a process into a control group: they get one only
	// where that costs nothing, by CLONE_INTO_CGROUP into a directory that
	// needs no preparation, or because another limit needs the group anyway.
	Cheap Resource

	// Sheds says that this process is root, and somebody else when it attaches and
	// removes. The groups stay root's then, and so does their removal: see
	// [Group.Directories].
	Sheds bool
}

// A Tree is a place in the cgroup v2 hierarchy where groups may be made.
type Tree struct {
	Dir         string   // "" where systemd will say
	Bus         string   // the socket of the service manager that is asked for a scope; "" for none
	Leaf        bool     // this process is the only one in Dir, and must leave it for a group below
	Controllers []string // those that Dir can hand down
}

// A V1 is a directory of a cgroup v1 hierarchy in which groups may be made.
type V1 struct {
	Resource Resource
	Dir      string
	Swap     bool // memory: the kernel counts swap too
}

// Host says which mechanisms this process has here. The zero value has none
// but those that need no look at the machine.
type Host struct {
	V2         []Tree // best first
	V1         []V1   // at most one for each resource
	Processors int    // that this process may run on; 0 if not looked at
	NProc      bool   // RLIMIT_NPROC inside a user namespace counts that namespace only (Linux 5.14)
	Hint       string // what would give this process a control group; "" if not known
}

// Plan picks a mechanism for every limit. It touches nothing.
func (h Host) Plan(l Limits, o Options) Plan {
	p := Plan{Sheds: o.Sheds}
	tree := h.tree(l, o)
	for _, r := range resources {
		n := l.Of(r)
		if n <= 0 {
			continue
		}
		a := Answer{Resource: r}
		v1, hasV1 := h.v1(r)
		switch {
		case r == CPUs && h.Processors > 0 && n >= int64(h.Processors)*1000:
			a.Mechanism = ByHardware
		case tree.has(r):
			a.Mechanism = tree.mechanism()
			p.addV2(tree, r, n)
		case hasV1 && o.Cheap&r == 0:
			a.Mechanism = ByV1
			p.Dirs = append(p.Dirs, Dir{Mechanism: ByV1, Parent: v1.Dir, Writes: writesV1(v1, n)})
		default:
			p.fallback(h, &a, n)
		}
		p.Answers = append(p.Answers, a)
	}
	return p
}

// tree picks the v2 tree for these limits: the first that has all that cannot
// be cheap, else the first that has some. One that has to be prepared is not
// worth it for cheap limits alone. Who sheds root cannot move back from a leaf
// of its own: systemd removes the scope in which its leaf is.
func (h Host) tree(l Limits, o Options) Tree {
	var second Tree
	for _, t := range h.V2 {
		if o.Sheds && t.Leaf && t.Bus == "" {
			continue
		}
		all, some := true, false
		for _, r := range resources {
			if l.Of(r) > 0 && (o.Cheap&r == 0 || t.ready()) {
				all = all && t.has(r)
				some = some || t.has(r)
			}
		}
		if some && all {
			return t
		}
		if some && second.Controllers == nil {
			second = t
		}
	}
	return second
}

// ready reports whether a process can be cloned into a group of t without
// moving this one first.
func (t Tree) ready() bool { return t.Bus == "" && !t.Leaf }

func (t Tree) has(r Resource) bool { return slices.Contains(t.Controllers, r.controller()) }

func (t Tree) mechanism() string {
	if t.Bus != "" {
		return BySystemd
	}
	return ByV2
}

func (h Host) v1(r Resource) (V1, bool) {
	i := slices.IndexFunc(h.V1, func(v V1) bool { return v.Resource == r })
	if i < 0 {
		return V1{}, false
	}
	return h.V1[i], true
}

// addV2 adds the limit n of r to the v2 group, which is made if it is the
// first.
func (p *Plan) addV2(t Tree, r Resource, n int64) {
	if len(p.Dirs) == 0 || p.Dirs[0].Mechanism == ByV1 {
		d := Dir{Mechanism: t.mechanism(), Parent: t.Dir, Leaf: !t.ready()}
		if slices.Contains(t.Controllers, "io") {
			d.Enable = append(d.Enable, "io") // it bounds nothing, and counts
		}
		p.Bus = t.Bus
		p.Dirs = slices.Insert(p.Dirs, 0, d)
	}
	d := &p.Dirs[0]
	d.Enable = append(d.Enable, r.controller())
	d.Writes = append(d.Writes, writesV2(r, n)...)
}

// writesV2 are the files of Documentation/admin-guide/cgroup-v2.rst. Swap is
// shut, so that memory.max is the bound for both together; without swap in the
// kernel the file is absent. A group is not killed as a whole when memory runs
// out: an agent outlives the build that was too big.
func writesV2(r Resource, n int64) []Write {
	switch r {
	case Memory:
		return []Write{
			{File: "memory.max", Value: strconv.FormatInt(n, 10)},
			{File: "memory.swap.max", Value: "0", Optional: true},
		}
	case CPUs:
		quota, period := bandwidth(n)
		return []Write{{File: "cpu.max", Value: fmt.Sprintf("%d %d", quota, period)}}
	}
	return []Write{{File: "pids.max", Value: tasks(n)}}
}

// tasks writes a limit of processes. The kernel refuses one above what it can have
// at all (PIDS_MAX, kernel/cgroup/pids.c), and the machine itself keeps it then.
func tasks(n int64) string {
	const all = 1 << 22
	return strconv.FormatInt(min(n, all), 10)
}

// writesV1 are the files of Documentation/admin-guide/cgroup-v1. The limit
// with swap may not be below the limit without, so that one comes first; where
// swap is not counted the group does not swap.
func writesV1(v V1, n int64) []Write {
	switch v.Resource {
	case Memory:
		writes := []Write{{File: "memory.limit_in_bytes", Value: strconv.FormatInt(n, 10)}}
		if v.Swap {
			return append(writes, Write{File: "memory.memsw.limit_in_bytes", Value: strconv.FormatInt(n, 10)})
		}
		return append(writes, Write{File: "memory.swappiness", Value: "0"})
	case CPUs:
		quota, period := bandwidth(n)
		return []Write{
			{File: "cpu.cfs_period_us", Value: strconv.FormatInt(period, 10)},
			{File: "cpu.cfs_quota_us", Value: strconv.FormatInt(quota, 10)},
		}
	}
	return []Write{{File: "pids.max", Value: tasks(n)}}
}

// bandwidth turns thousandths of a processor into microseconds in a period.
// The kernel takes quotas from 1 ms and periods up to 1 s (sched(7),
// kernel/sched/core.c), so a small limit needs the longest period.
func bandwidth(thousandths int64) (quota, period int64) {
	if thousandths < 10 {
		return thousandths * 1000, 1_000_000
	}
	return thousandths * 100, 100_000
}

// fallback picks what needs no control group.
func (p *Plan) fallback(h Host, a *Answer, n int64) {
	a.State = Weak
	a.Hint = h.Hint
	switch a.Resource {
	case Memory:
		p.Supervise = n
		a.Mechanism = BySupervisor
		a.Cause = "memory is sampled: a burst may exceed the limit before the sandbox is killed; page cache, kernel memory and hidden shared memory are not counted"
	case CPUs:
		p.Affinity = int((n + 999) / 1000)
		a.Mechanism = ByAffinity
		a.Cause = "a process can ask for the other processors"
		if n%1000 != 0 { // a share would silently become more
			a.State = Missing
			a.Cause = fmt.Sprintf("a fraction of a processor needs a control group: --cpus %d would be more", p.Affinity)
			a.Hint = strings.TrimPrefix(a.Hint+fmt.Sprintf("; or whole processors: --cpus %d", p.Affinity), "; or ")
		}
	case Pids:
		p.NProc = n
		a.Mechanism = ByNProc
		if h.NProc {
			a.State, a.Hint = Kept, ""
		} else {
			a.Cause = "the limit counts all processes of the user"
		}
	}
}

// The names of what is made in control group hierarchies.
const (
	prefix     = "pccrun-"   // what a run makes, and nobody else
	leafSuffix = "-launcher" // where a launcher waits
	inner      = "run"       // v2: where the sandbox lives, below the group that has the limits
	given      = "pccrun."   // and a user's id: a directory that an administrator made for that user
)

// Usage is what a group has used since it was made. Zero is also what nobody
// counted: the resource usage of wait4(2) says more then.
type Usage struct {
	CPU     time.Duration // user and system time
	User    time.Duration // the part in user mode; this and the next are 0 if nobody told them apart
	System  time.Duration // and that in the kernel
	Memory  int64         // bytes at the peak, swap included where the kernel counts it
	Tasks   int64         // processes and threads, the most at a time
	Read    int64         // bytes from block devices
	Written int64         // bytes to block devices
	IO      bool          // the two before were counted
}

// Events are what happened at the limits of a group.
type Events struct {
	OOMKills   int64 // processes that the kernel killed for want of memory
	PidsDenied int64 // forks that were refused
}
