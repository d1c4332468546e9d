//go:build linux

package cgroups

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Both ways to find the processes of a sandbox find the same.
func TestList(t *testing.T) {
	needSandbox(t)
	alsoAsNobody(t)
	c := start(t, sandbox, "many", "10", "double-fork", "sleep")
	c.proceed()
	require.Equal(t, "done", c.line())
	var byChildren, byScan []int
	require.Eventually(t, func() bool {
		p := processes{}
		byChildren = p.list(c.Process.Pid)
		require.False(t, p.scan, "this kernel has lists of children")
		p.scan = true
		byScan = p.list(c.Process.Pid)
		slices.Sort(byChildren)
		slices.Sort(byScan)
		return len(byChildren) == 21 && slices.Equal(byChildren, byScan)
	}, 10*time.Second, 50*time.Millisecond, "pid 1, ten and their orphans")

	p := processes{}
	require.Contains(t, p.list(c.Process.Pid), c.Process.Pid)
	p.list(1 << 30)
	require.True(t, p.scan, "pid 1 does not let itself be looked at")
}

// A process that comes is found by its number, without a look at the others;
// one that goes is forgotten, and its descriptor closed.
func TestRefresh(t *testing.T) {
	needSandbox(t)
	c := start(t, sandbox, "sleep")
	c.proceed()
	require.Equal(t, "done", c.line())
	var p processes
	require.True(t, p.refresh(os.Getpid(), 0))
	before := len(p.known)
	p.listed = time.Now().Add(time.Hour) // no second list

	child := start(t, 0, "sleep")
	child.proceed()
	require.Equal(t, "done", child.line())
	require.Eventually(t, func() bool {
		p.refresh(os.Getpid(), 0)
		return p.has(child.Process.Pid)
	}, 20*time.Second, time.Millisecond)
	require.Positive(t, p.measure(false))
	require.Equal(t, before+1, len(p.known), "a thread is not a process")
	require.False(t, p.refresh(os.Getpid(), 1<<40), "not more often than its share")

	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	p.measure(false)
	require.False(t, p.has(child.Process.Pid))
	p.close()
	require.Empty(t, p.known)
}

// A number can pass from a process that was known to another before anybody looks.
func TestRelistOfANumberThatPassed(t *testing.T) {
	gone, stays := start(t, 0, "sleep"), start(t, 0, "sleep")
	for _, c := range []*command{gone, stays} {
		c.proceed()
		require.Equal(t, "done", c.line())
	}
	before := newProcess(gone.Process.Pid)
	require.NoError(t, gone.Process.Kill())
	_ = gone.Wait()
	require.False(t, before.measure(false), "it is the file of the one that is gone")
	before.pid = stays.Process.Pid
	p := processes{known: []*process{before}}
	defer p.close()
	p.relist(os.Getpid())
	require.True(t, p.has(stays.Process.Pid))
	require.Positive(t, p.measure(false))
	require.True(t, p.has(stays.Process.Pid))
}

func TestMeasure(t *testing.T) {
	b := mapping(50*mib, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	fill(b)
	defer unix.Munmap(b)
	for _, statm := range []bool{true, false} {
		p := newProcess(os.Getpid())
		if !statm { // no descriptor was left
			unix.Close(p.statm)
			p.statm = -1
		}
		require.True(t, p.measure(false))
		quick := p.bytes
		require.True(t, p.measure(true))
		require.Greater(t, quick, int64(50*mib))
		require.InDelta(t, quick, p.bytes, 8*mib)
		require.InDelta(t, quick, proportionalSize(p.pid, 0), 8*mib)
		if statm {
			unix.Close(p.statm)
		}
	}
	require.False(t, newProcess(1<<30).measure(false))
	require.EqualValues(t, 7, proportionalSize(1<<30, 7), "the bound, where there is no telling")
	require.Zero(t, residentShared(1<<30))
	stack, parent := stackAndParent(1 << 30)
	require.Zero(t, stack)
	require.Zero(t, parent)
}

const smapsText = `7f0000000000-7f0000100000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
Size:               1024 kB
Rss:                 512 kB
Pss:                 256 kB
Pss_Dirty:           256 kB
Swap:                 64 kB
SwapPss:              32 kB
VmFlags: rd wr sh mr mw me ms sd
7f0000200000-7f0000300000 rw-p 00000000 00:00 0
Pss:                9999 kB
7f0000300000-7f0000400000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
Pss:                   4 kB
7f0000400000-7f0000500000 r--p 00000000 fe:01 77                         /usr/lib/x.so
Pss:                8888 kB
`

func TestParse(t *testing.T) {
	require.Equal(t, map[uint64]extent{77: {(256 + 64 + 4) << 10, 2 * mib}}, mapped{device: unix.Mkdev(0, 1)}.in([]byte(smapsText)))
	require.EqualValues(t, 16, span("10-20"))
	require.Equal(t, unbounded, span("0-7fffffffffffffff"))
	for _, other := range []string{"", "-", "10", "20-10", "x-20", "10-x"} {
		require.Zero(t, span(other), other)
	}
	require.Empty(t, mapped{device: unix.Mkdev(0, 9)}.in([]byte(smapsText)))

	segment := strings.ReplaceAll(smapsText, "/dev/zero", "/SYSV00000000")
	require.NotEmpty(t, mapped{device: unix.Mkdev(0, 1), segments: true}.in([]byte(segment)))
	require.Empty(t, mapped{device: unix.Mkdev(0, 1)}.in([]byte(segment)), "the table has them")

	const table = "  key shmid  size   rss  swap\n    0     1  9999  4096   512\n    0     2  9999   100     0\n"
	require.EqualValues(t, 4096+512+100, tableSum([]byte(table), 0, weight{"rss", 1}, weight{"swap", 1}))
	for _, other := range []string{"", "\n", "key shmid\n1 2\n", "rss\n-5\nx\n\n"} {
		require.Zero(t, tableSum([]byte(other), 0, weight{"rss", 1}), other)
	}
	require.Zero(t, segments(0))
	require.Zero(t, kernelBytes(0, 0))
	const sets = "key semid perms nsems\n 0 0 600 100\n 0 1 600 7\n"
	require.EqualValues(t, 107*64+2*512, tableSum([]byte(sets), 512, weight{"nsems", 64}))

	all, anonymous := parseStatm([]byte("1000 300 100 1 0 50 0\n"))
	require.EqualValues(t, 1000, all)
	require.EqualValues(t, 200, anonymous)
	_, anonymous = parseStatm([]byte("1 2 3\n"))
	require.Zero(t, anonymous)

	stat := []byte("7 (a) b) ) S 3 7 7 " + strings.Repeat("1 ", 21) + "140000 9\n")
	require.EqualValues(t, 3, statField(stat, 4))
	require.EqualValues(t, 140000, statField(stat, 28))
	require.Zero(t, statField(stat, 40))
	require.Zero(t, statField(nil, 4))

	require.EqualValues(t, 5, number([]byte("A:\t5\nAB: 6 kB\n"), "A:"))
	require.EqualValues(t, 6<<10, kilobytes([]byte("A:\t5\nAB: 6 kB\n"), "AB:"))
	require.Zero(t, number([]byte("A: x\n"), "A:"))

	require.EqualValues(t, 12, sumKeys([]byte("8:0 rbytes=5 wbytes=1 rios=2\n254:0 rbytes=7\n"), "rbytes="))
	require.EqualValues(t, 3, field([]byte("low 0\noom_kill 3\noom_kill_group 9\n"), "oom_kill"))
	require.Zero(t, field([]byte("oom_kill"), "oom_kill"))
}

func TestDescendants(t *testing.T) {
	require.Equal(t, []int{5, 6, 7, 8}, descendants(5, map[int]int{5: 1, 6: 5, 7: 6, 8: 5, 9: 1, 10: 99}))
	require.Equal(t, []int{5}, descendants(5, nil))
	require.Equal(t, []int{5, 6}, descendants(5, map[int]int{5: 6, 6: 5}), "read while numbers changed hands")
}

func FuzzProcFiles(f *testing.F) {
	f.Add([]byte(smapsText))
	f.Add([]byte("1000 300 100 1 0 50 0\n"))
	f.Add([]byte("7 (a) b) ) S 3 7 7 1 1\n"))
	f.Add([]byte("RssAnon:\t 5 kB\noom_kill 3\nrbytes=9"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range (mapped{device: unix.Mkdev(0, 1)}).in(b) {
			require.GreaterOrEqual(t, m.size, int64(0))
		}
		require.GreaterOrEqual(t, tableSum(b, 1, weight{"rss", 1}), int64(0))
		_, anonymous := parseStatm(b)
		require.GreaterOrEqual(t, anonymous, int64(0))
		_ = statField(b, 4)
		_ = kilobytes(b, "RssAnon:")
		_ = field(b, "oom_kill")
		_ = sumKeys(b, "rbytes=")
	})
}

// Only forks share pages, and a program that was started afresh is none.
func TestSplitForks(t *testing.T) {
	needSandbox(t)
	c := start(t, sandbox, "forks", "3", strconv.Itoa(mib))
	c.proceed()
	require.Equal(t, "done", c.line())
	other := start(t, 0, "sleep")
	var all []*process
	for _, pid := range append((&processes{}).list(c.Process.Pid), other.Process.Pid) {
		p := newProcess(pid)
		defer unix.Close(p.statm)
		require.True(t, p.measure(false))
		all = append(all, p)
	}
	alone, forks := splitForks(all)
	require.Len(t, forks, 4)
	require.Len(t, alone, 1)
	require.Equal(t, other.Process.Pid, alone[0].pid)
}
