package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A thread that has short turns hands none on: what it starts is scheduled as any
// other process, and so is this one's every other thread.
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
		require.Eventually(t, func() bool {
			hasty := 0
			tasks, _ := filepath.Glob("/proc/self/task/*")
			for _, task := range tasks {
				tid, _ := strconv.Atoi(filepath.Base(task))
				if attr, err := unix.SchedGetAttr(tid, 0); err == nil && *attr != *usual {
					hasty++
				}
			}
			return hasty == 1
		}, time.Minute, time.Millisecond, "one thread is scheduled otherwise")
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
	const each, names = 100 * time.Millisecond, 4
	for _, c := range []struct {
		name string
		look func()
	}{
		{"it waits", func() { time.Sleep(each) }},
		{"control: it works", func() {
			for began := worked(); worked()-began < each; {
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatchman(t)
			w.begin()
			stall = func(string) { c.look() }
			t.Cleanup(func() { stall = nil })
			w.guard.Watch()
			began := time.Now()
			for range names {
				require.NoError(t, os.WriteFile(w.path(".envrc"), nil, 0o644))
				select {
				case <-w.told:
				case <-time.After(20 * time.Second):
					t.Fatal("it stands")
				}
			}
			took := time.Since(began)
			if c.name == "it waits" {
				require.Less(t, took, (names-1)*each*idle/2)
			} else {
				require.Greater(t, took, (names-1)*each*idle/2)
			}
			// The rest that it takes by now ends with the run.
			stall = nil
			began = time.Now()
			w.end()
			require.Less(t, time.Since(began), each*idle/2)
		})
	}
}
