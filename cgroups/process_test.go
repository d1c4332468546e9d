//go:build linux

package cgroups

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/procfs"
)

// The processes of a sandbox are found with their orphans.
func TestTree(t *testing.T) {
	needSandbox(t)
	c := start(t, sandbox, "many", "10", "double-fork", "sleep")
	c.proceed()
	require.Equal(t, "done", c.line())
	await.Until(t, "pid 1, ten and their orphans are found", func() bool {
		byChildren, ok := procfs.AppendChildren(nil, c.Process.Pid)
		require.True(t, ok, "this kernel has lists of children")
		return len(byChildren) == 20 && len(procfs.Tree(c.Process.Pid)) == 21
	})
}

func TestMeasure(t *testing.T) {
	b := mapping(50*mib, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	fill(b)
	defer unix.Munmap(b)
	p, ok := measure(os.Getpid())
	require.True(t, ok)
	require.Greater(t, p.anonymous, int64(50*mib))
	require.Positive(t, p.tables)
	require.InDelta(t, p.anonymous, p.proportional(nil), 8*mib)
	require.Equal(t, os.Getppid(), p.parent)
	_, ok = measure(1 << 30)
	require.False(t, ok)
	require.Zero(t, process{task: 1 << 30, anonymous: 7}.proportional(nil), "one that is gone has nothing")
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
	require.EqualValues(t, (256+64+4)<<10, sharedBytes([]byte(smapsText), unix.Mkdev(0, 1), nil))
	require.Zero(t, sharedBytes([]byte(smapsText), unix.Mkdev(0, 1), map[uint64]int64{77: 1}), "it is counted as a memfd")
	require.Zero(t, sharedBytes([]byte(smapsText), unix.Mkdev(0, 9), nil))
	require.Zero(t, sharedBytes([]byte(strings.ReplaceAll(smapsText, "/dev/zero", "/SYSV00000000")), unix.Mkdev(0, 1), nil), "the table has it")

	const table = "  key shmid  size   rss  swap\n    0     1  9999  4096   512\n    0     2  9999   100     0\n"
	require.EqualValues(t, 4096+512+100, tableSum([]byte(table), 0, map[string]int64{"rss": 1, "swap": 1}))
	for _, other := range []string{"", "\n", "key shmid\n1 2\n", "rss\n-5\nx\n\n"} {
		require.Zero(t, tableSum([]byte(other), 0, map[string]int64{"rss": 1}), other)
	}
	require.Zero(t, segments(0))
	require.Zero(t, kernelBytes(0, 0))
	const sets = "key semid perms nsems\n 0 0 600 100\n 0 1 600 7\n"
	require.EqualValues(t, 107*64+2*512, tableSum([]byte(sets), 512, map[string]int64{"nsems": 64}))

	require.EqualValues(t, 5, number([]byte("A:\t5\nAB: 6 kB\n"), "A:"))
	require.EqualValues(t, 6<<10, kilobytes([]byte("A:\t5\nAB: 6 kB\n"), "AB:"))
	require.Zero(t, number([]byte("A: x\n"), "A:"))

	require.EqualValues(t, 12, sumKeys([]byte("8:0 rbytes=5 wbytes=1 rios=2\n254:0 rbytes=7\n"), "rbytes="))
	require.EqualValues(t, 3, field([]byte("low 0\noom_kill 3\noom_kill_group 9\n"), "oom_kill"))
	require.Zero(t, field([]byte("oom_kill"), "oom_kill"))
}

func FuzzProcFiles(f *testing.F) {
	f.Add([]byte(smapsText))
	f.Add([]byte("RssAnon:\t 5 kB\noom_kill 3\nrbytes=9"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = sharedBytes(b, unix.Mkdev(0, 1), nil)
		require.GreaterOrEqual(t, tableSum(b, 1, map[string]int64{"rss": 1}), int64(0))
		_ = kilobytes(b, "RssAnon:")
		_ = field(b, "oom_kill")
		_ = sumKeys(b, "rbytes=")
	})
}
