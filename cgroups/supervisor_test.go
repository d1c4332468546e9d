//go:build linux

package cgroups

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const mib = 1 << 20

// supervise lets a helper go on, watches it, and returns what it used when it was
// killed, or 0 if it was still there some time after it had all its memory,
// which is at least expect.
func supervise(t *testing.T, c *command, limit int64, filesystems []int, expect int64) (int64, *Supervisor) {
	t.Helper()
	return superviseWith(t, c, &Supervisor{Limit: limit, Filesystems: filesystems}, expect)
}

func superviseWith(t *testing.T, c *command, s *Supervisor, expect int64) (int64, *Supervisor) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := make(chan int64, 1)
	s.PID = c.Process.Pid
	s.Over = func(used int64) {
		_ = c.Process.Kill()
		over <- used
	}
	ended := make(chan bool)
	go func() { s.Run(ctx); close(ended) }()
	c.proceed()
	said := make(chan string)
	go func() {
		for line := c.line(); line != "" && line != "done"; line = c.line() {
		}
		close(said)
	}()
	<-said // it has all its memory, or is dead
	select {
	case used := <-over:
		<-ended
		return used, s
	case <-time.After(200 * time.Millisecond):
	}
	for deadline := time.Now().Add(20 * time.Second); s.Peak() < expect && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	<-ended
	select {
	case used := <-over: // on a busy machine it was told of this late
		return used, s
	default:
		return 0, s
	}
}

// ruler puts a process into a memory group without a limit that counts for
// certain, if this user can have one, and returns a function that reads the
// peak.
func ruler(t *testing.T, pid int) func() int64 {
	h := Survey(Memory)
	p := h.Plan(Limits{Memory: 1 << 50}, Options{})
	if len(p.Dirs) == 0 {
		return nil
	}
	g, err := p.Create()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Remove(5*time.Second)) })
	require.NoError(t, g.Attach(pid))
	return func() int64 { return g.Usage().Memory }
}

func TestSupervisor(t *testing.T) {
	needSandbox(t)
	alsoAsNobody(t)
	number := strconv.Itoa
	for _, test := range []struct {
		name    string
		limit   int64
		args    []string
		control []string // the same with a third of the limit, and 60 MiB of its own at least
	}{
		{"anonymous", 256 * mib, []string{"anonymous", number(1024 * mib)}, []string{"anonymous", number(80 * mib)}},
		{"shared", 256 * mib, []string{"shared", number(1024 * mib)}, []string{"shared", number(80 * mib)}},
		{"memfd", 256 * mib, []string{"memfd", number(1024 * mib)}, []string{"memfd", number(80 * mib)}},
		{"memfd-mapped", 256 * mib, []string{"memfd-mapped", number(1024 * mib)}, []string{"memfd-mapped", number(80 * mib)}},
		{"memfd-hidden", 256 * mib, []string{"double-fork", "memfd-hidden", number(1024 * mib)}, []string{"memfd", number(80 * mib)}},
		{"memfd-thread", 256 * mib, []string{"double-fork", "memfd-thread", number(1024 * mib)}, []string{"memfd-thread", number(80 * mib)}},
		{"shared-back", 256 * mib, []string{"double-fork", "shared-back", number(1024 * mib)}, []string{"shared", number(80 * mib)}},
		{"memfd-sent", 256 * mib, []string{"double-fork", "memfd-sent", number(1024 * mib)}, []string{"memfd", number(80 * mib)}}, // what is under way shows late
		{"memfd-program", 256 * mib, []string{"memfd-program", number(1024 * mib)}, []string{"memfd-program", number(80 * mib)}},
		{"leaderless", 256 * mib, []string{"double-fork", "leaderless", number(1024 * mib)}, []string{"double-fork", "leaderless", number(80 * mib)}},
		{"double-fork", 256 * mib, []string{"double-fork", "anonymous", number(1024 * mib)}, []string{"double-fork", "anonymous", number(80 * mib)}},
		{"twenty", 256 * mib, []string{"many", "20", "anonymous", number(40 * mib)}, []string{"many", "20", "anonymous", number(4 * mib)}},
		{"two hundred", 768 * mib, []string{"many", "200", "anonymous", number(20 * mib)}, []string{"many", "200", "anonymous", number(1 * mib)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			// Other tests, run at the same time, can keep the supervisor from
			// the processor: it has some tries.
			held := false
			for range 6 {
				if held = hold(t, test.limit, test.args); held {
					break
				}
			}
			require.True(t, held, "a quarter more than the limit")

			control := start(t, sandbox, test.control[0], test.control[1:]...)
			used, s := supervise(t, control, test.limit, nil, 60*mib)
			require.Zero(t, used, "killed for less than the limit")
			require.False(t, s.Exceeded())
			t.Logf("control: peak %d MiB", s.Peak()/mib)
			require.Greater(t, s.Peak(), int64(60*mib))
		})
	}
}

// hold reports whether a hog was killed before it had a quarter more than the
// limit, as the supervisor and the kernel count. It must be killed.
func hold(t *testing.T, limit int64, args []string) bool {
	hog := start(t, sandbox, args[0], args[1:]...)
	peak := ruler(t, hog.Process.Pid)
	used, s := supervise(t, hog, limit, nil, limit)
	require.Greater(t, used, limit, "not killed")
	require.True(t, s.Exceeded())
	require.Equal(t, used, s.Peak())
	t.Logf("limit %d MiB, killed at %d MiB", limit/mib, used/mib)
	if peak != nil {
		_ = hog.Wait()
		t.Logf("the kernel counted %d MiB", peak()/mib)
		used = max(used, peak())
	}
	return used < limit*5/4
}

func TestSupervisorCountsPrivateFilesystems(t *testing.T) {
	needSandbox(t)
	alsoAsNobody(t)
	const limit = 256 * mib
	fill := func(bytes, expect int64) (int64, *Supervisor) {
		c := start(t, sandbox, "tmpfs", t.TempDir(), strconv.FormatInt(bytes, 10))
		c.proceed()
		require.Equal(t, "mounted", c.line())
		fd, err := unix.Open(procFile(c.Process.Pid, "root"+c.Args[1]), unix.O_PATH|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		return supervise(t, c, limit, []int{fd}, expect)
	}
	used := int64(limit * 2)
	for tries := 0; used >= limit*5/4 && tries < 3; tries++ { // as in hold
		used, _ = fill(1024*mib, limit)
		require.Greater(t, used, int64(limit), "not killed")
	}
	require.Less(t, used, int64(limit*5/4))

	used, s := fill(80*mib, 80*mib)
	require.Zero(t, used)
	require.Greater(t, s.Peak(), int64(80*mib))
}

// A segment is there whether somebody has attached it or not.
func TestSupervisorCountsSegments(t *testing.T) {
	needSandbox(t)
	alsoAsNobody(t)
	const limit = 256 * mib
	fill := func(bytes, expect int64, counted bool) (int64, *Supervisor) {
		c := start(t, sandbox, "segment", strconv.FormatInt(bytes, 10))
		c.proceed()
		number, err := strconv.Atoi(c.line())
		require.NoError(t, err)
		process, err := unix.PidfdOpen(c.Process.Pid, 0)
		require.NoError(t, err)
		defer unix.Close(process)
		table, err := unix.PidfdGetfd(process, number, 0)
		require.NoError(t, err)
		defer unix.Close(table)
		if !counted {
			table = 0
		}
		return superviseWith(t, c, &Supervisor{Limit: limit, Segments: table}, expect)
	}
	used := int64(limit * 2)
	for tries := 0; used >= limit*5/4 && tries < 3; tries++ { // as in hold
		used, _ = fill(1024*mib, limit, true)
		require.Greater(t, used, int64(limit), "not killed")
	}
	require.Less(t, used, int64(limit*5/4))

	used, s := fill(80*mib, 80*mib, true)
	require.Zero(t, used)
	require.Greater(t, s.Peak(), int64(80*mib))
	require.Less(t, s.Peak(), int64(200*mib))

	used, s = fill(80*mib, 0, false)
	require.Zero(t, used)
	require.Less(t, s.Peak(), int64(80*mib), "control: without the table nobody sees it")
}

// Pages that forks share are there once: 20 forks of 60 MiB do not use 1.2 GiB.
func TestSupervisorCountsSharedPagesOnce(t *testing.T) {
	needSandbox(t)
	alsoAsNobody(t)
	c := start(t, sandbox, "forks", "20", strconv.Itoa(60*mib))
	used, s := supervise(t, c, 128*mib, nil, 50*mib)
	require.Zero(t, used)
	require.Greater(t, s.Peak(), int64(50*mib))
	require.Less(t, s.Peak(), int64(128*mib))
}

// A process that starts a program has a second one on its memory until that calls
// exec; one that forks and goes on has not.
func TestSupervisorCountsBorrowedMemoryOnce(t *testing.T) {
	needSandbox(t)
	alsoAsNobody(t)
	c := start(t, sandbox, "vforks", strconv.Itoa(160*mib))
	used, s := supervise(t, c, 256*mib, nil, 150*mib)
	require.Zero(t, used)
	require.Len(t, (&processes{}).list(c.Process.Pid), 2)
	require.Greater(t, s.Peak(), int64(150*mib))
	require.Less(t, s.Peak(), int64(256*mib))

	c = start(t, sandbox, "forks-write", strconv.Itoa(160*mib))
	_, s = supervise(t, c, 256*mib, nil, 256*mib)
	require.True(t, s.Exceeded(), "control: a copy counts")
}

// What filesystems of the machine gain is not held against a sandbox that maps what it
// does not touch: only what nobody can tell is. And it hides nobody who gives back what he
// holds.
func TestSupervisorBlamesNoOthers(t *testing.T) {
	needSandbox(t)
	alsoAsNobody(t)
	const limit = 256 * mib
	others := func() (undo func()) {
		f, err := os.CreateTemp("/dev/shm", "cgroups-test-")
		require.NoError(t, err)
		require.NoError(t, unix.Fallocate(int(f.Fd()), 0, 0, 300*mib))
		return func() { f.Close(); os.Remove(f.Name()) }
	}
	nobody := func() (undo func()) {
		fd, err := unix.MemfdCreate("cgroups-test", unix.MFD_CLOEXEC)
		require.NoError(t, err)
		require.NoError(t, unix.Fallocate(fd, 0, 0, 300*mib))
		return func() { unix.Close(fd) }
	}
	ended := func(within time.Duration, gain func() func(), helper ...string) bool {
		c := start(t, sandbox, helper[0], helper[1:]...)
		s := &Supervisor{Limit: limit, PID: c.Process.Pid, Over: func(int64) { _ = c.Process.Kill() }}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		over := make(chan bool)
		go func() { s.Run(ctx); close(over) }()
		// It has seen what there is before anybody gains.
		require.Eventually(t, func() bool { return s.Peak() > 0 }, 20*time.Second, time.Millisecond)
		c.proceed()
		if helper[0] == "mapped" {
			require.Equal(t, "done", c.line())
		}
		defer gain()()
		select {
		case <-over:
		case <-time.After(within):
		}
		return s.Exceeded()
	}
	// Others of the machine's can gain as much at the same time.
	held := false
	for range 3 {
		if held = !ended(3*time.Second, others, "mapped", strconv.Itoa(400*mib)); held {
			break
		}
	}
	require.True(t, held, "it was ended for what another filesystem gained")
	require.True(t, ended(20*time.Second, nobody, "mapped", strconv.Itoa(400*mib)), "control: what nobody can tell")
	require.True(t, ended(20*time.Second, others, "double-fork", "shared-back", strconv.Itoa(1024*mib)), "one that holds it")
}

// Of filesystems at one path only the one that is seen there counts, and once.
func TestElsewhereStacked(t *testing.T) {
	needSandbox(t)
	alsoAsNobody(t)
	c := start(t, sandbox, "stacked", t.TempDir())
	c.proceed()
	require.Equal(t, "8", c.line())
}

// A look is not slow because this process was stopped.
func TestWatchOfWhoWasStopped(t *testing.T) {
	c := start(t, 0, "watch")
	c.proceed()
	var status unix.WaitStatus
	_, err := unix.Wait4(c.Process.Pid, &status, unix.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
	time.Sleep(1500 * time.Millisecond)
	require.NoError(t, c.Process.Signal(unix.SIGCONT))
	require.Equal(t, "watched 0 timed true", c.line(), "control: the timer")
	require.Equal(t, "watched", c.line())
}

func TestSupervisorAtRest(t *testing.T) {
	needSandbox(t)
	c := start(t, sandbox, "many", "20", "sleep")
	c.proceed()
	require.Equal(t, "done", c.line())
	// What it starts with counts as growth, and on a busy machine takes a while.
	for try := 0; ; try++ {
		s := &Supervisor{Limit: 512 * mib, PID: c.Process.Pid, Over: func(int64) { t.Error("over") }}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		var before, after unix.Rusage
		require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &before))
		s.Run(ctx)
		cancel()
		require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &after))
		cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
		t.Logf("%v of processor time in 2 s", cpu)
		require.Positive(t, s.Peak())
		if cpu < 100*time.Millisecond { // 15 to 25 on a quiet machine
			return
		}
		require.Less(t, try, 2)
	}
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
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("still looking for a process that is gone")
	}
}
