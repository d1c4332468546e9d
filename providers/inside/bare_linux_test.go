package inside

import (
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/seccomp"
)

// tree is the spool's place, in which a script is begun.
func tree(t *testing.T, script string, deadline time.Duration) (p *place, wait func() *Ended) {
	p = &place{tree: true}
	return p, p.next(t, script, deadline)
}

// next begins another script there.
func (p *place) next(t *testing.T, script string, deadline time.Duration) (wait func() *Ended) {
	t.Helper()
	p.plan = plan(script)
	p.plan.Filter, p.plan.Floor, p.plan.Deadline, p.plan.Grace = seccomp.Default(), seccomp.Floor(), deadline, time.Millisecond
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	wait, step, err := p.startWith(&streams{theirs: [3]*os.File{null, null, null}})
	require.NoError(t, err, step)
	return wait
}

// TestADeadlineIsOfOneCommand: the time of the trial, which is up while the command after it runs, ends
// the trial alone.
//
//test:root
func TestADeadlineIsOfOneCommand(t *testing.T) {
	const trial = 2 * time.Second
	p, wait := tree(t, "exec sleep 600", trial) // one process: a child of a shell that is gone would stay
	end := wait()
	require.True(t, end.TimedOut, "the control: what goes on for longer is ended")

	p, wait = tree(t, "true", trial)
	wait()
	end = p.next(t, "sleep 4; exit 7", 0)()
	require.Equal(t, 7, end.Code, "%+v", end)
	require.Zero(t, end.Signal)
	require.False(t, end.TimedOut)
}

// TestSignalWithoutPidfd: where an engine's filter refuses pidfd_open(2), as docker's before 20.10 do, what a
// command has started is signalled none the less.
//
//test:root
func TestSignalWithoutPidfd(t *testing.T) {
	child := exec.Command("sleep", "600")
	require.NoError(t, child.Start())
	ended := make(chan error, 1)
	opened := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, and its filter, end with this goroutine
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = install(refusing(unix.SYS_PIDFD_OPEN, unix.EPERM))
		}
		if err != nil {
			opened <- err
			return
		}
		_, err = unix.PidfdOpen(child.Process.Pid, 0)
		_ = (&place{tree: true}).all(unix.SIGKILL)
		opened <- err
	}()
	require.ErrorIs(t, <-opened, unix.EPERM, "the control: it is refused")
	go func() { ended <- child.Wait() }()
	require.ErrorContains(t, await.Receive(t, "the child ends", ended), "killed")
}

// refusing is a filter that answers one system call by an error.
func refusing(call int, errno unix.Errno) (filter []byte) {
	for _, f := range []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(call)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	} {
		filter = binary.NativeEndian.AppendUint16(filter, f.Code)
		filter = append(filter, f.Jt, f.Jf)
		filter = binary.NativeEndian.AppendUint32(filter, f.K)
	}
	return filter
}
