//go:build linux

package cgroups

import (
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/test/groups"
)

// create makes the groups of a plan in which all limits are kept by mechanism,
// or skips the test where this user cannot have that. They are gone when the
// test ends.
func create(t *testing.T, l Limits, mechanism string) *Group {
	t.Helper()
	p := Survey(Memory|CPUs|Pids).Plan(l, Options{})
	for _, a := range p.Answers {
		if a.Mechanism != mechanism {
			t.Skipf("needs %s for %s: there is %s", mechanism, a.Resource, a.Mechanism)
		}
	}
	return createPlan(t, p)
}

func createPlan(t *testing.T, p Plan) *Group {
	t.Helper()
	g, err := p.Create()
	require.NoError(t, err)
	paths := g.Paths()
	t.Cleanup(func() {
		killIn(g)
		require.NoError(t, g.Remove(await.Patience))
		for _, dir := range paths {
			require.NoDirExists(t, dir)
		}
	})
	return g
}

// killIn kills all processes in a group.
func killIn(g *Group) {
	for _, dir := range g.Paths() {
		for _, pid := range pidsBelow(dir) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// agree reads the groups by containerd's library too, and holds both readings to each other.
func agree(t *testing.T, g *Group) groups.Reading {
	t.Helper()
	before := g.Usage()
	r, err := groups.Read(g.Paths()...)
	require.NoError(t, err)
	after := g.Usage()
	for _, c := range []struct {
		what            string
		low, read, high int64
	}{{"memory", before.Memory, int64(r.MemoryPeak), after.Memory}, {"processor time", int64(before.CPU), int64(r.CPU), int64(after.CPU)}} {
		require.LessOrEqual(t, c.low, c.read, c.what)
		require.LessOrEqual(t, c.read, c.high, c.what)
	}
	if after.Tasks > 0 { // newer kernels count the peak
		require.LessOrEqual(t, int64(r.Pids), after.Tasks)
	}
	var mine []int
	for _, dir := range g.Paths()[len(g.Paths())-1:] {
		mine = append(mine, pidsBelow(dir)...)
	}
	require.ElementsMatch(t, mine, r.Processes)
	return r
}

func TestV1Memory(t *testing.T) {
	g := create(t, Limits{Memory: 64 * mib}, ByV1)
	control := start(t, 0, "anonymous", strconv.Itoa(32*mib))
	require.NoError(t, g.Attach(control.Process.Pid))
	control.proceed()
	require.Equal(t, "done", control.line())
	require.Zero(t, g.Events())
	require.Greater(t, g.Usage().Memory, int64(32*mib))
	r := agree(t, g)
	require.Equal(t, uint64(64*mib), r.MemoryLimit)
	require.Equal(t, []int{control.Process.Pid}, r.Processes)

	hog := start(t, 0, "anonymous", strconv.Itoa(256*mib))
	require.NoError(t, g.Attach(hog.Process.Pid))
	hog.proceed()
	require.Equal(t, "", hog.line())
	var exit interface{ Sys() any }
	require.ErrorAs(t, hog.Wait(), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
	require.Positive(t, g.Events().OOMKills)
	require.Less(t, g.Usage().Memory, int64(65*mib))
}

func TestV1Pids(t *testing.T) {
	g := create(t, Limits{Pids: 24}, ByV1)
	needSandbox(t)
	c := start(t, sandbox, "pids", "100")
	require.NoError(t, g.Attach(c.Process.Pid))
	c.proceed()
	got, err := strconv.Atoi(c.line())
	require.NoError(t, err)
	require.Less(t, got, 24)
	require.Greater(t, got, 4)
	require.Positive(t, g.Events().PidsDenied)
	r := agree(t, g)
	require.Equal(t, uint64(24), r.PidsLimit)
	require.Equal(t, uint64(24), r.Pids)

	control := start(t, sandbox, "pids", "100")
	control.proceed()
	require.Equal(t, "100", control.line())
}

func TestV1CPU(t *testing.T) {
	g := create(t, Limits{CPUs: 20}, ByV1) // less than a busy machine gives it of itself
	c := start(t, 0, "spin", "1000")
	require.NoError(t, g.Attach(c.Process.Pid))
	c.proceed()
	got, err := strconv.Atoi(c.line())
	require.NoError(t, err)
	require.Less(t, got, 320, "thousandths of a processor")
	require.Positive(t, agree(t, g).Throttled)
}

// A launcher that sheds root moves a process into its groups all the same, and leaves
// their removal to root.
func TestGroupOfWhoShedsRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	p := Survey(Pids).Plan(Limits{Pids: 20}, Options{Sheds: true})
	require.Len(t, p.Dirs, 1)
	g, err := p.Create()
	require.NoError(t, err)
	dirs := g.Directories()
	c := start(t, 0, "sleep")
	asUser(t, nobody, func() {
		require.NoError(t, g.Attach(c.Process.Pid), "its file was opened by root")
		require.Equal(t, path.Base(g.Paths()[0]), c.group("pids"))
	})
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
	asUser(t, nobody, func() { require.NoError(t, g.Remove(0)) })
	require.DirExists(t, dirs[0])
	for _, dir := range dirs {
		await.Until(t, "it is empty", func() bool { return unix.Rmdir(dir) == nil })
	}

	g, err = p.Create()
	require.NoError(t, err)
	dirs = g.Directories()
	require.NoError(t, g.Remove(0), "as long as it is root")
	require.NoDirExists(t, dirs[0])
}

// asUser runs f on a thread that has another effective user.
func asUser(t *testing.T, uid int, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	seteuid := func(uid int) {
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0))
		require.Zero(t, errno)
	}
	seteuid(uid)
	defer seteuid(0)
	f()
}

// group returns the last part of the command's v1 group.
func (c *command) group(controller string) string {
	text, err := os.ReadFile(procFile(c.Process.Pid, "cgroup"))
	require.NoError(c.t, err)
	return path.Base(ownGroup(text, controller))
}

// v2 is a plan for a group without limits in the v2 hierarchy of this machine,
// which has no controllers to test with.
func v2(t *testing.T) Plan {
	m := machine{cgroup: "/sys/fs/cgroup", fstype: fstype, readOnly: readOnly}
	base := m.base()
	text, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	dir := within(base, ownGroup(text, ""))
	if base == "" || !m.writable(dir) {
		t.Skip("needs a cgroup v2 directory that this user may write")
	}
	return Plan{Dirs: []Dir{{Mechanism: ByV2, Parent: dir}}}
}

// into starts a helper in a group.
func into(t *testing.T, g *Group, name string, args ...string) *command {
	c := prepare(t, 0, name, args...)
	c.SysProcAttr.UseCgroupFD = true
	c.SysProcAttr.CgroupFD = g.FD()
	c.begin()
	return c
}

func TestV2(t *testing.T) {
	g := createPlan(t, v2(t))
	require.Positive(t, g.FD())
	c := into(t, g, "many", "3", "sleep")
	c.proceed()
	require.Equal(t, "done", c.line())
	dir := g.Paths()[0]
	require.Len(t, pidsBelow(dir), 4)
	require.NoError(t, g.Attach(c.Process.Pid), "it is there already")

	// Whoever sheds root attaches to it.
	g.sheds = true
	late := start(t, 0, "sleep")
	require.NoError(t, g.Attach(late.Process.Pid))
	require.Len(t, pidsBelow(dir), 5)
	g.sheds = false

	require.Len(t, agree(t, g).Processes, 5)
	require.Equal(t, []string{dir + "/run", dir}, g.Directories())
	require.Positive(t, g.Usage().CPU)

	require.ErrorIs(t, removeTree(dir, time.Time{}), unix.EBUSY)
	require.NoError(t, os.Mkdir(dir+"/run/of-the-payload", 0o755))
	killIn(g)
	_ = c.Wait()
	_ = late.Wait()
	require.NoError(t, g.Remove(await.Patience))
	require.NoDirExists(t, dir)
}

func readString(t *testing.T, name string) string {
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}

// Where this user has cgroup v2 with controllers, whoever hands it out, the
// limits bite, and this process is where it was when it is over, or in systemd's
// scope.
func TestV2Limits(t *testing.T) {
	p := Survey(Memory|CPUs|Pids).Plan(Limits{Memory: 64 * mib, CPUs: 200, Pids: 24}, Options{})
	t.Logf("\n%s", p)
	if len(p.Dirs) == 0 || p.Dirs[0].Mechanism == ByV1 {
		t.Skip("needs cgroup v2 with controllers")
	}
	g := createPlan(t, p)
	t.Logf("%v", g.Paths())
	hog := into(t, g, "anonymous", strconv.Itoa(256*mib))
	hog.proceed()
	require.Equal(t, "", hog.line())
	require.Error(t, hog.Wait())
	require.Positive(t, g.Events().OOMKills)

	forks := into(t, g, "pids", "100")
	forks.proceed()
	got, err := strconv.Atoi(forks.line())
	require.NoError(t, err)
	require.Less(t, got, 24)
	require.Positive(t, g.Events().PidsDenied)
	r := agree(t, g)
	require.Equal(t, []uint64{64 * mib, 24}, []uint64{r.MemoryLimit, r.PidsLimit})
	killIn(g)
	_ = forks.Wait()
	await.Until(t, "the group is empty", func() bool { return len(pidsBelow(g.Paths()[0])) == 0 })

	for _, a := range p.Answers {
		if a.Resource == CPUs && a.Mechanism != ByAffinity && a.Mechanism != ByV1 {
			spin := into(t, g, "spin", "1000")
			spin.proceed()
			got, err := strconv.Atoi(spin.line())
			require.NoError(t, err)
			require.Less(t, got, 500, "thousandths, of 200: a busy machine counts in ticks")
		}
	}
}

// This process leaves its own group for a leaf, so that the group may hand
// down controllers, and comes back.
func TestLeaf(t *testing.T) {
	p := v2(t)
	home := p.Dirs[0].Parent
	dir := path.Join(home, prefix+"test")
	if exists(home + "/cgroup.events") {
		// This process is in it: with a controller for threads, such as cpu, the groups
		// below take no process (EOPNOTSUPP), with another it hands nothing down.
		t.Skip("needs a cgroup v2 directory that is the root of its hierarchy")
	}
	controllers := strings.Fields(readString(t, home+"/cgroup.controllers"))
	if len(controllers) == 0 {
		t.Skip("needs a v2 controller")
	}
	c := controllers[0]
	enabled, err := enable(home, controllers[:1])
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(dir, 0o755))
	self := strconv.Itoa(os.Getpid())
	t.Cleanup(func() {
		require.NoError(t, write(home+"/cgroup.procs", self))
		require.NoError(t, removeTree(dir, await.Deadline()))
		for _, c := range enabled {
			require.NoError(t, write(home+"/cgroup.subtree_control", "-"+c))
		}
	})
	require.NoError(t, write(dir+"/cgroup.procs", self))

	_, err = enable(dir, []string{c})
	require.ErrorIs(t, err, unix.EBUSY, "control: a group with processes hands down nothing")

	g, err := Plan{Dirs: []Dir{{Mechanism: ByV2, Parent: dir, Leaf: true, Enable: []string{c}}}}.Create()
	require.NoError(t, err)
	require.Contains(t, readString(t, "/proc/self/cgroup"), leafSuffix+"\n")
	require.Contains(t, readString(t, g.Paths()[0]+"/cgroup.controllers"), c)
	child := into(t, g, "sleep")
	child.proceed()
	require.Equal(t, "done", child.line())
	killIn(g)
	_ = child.Wait()
	require.NoError(t, g.Remove(await.Patience))
	require.Contains(t, readString(t, "/proc/self/cgroup"), path.Base(dir)+"\n")
	entries, err := filepath.Glob(dir + "/pccrun-*")
	require.NoError(t, err)
	require.Empty(t, entries)
	require.Empty(t, strings.TrimSpace(readString(t, dir+"/cgroup.subtree_control")))
}

func TestCreateLeavesNothingBehind(t *testing.T) {
	p := Survey(Memory|Pids).Plan(Limits{Memory: 64 * mib, Pids: 100}, Options{})
	if len(p.Dirs) < 2 {
		t.Skip("needs two v1 hierarchies")
	}
	last := &p.Dirs[1].Writes[0]
	last.Value = "many"
	_, err := p.Create()
	require.ErrorIs(t, err, unix.EINVAL)
	require.ErrorContains(t, err, "write many to ")
	require.ErrorContains(t, err, last.File)
	for _, d := range p.Dirs {
		mine, err := filepath.Glob(d.Parent + "/" + prefix + strconv.Itoa(os.Getpid()) + "-*")
		require.NoError(t, err)
		require.Empty(t, mine)
	}
	last.File, last.Optional = "pids.nothing", true
	g, err := p.Create()
	require.NoError(t, err)
	require.NoError(t, g.Remove(0))

	p.Dirs[0].Parent = "/sys/fs/cgroup/nothing"
	_, err = p.Create()
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestEmptyPlan(t *testing.T) {
	g, err := Plan{}.Create()
	require.NoError(t, err)
	require.Equal(t, -1, g.FD())
	require.NoError(t, g.Attach(1))
	require.Zero(t, g.Usage())
	require.Zero(t, g.Events())
	killIn(g)
	require.NoError(t, g.Remove(0))
}

func TestLeftovers(t *testing.T) {
	g := create(t, Limits{Pids: 100}, ByV1)
	dir := g.Paths()[0]
	parent := path.Dir(dir)
	gone := start(t, 0, "sleep")
	require.NoError(t, gone.Process.Kill())
	_ = gone.Wait()
	name := prefix + strconv.Itoa(gone.Process.Pid)
	crashed, busy := path.Join(parent, name+"-00000000"), path.Join(parent, name+"-11111111")
	begins := path.Join(parent, prefix+strconv.Itoa(os.Getpid())+"-22222222") // not locked yet
	for _, d := range []string{crashed, busy, begins} {
		require.NoError(t, os.Mkdir(d, 0o755))
		t.Cleanup(func() { _ = unix.Rmdir(d) })
	}
	c := start(t, 0, "sleep")
	require.NoError(t, write(busy+"/cgroup.procs", strconv.Itoa(c.Process.Pid)))

	all, err := Leftovers()
	require.NoError(t, err)
	require.Contains(t, all, Leftover{crashed})
	require.NotContains(t, all, Leftover{busy})
	require.NotContains(t, all, Leftover{dir}, "its launcher lives")
	require.NotContains(t, all, Leftover{begins}, "its launcher may lock it yet")
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(begins, long, long))
	require.NoError(t, Leftover{begins}.Remove(), "it had its time")
	require.NoError(t, Leftover{crashed}.Remove())
	require.NoDirExists(t, crashed)
	require.Error(t, Leftover{crashed}.Remove())
	require.ErrorContains(t, Leftover{busy}.Remove(), "has processes")
	require.ErrorIs(t, Leftover{dir}.Remove(), unix.EWOULDBLOCK)
	require.DirExists(t, dir)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
	removed, err := RemoveLeftovers()
	require.NoError(t, err)
	require.Contains(t, removed, busy)
	other := path.Join(t.TempDir(), prefix+"1-00000000")
	require.NoError(t, os.Mkdir(other, 0o755))
	require.ErrorContains(t, Leftover{other}.Remove(), "not a control group")
	require.DirExists(t, other)
}

// RLIMIT_NPROC set inside a user namespace counts that namespace alone, and
// the namespaces in it too.
func TestNProcInUserNamespace(t *testing.T) {
	needSandbox(t)
	if os.Getuid() == 0 {
		t.Skip("needs a user who is not root: the limit does not hold for root of the machine")
	}
	if !kernel.AtLeast(5, 14) {
		t.Skip("needs Linux 5.14")
	}
	for _, helper := range []string{"pids", "nested-pids"} {
		c := start(t, sandbox, "nproc", "40", helper, "100")
		c.proceed()
		got, err := strconv.Atoi(c.line())
		require.NoError(t, err, helper)
		require.Less(t, got, 40, helper)
		require.Greater(t, got, 4, helper)
	}
	control := start(t, sandbox, "pids", "100")
	control.proceed()
	require.Equal(t, "100", control.line())
}

func TestProcessors(t *testing.T) {
	one, err := Processors(1)
	require.NoError(t, err)
	require.Equal(t, 1, one.Count())
	all, err := Processors(1 << 20)
	require.NoError(t, err)
	require.Equal(t, processors(), all.Count())
}

// What block devices did is counted where the group has the controller.
func TestUsageOfIO(t *testing.T) {
	g := &Group{dirs: []*dir{{path: t.TempDir(), v2: true}}}
	require.False(t, g.Usage().IO)
	require.NoError(t, os.WriteFile(g.dirs[0].path+"/io.stat", []byte("8:0 rbytes=5 wbytes=1 rios=2\n254:0 rbytes=7\n"), 0o644))
	require.Equal(t, Usage{Read: 12, Written: 1, IO: true}, g.Usage())
}

// The most tasks at a time are counted by newer kernels.
func TestUsageOfTasks(t *testing.T) {
	for _, v2 := range []bool{true, false} {
		g := &Group{dirs: []*dir{{path: t.TempDir(), v2: v2}}}
		require.Zero(t, g.Usage().Tasks)
		require.NoError(t, os.WriteFile(g.dirs[0].path+"/pids.peak", []byte("4\n"), 0o644))
		require.EqualValues(t, 4, g.Usage().Tasks)
	}
}

// A real-time process is refused by name, where the kernel refuses it.
func TestRealTime(t *testing.T) {
	g := create(t, Limits{CPUs: 200}, ByV1)
	if !exists(path.Join(g.Paths()[0], "cpu.rt_runtime_us")) {
		t.Skip("needs a kernel with CONFIG_RT_GROUP_SCHED")
	}
	c := start(t, 0, "sleep")
	if err := unix.SchedSetAttr(c.Process.Pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0); err != nil {
		t.Skipf("needs leave to set a real-time policy: %v", err)
	}
	err := g.Attach(c.Process.Pid)
	var refused *hint.Error
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, unix.EINVAL)
	require.ErrorContains(t, err, "real-time")
	require.Contains(t, refused.Hint(), "chrt")
	require.NoError(t, g.Attach(start(t, 0, "sleep").Process.Pid), "another is taken in")
}
