package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// A thread that has short turns hands none on: what it starts is scheduled as any
// other process, and so is this one's every other thread.
//
//test:root
func TestLookoutHandsNothingOn(t *testing.T) {
	child := func() *unix.SchedAttr {
		c := exec.Command("sleep", "60")
		require.NoError(t, c.Start())
		defer c.Wait()
		defer c.Process.Kill()
		attr, err := unix.SchedGetAttr(c.Process.Pid, 0)
		require.NoError(t, err)
		return attr
	}
	own := func() *unix.SchedAttr {
		attr, err := unix.SchedGetAttr(0, 0)
		require.NoError(t, err)
		return attr
	}
	var hasty, started, inherited *unix.SchedAttr
	usual := own()
	new(lookout).stand(func() {
		hasty, started = own(), child()
		// The lookouts of other tests may be about to end.
		await.Until(t, "one thread is scheduled otherwise", func() bool {
			hasty := 0
			tasks, _ := filepath.Glob("/proc/self/task/*")
			for _, task := range tasks {
				tid, _ := strconv.Atoi(filepath.Base(task))
				if attr, err := unix.SchedGetAttr(tid, 0); err == nil && *attr != *usual {
					hasty++
				}
			}
			return hasty == 1
		})
	})
	new(lookout).stand(func() {
		attr := own()
		attr.Flags &^= unix.SCHED_FLAG_RESET_ON_FORK
		if os.Geteuid() == 0 { // nobody else may take that back
			require.NoError(t, unix.SchedSetAttr(0, attr, 0))
			inherited = child()
		}
	})
	require.EqualValues(t, unix.SCHED_FLAG_RESET_ON_FORK, hasty.Flags)
	require.Equal(t, usual.Nice, hasty.Nice)
	require.Equal(t, usual.Policy, hasty.Policy)
	require.Equal(t, usual, started)
	if usual.Runtime != 0 { // a kernel that knows of turns
		require.EqualValues(t, slice, hasty.Runtime)
		if inherited != nil {
			require.EqualValues(t, slice, inherited.Runtime, "control: without the flag they are handed on")
		}
	}
}

// A lookout that waits hears of what was told before, and of nothing else.
func TestLookoutWaits(t *testing.T) {
	var l lookout
	l.wake() // nobody is there
	l.stand(func() {
		require.False(t, l.wait(time.Millisecond))
		l.wake()
		l.wake()
		require.True(t, l.wait(-1))
		require.False(t, l.wait(0), "once, however often it was told")
		time.AfterFunc(10*time.Millisecond, l.wake)
		require.True(t, l.wait(-1))
	})
	l.wake()
}

// How long a look takes because its thread must wait, for a processor or a disk, is not
// held against it: the next name is quarantined as soon. What it works is.
func TestGuardIsNotHeldUp(t *testing.T) {
	const look = time.Second
	for worked, rest := range map[time.Duration]time.Duration{0: time.Millisecond / 2, look: idle * (look - burst)} {
		now := time.Now()
		b := budget{burst, now}
		require.Equal(t, rest, b.spend(worked, now.Add(look)), worked)
	}
	b := budget{burst, time.Now()}
	b.spend(look, b.last)
	require.Equal(t, time.Millisecond/2, b.spend(0, b.last.Add(idle*look)), "what it took is over by then")

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := worked()
	time.Sleep(50 * time.Millisecond)
	require.Less(t, worked()-began, 50*time.Millisecond, "to wait is no work")
	for began = worked(); worked() == began; {
	}
}

// The rest that a guard takes ends with the run.
func TestGuardRestEnds(t *testing.T) {
	g := &Guard{stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		g.lookout.stand(func() { g.rest(time.Hour) })
	}()
	rested := make(chan struct{})
	go func() {
		defer close(rested)
		g.halt()
	}()
	await.Closed(t, "it rests no longer", rested)
}
