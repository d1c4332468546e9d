//go:build linux

package cgroups

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/procfs"
)

const mib = 1 << 20

// watchOver has a supervisor watch a helper that has begun.
func watchOver(t *testing.T, c *command, s *Supervisor) (over <-chan int64, stop func()) {
	t.Helper()
	killed, ended := make(chan int64, 1), make(chan bool)
	s.PID = c.Process.Pid
	s.Over = func(used int64) {
		_ = c.Process.Kill()
		killed <- used
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { s.Run(ctx); close(ended) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return killed, stop
}

// requireKilled lets a hog go on, and requires that it is killed, and that more than
// its limit was counted.
func requireKilled(t *testing.T, c *command, s *Supervisor) {
	t.Helper()
	over, stop := watchOver(t, c, s)
	c.proceed()
	used := await.Receive(t, "it is killed", over)
	stop()
	require.Greater(t, used, s.Limit)
	require.True(t, s.Exceeded())
	require.Equal(t, used, s.Peak())
	t.Logf("limit %d MiB, killed at %d MiB", s.Limit/mib, used/mib)
}

// requireKept lets a command go on, and requires that it is not killed, even once the
// supervisor has seen all its memory, which is at least so much.
func requireKept(t *testing.T, c *command, s *Supervisor, least int64) {
	t.Helper()
	_, stop := watchOver(t, c, s)
	c.proceed()
	for line := c.line(); line != "done"; line = c.line() {
		require.NotEmpty(t, line, "killed at %d MiB", s.Peak()/mib)
	}
	await.Until(t, "all its memory is seen", func() bool { return s.Peak() > least || s.Exceeded() })
	stop()
	require.False(t, s.Exceeded(), "killed for less than the limit")
	require.Less(t, s.sample(freeMemory()), s.Limit)
	require.Less(t, s.exact(), s.Limit, "each page once")
}

// exact counts each page once, of the processes that the last sample saw.
func (s *Supervisor) exact() int64 {
	memfds := openMemfds(s.processes)
	return s.sum(s.own(memfds), s.Limit, memfds)
}

func TestSupervisor(t *testing.T) {
	needSandbox(t)
	const limit = 96 * mib
	hog, kept := strconv.Itoa(2*limit), strconv.Itoa(60*mib)
	for _, test := range []struct {
		name string
		args []string // with the memory of all as last
	}{
		{"anonymous", []string{"anonymous"}},
		{"shared", []string{"shared"}},
		{"memfd", []string{"memfd"}},
		{"memfd-mapped", []string{"memfd-mapped"}},
		{"memfd-thread", []string{"double-fork", "memfd-thread"}},
		{"memfd-program", []string{"memfd-program"}},
		{"hidden", []string{"double-fork", "hidden", "memfd-mapped"}},
		{"leaderless", []string{"double-fork", "leaderless"}},
		{"double-fork", []string{"double-fork", "anonymous"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			begin := func(bytes string) *command {
				return start(t, sandbox, test.args[0], append(test.args[1:], bytes)...)
			}
			requireKilled(t, begin(hog), &Supervisor{Limit: limit})
			requireKept(t, begin(kept), &Supervisor{Limit: limit}, 60*mib)
		})
	}
	t.Run("twenty", func(t *testing.T) {
		requireKilled(t, start(t, sandbox, "many", "20", "anonymous", strconv.Itoa(20*mib)), &Supervisor{Limit: 2 * limit})
		requireKept(t, start(t, sandbox, "many", "20", "anonymous", strconv.Itoa(2*mib)), &Supervisor{Limit: 2 * limit}, 40*mib)
	})
}

func TestSupervisorCountsPrivateFilesystems(t *testing.T) {
	needSandbox(t)
	begin := func(bytes int) (*command, *Supervisor) {
		c := start(t, sandbox, "tmpfs", t.TempDir(), strconv.Itoa(bytes))
		c.proceed()
		require.Equal(t, "mounted", c.line())
		fd, err := unix.Open(procFile(c.Process.Pid, "root"+c.Args[1]), unix.O_PATH|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		return c, &Supervisor{Limit: 128 * mib, Filesystems: []int{fd}}
	}
	c, s := begin(256 * mib)
	requireKilled(t, c, s)
	c, s = begin(80 * mib)
	requireKept(t, c, s, 80*mib)
}

// A segment is there whether somebody has attached it or not.
func TestSupervisorCountsSegments(t *testing.T) {
	needSandbox(t)
	begin := func(bytes int) (*command, *Supervisor) {
		c := start(t, sandbox, "segment", strconv.Itoa(bytes))
		c.proceed()
		number, err := strconv.Atoi(c.line())
		require.NoError(t, err)
		process, err := unix.PidfdOpen(c.Process.Pid, 0)
		require.NoError(t, err)
		defer unix.Close(process)
		table, err := unix.PidfdGetfd(process, number, 0)
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(table) })
		return c, &Supervisor{Limit: 128 * mib, Segments: table}
	}
	c, s := begin(256 * mib)
	requireKilled(t, c, s)
	c, s = begin(80 * mib)
	requireKept(t, c, s, 80*mib)
	require.Less(t, s.exact(), int64(110*mib), "once")

	c, s = begin(80 * mib)
	s.Segments = 0
	requireKept(t, c, s, 0)
	require.Less(t, s.exact(), int64(80*mib), "control: without the table nobody sees it")
}

// Pages that forks share are there once: 20 forks of 60 MiB do not use 1.2 GiB.
func TestSupervisorCountsSharedPagesOnce(t *testing.T) {
	needSandbox(t)
	s := &Supervisor{Limit: 128 * mib}
	requireKept(t, start(t, sandbox, "forks", "20", strconv.Itoa(60*mib)), s, 50*mib)
}

// A process that starts a program has a second one on its memory until that calls
// exec; one that forks and goes on has not.
func TestSupervisorCountsBorrowedMemoryOnce(t *testing.T) {
	needSandbox(t)
	c := start(t, sandbox, "vforks", strconv.Itoa(100*mib))
	requireKept(t, c, &Supervisor{Limit: 160 * mib}, 100*mib)
	require.Len(t, procfs.Tree(c.Process.Pid), 2)

	requireKilled(t, start(t, sandbox, "forks-write", strconv.Itoa(100*mib)), &Supervisor{Limit: 160 * mib}) // control: a copy counts
}

// What others on the machine gain is never held against a sandbox, also not against one
// whose descriptors nobody can see.
func TestSupervisorBlamesNoOthers(t *testing.T) {
	needSandbox(t)
	c := start(t, sandbox, "double-fork", "hidden", "memfd-mapped", strconv.Itoa(60*mib))
	s := &Supervisor{Limit: 128 * mib}
	fd, err := unix.MemfdCreate("cgroups-test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	_, stop := watchOver(t, c, s)
	c.proceed()
	require.Equal(t, "done", c.line())
	await.Until(t, "its memory is seen", func() bool { return s.Peak() > 60*mib })
	require.NoError(t, unix.Fallocate(fd, 0, 0, 300*mib))
	stop()
	require.Less(t, s.sample(freeMemory()), s.Limit)
	require.False(t, s.Exceeded())
}

// A look is not slow because this process was stopped.
func TestWatchOfWhoWasStopped(t *testing.T) {
	c := start(t, 0, "watch")
	c.proceed()
	var status unix.WaitStatus
	_, err := unix.Wait4(c.Process.Pid, &status, unix.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
	time.Sleep(2200 * time.Millisecond)
	require.NoError(t, c.Process.Signal(unix.SIGCONT))
	require.Equal(t, "stopped for longer true watched 0", c.line())
	require.Equal(t, "watched", c.line())
}

// A sandbox that does nothing costs next to nothing. What it starts with counts as growth.
func TestSupervisorAtRest(t *testing.T) {
	needSandbox(t)
	c := start(t, sandbox, "many", "20", "sleep")
	c.proceed()
	require.Equal(t, "done", c.line())
	s := &Supervisor{Limit: 512 * mib, PID: c.Process.Pid}
	s.sample(freeMemory())
	require.Positive(t, s.last.used)
	s.grew = time.Time{}
	require.Equal(t, min(restShare*s.last.cost, maxPause), s.pause(1<<40))
	s.grew = time.Now()
	require.Equal(t, min(growthShare*s.last.cost, maxPause), s.pause(1<<40), "control: one that grows")
	s.grew, s.last.free = time.Time{}, s.Limit
	require.Equal(t, min(growthShare*s.last.cost, maxPause), s.pause(0), "and one that may have taken what the machine has lost")
}

func TestSupervisorEndsWithTheSandbox(t *testing.T) {
	c := start(t, 0, "sleep")
	c.proceed()
	require.Equal(t, "done", c.line())
	s := &Supervisor{Limit: 512 * mib, PID: c.Process.Pid, Over: func(int64) { t.Error("over") }}
	ended := make(chan bool)
	go func() { s.Run(context.Background()); close(ended) }()
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
	await.Closed(t, "it looks no longer for a process that is gone", ended)
}
