package cgroups

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	allV2 = []string{"cpu", "io", "memory", "pids"}
	some  = Limits{Memory: 512 << 20, CPUs: 1500, Pids: 100}
)

func hostV1() Host {
	return Host{V1: []V1{
		{Resource: Memory, Dir: "/sys/fs/cgroup/memory/x", Swap: true},
		{Resource: CPUs, Dir: "/sys/fs/cgroup/cpu/x"},
		{Resource: Pids, Dir: "/sys/fs/cgroup/pids/x"},
	}, Processors: 4, NProc: true}
}

func TestBorn(t *testing.T) {
	v1, v2 := Dir{Mechanism: ByV1}, Dir{Mechanism: ByV2}
	require.False(t, Plan{}.Born())
	require.False(t, Plan{Dirs: []Dir{v1, v1}}.Born())
	require.True(t, Plan{Dirs: []Dir{v2, v1}}.Born())
	require.True(t, Plan{Dirs: []Dir{{Mechanism: BySystemd}}}.Born())
	require.False(t, Plan{Dirs: []Dir{v2}, Sheds: true}.Born())
}

func TestPlan(t *testing.T) {
	v2 := Tree{Dir: "/cg/own", Controllers: allV2}
	leaf := Tree{Dir: "/cg/own", Leaf: true, Controllers: allV2}
	systemd := Tree{Bus: "/run/user/1000/bus", Leaf: true, Controllers: []string{"memory", "pids"}}
	for _, test := range []struct {
		name    string
		host    Host
		limits  Limits
		options Options
		want    string
	}{
		{"no limits", hostV1(), Limits{}, Options{}, ""},
		{"v2", Host{V2: []Tree{v2}}, some, Options{}, `
memory: kept: cgroup v2
cpus: kept: cgroup v2
pids: kept: cgroup v2
/cg/own/cgroup.subtree_control: +io +memory +cpu +pids
/cg/own/pccrun-*/memory.max: 536870912
/cg/own/pccrun-*/memory.swap.max: 0
/cg/own/pccrun-*/cpu.max: 150000 100000
/cg/own/pccrun-*/pids.max: 100
`},
		{"v2 costs nothing, so cheap limits have it too", Host{V2: []Tree{v2}}, Limits{Pids: 100}, Options{Cheap: Pids}, `
pids: kept: cgroup v2
/cg/own/cgroup.subtree_control: +io +pids
/cg/own/pccrun-*/pids.max: 100
`},
		{"cheap limits are not worth a leaf", Host{V2: []Tree{leaf}, NProc: true}, Limits{Pids: 100}, Options{Cheap: Pids}, `
pids: kept: RLIMIT_NPROC in the user namespace
RLIMIT_NPROC: 100
`},
		{"but share one that is made anyway", Host{V2: []Tree{leaf}, NProc: true}, Limits{Pids: 100, CPUs: 500}, Options{Cheap: Pids}, `
cpus: kept: cgroup v2
pids: kept: cgroup v2
/cg/own/cgroup.subtree_control: +io +cpu +pids
/cg/own/pccrun-*/cpu.max: 50000 100000
/cg/own/pccrun-*/pids.max: 100
`},
		{"systemd without cpu", Host{V2: []Tree{systemd}, Hint: "h"}, some, Options{}, `
memory: kept: cgroup v2 by systemd
cpus: missing: processor set: a fraction of a processor needs a control group: --cpus 2 would be more
pids: kept: cgroup v2 by systemd
systemd at /run/user/1000/bus: a scope
(scope)/cgroup.subtree_control: +memory +pids
(scope)/pccrun-*/memory.max: 536870912
(scope)/pccrun-*/memory.swap.max: 0
(scope)/pccrun-*/pids.max: 100
processors: 2
`},
		{"the tree that has all comes before a better one", Host{V2: []Tree{{Dir: "/cg", Controllers: []string{"pids"}}, systemd}},
			Limits{Memory: 1 << 20}, Options{}, `
memory: kept: cgroup v2 by systemd
systemd at /run/user/1000/bus: a scope
(scope)/cgroup.subtree_control: +memory
(scope)/pccrun-*/memory.max: 1048576
(scope)/pccrun-*/memory.swap.max: 0
`},
		{"v1", hostV1(), some, Options{}, `
memory: kept: cgroup v1
cpus: kept: cgroup v1
pids: kept: cgroup v1
/sys/fs/cgroup/memory/x/pccrun-*/memory.limit_in_bytes: 536870912
/sys/fs/cgroup/memory/x/pccrun-*/memory.memsw.limit_in_bytes: 536870912
/sys/fs/cgroup/cpu/x/pccrun-*/cpu.cfs_period_us: 100000
/sys/fs/cgroup/cpu/x/pccrun-*/cpu.cfs_quota_us: 150000
/sys/fs/cgroup/pids/x/pccrun-*/pids.max: 100
`},
		{"v1 without swap accounting", Host{V1: []V1{{Resource: Memory, Dir: "/m"}}}, Limits{Memory: 1 << 20}, Options{}, `
memory: kept: cgroup v1
/m/pccrun-*/memory.limit_in_bytes: 1048576
/m/pccrun-*/memory.swappiness: 0
`},
		{"v1, cheap", hostV1(), some, Options{Cheap: Memory | Pids}, `
memory: weak: supervisor over the process tree: memory is sampled: a burst may exceed the limit before the sandbox is killed; page cache, kernel memory and hidden shared memory are not counted
cpus: kept: cgroup v1
pids: kept: RLIMIT_NPROC in the user namespace
/sys/fs/cgroup/cpu/x/pccrun-*/cpu.cfs_period_us: 100000
/sys/fs/cgroup/cpu/x/pccrun-*/cpu.cfs_quota_us: 150000
RLIMIT_NPROC: 100
supervisor: 536870912 bytes
`},
		{"hybrid: each resource where its controller is", Host{V2: []Tree{{Dir: "/cg", Controllers: []string{"pids"}}},
			V1: []V1{{Resource: Memory, Dir: "/m", Swap: true}}}, Limits{Memory: 1 << 20, Pids: 7}, Options{}, `
memory: kept: cgroup v1
pids: kept: cgroup v2
/cg/cgroup.subtree_control: +pids
/cg/pccrun-*/pids.max: 7
/m/pccrun-*/memory.limit_in_bytes: 1048576
/m/pccrun-*/memory.memsw.limit_in_bytes: 1048576
`},
		{"whoever sheds root makes no leaf", Host{V2: []Tree{leaf}, NProc: true}, Limits{Pids: 7}, Options{Sheds: true}, `
pids: kept: RLIMIT_NPROC in the user namespace
RLIMIT_NPROC: 7
`},
		{"but one in a scope", Host{V2: []Tree{leaf, systemd}}, Limits{Pids: 7}, Options{Sheds: true}, `
pids: kept: cgroup v2 by systemd
systemd at /run/user/1000/bus: a scope
(scope)/cgroup.subtree_control: +pids
(scope)/pccrun-*/pids.max: 7
`},
		{"no more processors than that", Host{Processors: 2}, Limits{CPUs: 2000}, Options{}, `
cpus: kept: the machine has no more
`},
		{"whole processors", Host{Processors: 4}, Limits{CPUs: 2000}, Options{}, `
cpus: weak: processor set: a process can ask for the other processors
processors: 2
`},
		{"part of a processor", Host{Processors: 4}, Limits{CPUs: 100}, Options{}, `
cpus: missing: processor set: a fraction of a processor needs a control group: --cpus 1 would be more
processors: 1
`},
		{"part of one too many", Host{Processors: 1}, Limits{CPUs: 1500}, Options{}, `
cpus: kept: the machine has no more
`},
		{"nothing, old kernel", Host{Hint: "h"}, Limits{Pids: 7}, Options{}, `
pids: weak: RLIMIT_NPROC in the user namespace: the limit counts all processes of the user
RLIMIT_NPROC: 7
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := test.host.Plan(test.limits, test.options)
			require.Equal(t, strings.TrimPrefix(test.want, "\n"), p.String())
		})
	}
}

func TestPlanHints(t *testing.T) {
	h := Host{Hint: "do this"}
	p := h.Plan(some, Options{})
	for _, a := range p.Answers {
		require.NotEmpty(t, a.Cause)
		if a.Resource == CPUs {
			require.Equal(t, "do this; or whole processors: --cpus 2", a.Hint)
			continue
		}
		require.Equal(t, Weak, a.State)
		require.Equal(t, "do this", a.Hint)
	}
	require.Equal(t, some.Memory, p.Supervise)
	require.Equal(t, 2, p.Affinity)
	require.Equal(t, some.Pids, p.NProc)
}

// The quota is what was asked for, at every size, and one that the kernel takes.
func TestBandwidth(t *testing.T) {
	for _, n := range []int64{1, 9, 10, 11, 999, 1000, 1500, 64000} {
		quota, period := bandwidth(n)
		require.Equal(t, n, quota*1000/period, n)
		require.GreaterOrEqual(t, quota, int64(1000))
		require.LessOrEqual(t, period, int64(1_000_000))
	}
}

func TestNames(t *testing.T) {
	require.Equal(t, "memory cpus pids", Memory.String()+" "+CPUs.String()+" "+Pids.String())
	require.Equal(t, "BUG: resources 0x3", (Memory | CPUs).String())
}

// What no kernel can have is written as the most that it takes, so that such a
// limit is no error.
func TestMoreProcessesThanThereCanBe(t *testing.T) {
	require.Equal(t, "4194304", tasks(1<<31-1))
	require.Equal(t, "4096", tasks(4096))
}

// String prints a plan for a table of them: a line for each answer, then what is written, then
// what is left to the launcher.
func (p Plan) String() string {
	var b strings.Builder
	for _, a := range p.Answers {
		fmt.Fprintf(&b, "%s: %s: %s", a.Resource, a.State, a.Mechanism)
		if a.Cause != "" {
			fmt.Fprintf(&b, ": %s", a.Cause)
		}
		b.WriteByte('\n')
	}
	if p.Bus != "" {
		fmt.Fprintf(&b, "systemd at %s: a scope\n", p.Bus)
	}
	for _, d := range p.Dirs {
		parent := d.Parent
		if parent == "" {
			parent = "(scope)"
		}
		if len(d.Enable) > 0 {
			fmt.Fprintf(&b, "%s/cgroup.subtree_control: +%s\n", parent, strings.Join(d.Enable, " +"))
		}
		for _, w := range d.Writes {
			fmt.Fprintf(&b, "%s/%s*/%s: %s\n", parent, prefix, w.File, w.Value)
		}
	}
	if p.Affinity > 0 {
		fmt.Fprintf(&b, "processors: %d\n", p.Affinity)
	}
	if p.NProc > 0 {
		fmt.Fprintf(&b, "RLIMIT_NPROC: %d\n", p.NProc)
	}
	if p.Supervise > 0 {
		fmt.Fprintf(&b, "supervisor: %d bytes\n", p.Supervise)
	}
	return b.String()
}

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Kept:
		return "kept"
	case Weak:
		return "weak"
	case Missing:
		return "missing"
	}
	return "BUG: unknown state"
}
