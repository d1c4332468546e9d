//go:build linux

package inside

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	ossignal "os/signal"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// A copyOf is a copy of this process that runs a program.
type copyOf struct {
	*Program
	t        *testing.T
	pid      int
	launcher int // our end of the pair
	control  int // the copy's, closed here once it is made
	ended    bool
}

// newCopy returns the beginning of a program, for a copy that dies with this test.
func newCopy(t *testing.T) *copyOf {
	c := &copyOf{Program: newProgram(t), t: t}
	c.launcher, c.control = socketpair(t)
	c.Call(unix.SYS_PRCTL, Int(unix.PR_SET_PDEATHSIG), Int(int(unix.SIGKILL)))
	c.Alive(Int(c.control))
	t.Cleanup(func() { unix.Close(c.launcher) })
	return c
}

func (c *copyOf) start(flags uintptr) {
	c.t.Helper()
	runtime.LockOSThread()
	c.t.Cleanup(runtime.UnlockOSThread)
	var err error
	c.pid, err = c.Start(Options{Flags: flags, Control: c.control, Launcher: c.launcher})
	unix.Close(c.control)
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		if !c.ended {
			unix.Kill(c.pid, unix.SIGKILL)
			c.wait()
		}
	})
}

// wait returns how the copy itself ended.
func (c *copyOf) wait() (status unix.WaitStatus) {
	for {
		_, err := unix.Wait4(c.pid, &status, unix.WALL, nil)
		if err != unix.EINTR {
			c.ended = true
			return status
		}
	}
}

// tell sends a message as the launcher.
func (c *copyOf) tell(m Message) {
	require.NoError(c.t, unix.Sendto(c.launcher, m.bytes(), unix.MSG_NOSIGNAL, nil))
}

// supervise appends the end of a program, a command in a session of its own,
// and starts the copy, in a pid namespace that ends with it. It returns what
// the command writes to its standard output.
func (c *copyOf) supervise(how Supervision, argv ...string) (out *os.File) {
	c.t.Helper()
	c.Await()
	set := uint64(1) << (unix.SIGCHLD - 1)
	how.Signals = c.Get(unix.SYS_SIGNALFD4, Int(-1), Ptr(c.Program, set), Int(8), Int(unix.SFD_CLOEXEC|unix.SFD_NONBLOCK))
	c.DropBounding()
	c.Fork()
	c.Call(unix.SYS_SETSID)
	r, w, err := os.Pipe()
	require.NoError(c.t, err)
	c.t.Cleanup(func() { r.Close(); w.Close() })
	c.Call(unix.SYS_DUP3, Int(w.Fd()), Int(1), Int(0))
	c.DefaultSignals()
	c.Call(unix.SYS_RT_SIGPROCMASK, Int(unix.SIG_SETMASK), Ptr(c.Program, uint64(0)), Int(0), Int(8))
	c.Exec([]string{"/nonexistent/x", argv[0]}, argv, []string{"PATH=/usr/bin:/bin"})
	c.start(unix.CLONE_NEWUSER | unix.CLONE_NEWPID)
	w.Close()
	require.NoError(c.t, c.Go(c.launcher, how))
	return r
}

// ready waits for one line of output.
func ready(t *testing.T, out *os.File) string {
	require.NoError(t, out.SetReadDeadline(await.Deadline()))
	line := make([]byte, 256)
	n, err := out.Read(line)
	require.NoError(t, err)
	return string(line[:n])
}

func TestFailureIsToldByStep(t *testing.T) {
	var st unix.Stat_t
	require.NoError(t, unix.Stat("/", &st))
	for _, c := range []struct {
		name  string
		fill  func(*copyOf)
		errno unix.Errno
	}{
		{"call", func(c *copyOf) { c.Get(unix.SYS_OPENAT, Int(unix.AT_FDCWD), c.Str("/nonexistent"), Int(0)) }, unix.ENOENT},
		{"another error than the one allowed", func(c *copyOf) { c.Call(unix.SYS_CLOSE, Int(-1)); c.Allow(unix.ENOENT) }, unix.EBADF},
		{"another inode", func(c *copyOf) {
			root := c.Get(unix.SYS_OPENAT, Int(unix.AT_FDCWD), c.Str("/"), Int(unix.O_PATH))
			c.SameInode(root, uint64(unix.Major(st.Dev))<<32|uint64(unix.Minor(st.Dev)), st.Ino+1)
		}, unix.ESTALE},
		{"another device", func(c *copyOf) {
			root := c.Get(unix.SYS_OPENAT, Int(unix.AT_FDCWD), c.Str("/"), Int(unix.O_PATH))
			c.SameInode(root, uint64(unix.Major(st.Dev))<<32|uint64(unix.Minor(st.Dev))+1, st.Ino)
		}, unix.ESTALE},
		{"no word of the launcher's", func(c *copyOf) { c.Await(); c.tell(Message{Kind: Resume}) }, unix.EPIPE},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newCopy(t)
			p.Step("before")
			p.Call(unix.SYS_GETPID)
			p.Step("the step")
			c.fill(p)
			p.Step("after")
			p.start(0)
			m := receive(t, p.launcher)
			require.Equal(t, Failed, m.Kind)
			require.Equal(t, "the step", p.StepName(m.A))
			require.Equal(t, c.errno, unix.Errno(m.B))
			require.Equal(t, 125, p.wait().ExitStatus())
		})
	}
}

// A table without a command ends with its last call.
func TestNoCommand(t *testing.T) {
	c := newCopy(t)
	c.Call(unix.SYS_GETPID)
	c.start(0)
	require.Zero(t, receive(t, c.launcher))
	require.Equal(t, 125, c.wait().ExitStatus())
}

// What is attempted may fail with whatever it likes, and the launcher hears of it
// where it asks for it; what needs it goes on failing.
func TestAttempt(t *testing.T) {
	c := newCopy(t)
	none := c.Get(unix.SYS_FSOPEN, c.Str("no such file system"), Int(0))
	c.Attempt()
	c.Call(unix.SYS_FSMOUNT, Result(none), Int(0), Int(0))
	c.Attempt()
	self := c.Get(unix.SYS_GETPID)
	failed, worked := c.Reveal(none), c.Reveal(self)
	c.Step("close what is not there")
	c.Call(unix.SYS_CLOSE, Result(none))
	c.start(0)
	require.Equal(t, Message{Kind: Failed, B: int32(unix.EBADF)}, receive(t, c.launcher))
	require.Contains(t, []unix.Errno{unix.ENODEV, unix.EPERM}, unix.Errno(-*failed), "without a user namespace of its own it may not even ask")
	require.Equal(t, int32(c.pid), *worked)
	require.Equal(t, 125, c.wait().ExitStatus())
}

func TestCommand(t *testing.T) {
	c := newCopy(t)
	out := c.supervise(Supervision{}, "/bin/sh", "-c", "echo hello; exit 7")
	require.Equal(t, Message{Kind: Exited, A: 7 << 8, B: ByItself}, receive(t, c.launcher))
	require.Zero(t, c.wait().ExitStatus())
	require.Equal(t, "hello\n", ready(t, out))
}

func TestCommandThatDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	text := dir + "/text"
	require.NoError(t, os.WriteFile(text, []byte("no program"), 0o755))
	closed := dir + "/closed"
	require.NoError(t, os.WriteFile(closed, nil, 0o644))
	for path, errno := range map[string]unix.Errno{text: unix.ENOEXEC, closed: unix.EACCES, "/nonexistent/y": unix.ENOENT, "/dev/null/x": unix.ENOENT} {
		t.Run(errno.Error(), func(t *testing.T) {
			c := newCopy(t)
			c.supervise(Supervision{}, path)
			require.Equal(t, Message{Kind: NotExecuted, B: int32(errno)}, receive(t, c.launcher))
			require.Equal(t, Message{Kind: Exited, A: 127 << 8}, receive(t, c.launcher))
		})
	}
}

// A filter of the user's may refuse all calls, also the one to end by, and signals
// are blocked.
func TestEndsWhatMayNotExit(t *testing.T) {
	end := func(action uint32) unix.WaitStatus {
		c := newCopy(t)
		c.Call(unix.SYS_PRCTL, Int(unix.PR_SET_NO_NEW_PRIVS), Int(1), Int(0), Int(0), Int(0))
		b := make([]byte, 8)
		binary.NativeEndian.PutUint16(b, unix.BPF_RET|unix.BPF_K)
		binary.NativeEndian.PutUint32(b[4:], action)
		c.Call(unix.SYS_SECCOMP, Int(unix.SECCOMP_SET_MODE_FILTER), Int(0), c.Filter(b))
		c.start(0)
		var status unix.WaitStatus
		await.Until(t, "it ends", func() bool {
			pid, err := unix.Wait4(c.pid, &status, unix.WALL|unix.WNOHANG, nil)
			return err == nil && pid == c.pid
		})
		c.ended = true
		return status
	}
	require.Equal(t, unix.SIGSEGV, end(0x00050000|uint32(unix.EPERM)).Signal(), "SECCOMP_RET_ERRNO")
	require.Equal(t, 125, end(0x7fff0000).ExitStatus(), "the control: SECCOMP_RET_ALLOW")
}

// Signals go to the command or to its group; a stop is told, and a
// stopped command goes on.
func TestSignals(t *testing.T) {
	for to := range ToGroup + 1 {
		c := newCopy(t)
		c.supervise(Supervision{}, "/bin/sleep", "60")
		c.tell(Message{Kind: Signal, A: int32(unix.SIGSTOP), B: to})
		require.Equal(t, Message{Kind: Stopped, A: int32(unix.SIGSTOP)}, receive(t, c.launcher))
		c.tell(Message{Kind: Signal, A: int32(unix.SIGTERM), B: to}) // waits until the command goes on
		c.tell(Message{Kind: Done})                                  // no word for pid 1
		c.tell(Message{Kind: Resume, A: 1})
		require.Equal(t, Message{Kind: Exited, A: int32(unix.SIGTERM)}, receive(t, c.launcher))
	}
}

// TestMain is also a command that asks to be traced by its parent, and then sends
// itself a signal that by default does nothing, and one that ends it.
func TestMain(m *testing.M) {
	if !slices.Contains(os.Args, "trace-me") {
		os.Exit(m.Run())
	}
	runtime.LockOSThread()
	ossignal.Reset()
	if _, _, err := unix.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0); err != 0 {
		os.Exit(1)
	}
	unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGWINCH)
	unix.Kill(unix.Getpid(), unix.SIGKILL)
}

// An execve(2) that hangs, here until a lease on the file is given back, holds
// neither pid 1's deadline nor the end.
func TestExecThatHangs(t *testing.T) {
	program, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	path := t.TempDir() + "/true"
	require.NoError(t, os.WriteFile(path, program, 0o755))
	leased, err := os.Open(path)
	require.NoError(t, err)
	defer leased.Close()
	_, err = unix.FcntlInt(leased.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	if err == unix.EPERM {
		t.Skip("needs leases, which a sandbox around refuses")
	}
	require.NoError(t, err)
	how := Supervision{Deadline: int64(100 * time.Millisecond), Grace: int64(50 * time.Millisecond), Namespace: true}
	c := newCopy(t)
	c.supervise(how, path)
	require.Equal(t, ByDeadline, receive(t, c.launcher).B)
	require.Zero(t, c.wait().ExitStatus())

	_, err = unix.FcntlInt(leased.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	require.NoError(t, err)
	c = newCopy(t)
	how.Deadline = int64(await.Patience)
	c.supervise(how, path)
	require.Equal(t, Message{Kind: Exited, C: 1}, receive(t, c.launcher), "control: without the lease it is executed")
}

// What asks to be traced by its parent is not: pid 1 lets it go on, with the
// signal that it stopped at.
func TestTracedByPid1(t *testing.T) {
	c := newCopy(t)
	c.supervise(Supervision{}, "/proc/self/exe", "trace-me")
	require.Equal(t, Message{Kind: Exited, A: int32(unix.SIGKILL)}, receive(t, c.launcher))
}

// A signal that was ignored when we started stays so, as nohup(1) wants it;
// the handlers of Go's runtime do not get into the command.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	ossignal.Ignore(unix.SIGUSR2)
	defer ossignal.Reset(unix.SIGUSR2)
	c := newCopy(t)
	out := c.supervise(Supervision{}, "/bin/cat", "/proc/self/status")
	require.Equal(t, Exited, receive(t, c.launcher).Kind)
	text := ready(t, out) + func() string { rest := new(bytes.Buffer); rest.ReadFrom(out); return rest.String() }()
	mask := func(name string) (set uint64) {
		_, rest, ok := strings.Cut(text, name+":\t")
		require.True(t, ok, text)
		_, err := fmt.Sscanf(rest, "%x", &set)
		require.NoError(t, err)
		return set
	}
	require.NotZero(t, mask("SigIgn")&(1<<(unix.SIGUSR2-1)))
	require.Zero(t, mask("SigCgt"))
	require.Zero(t, mask("SigBlk"))
}

// A deadline that the clock does not reach is none.
func TestDeadlineFarAway(t *testing.T) {
	c := newCopy(t)
	c.supervise(Supervision{Deadline: 1<<63 - 1}, "/bin/sh", "-c", "exit 3")
	require.Equal(t, Message{Kind: Exited, A: 3 << 8, B: ByItself}, receive(t, c.launcher))
}

func TestDeadline(t *testing.T) {
	for name, script := range map[string]string{
		"obeys":   "trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done",
		"ignores": "trap '' TERM; echo ready; while :; do sleep 0.02; done",
	} {
		t.Run(name, func(t *testing.T) {
			grace, want := await.Patience, Message{Kind: Exited, A: 3 << 8, B: ByDeadline}
			if name == "ignores" {
				grace, want.A = 100*time.Millisecond, int32(unix.SIGKILL)
			}
			// On a busy machine the deadline may come before the trap: then another has more time.
			for deadline := 200 * time.Millisecond; deadline < await.Patience; deadline *= 2 {
				c := newCopy(t)
				out := c.supervise(Supervision{Deadline: int64(deadline), Grace: int64(grace), Namespace: name == "ignores"}, "/bin/sh", "-c", script)
				got := receive(t, c.launcher)
				require.NoError(t, out.SetReadDeadline(await.Deadline()))
				text, err := io.ReadAll(out)
				require.NoError(t, err)
				if len(text) > 0 {
					require.Equal(t, want, got)
					return
				}
			}
			t.Fatal("it never had its trap in time")
		})
	}
}

// Nothing that the command started outlives pid 1, and pid 1 not the launcher.
func TestNothingSurvives(t *testing.T) {
	c := newCopy(t)
	out := c.supervise(Supervision{}, "/bin/sh", "-c", "setsid sh -c 'trap \"\" TERM HUP; echo ready; sleep 60' & wait")
	require.Equal(t, "ready\n", ready(t, out))
	unix.Shutdown(c.launcher, unix.SHUT_RDWR)
	require.Zero(t, c.wait().ExitStatus(), "it sees the hang-up")
	require.NoError(t, out.SetReadDeadline(await.Deadline()))
	_, err := out.Read(make([]byte, 1))
	require.ErrorContains(t, err, "EOF", "whoever held the pipe is gone")
}

// A filter around us refuses clone3; another error of it is the caller's.
func TestCloneWithoutClone3(t *testing.T) {
	failed := make(chan string, 2)
	go func() {
		runtime.LockOSThread() // and the thread ends with this goroutine, filter and all
		if err := refuseClone3(); err != nil {
			failed <- err.Error()
			return
		}
		p, err := New()
		if err != nil {
			failed <- err.Error()
			return
		}
		defer p.Free()
		launcher, control := socketpair(t)
		defer unix.Close(launcher)
		p.SendFDs(Int(control))
		if _, err := p.Start(Options{Cgroup: control, Control: control, Launcher: launcher}); err != unix.ENOSYS {
			failed <- fmt.Sprint("into a control group: ", err)
		}
		pid, err := p.Start(Options{Control: control, Launcher: launcher})
		unix.Close(control)
		var status unix.WaitStatus
		if err == nil {
			_, err = unix.Wait4(pid, &status, unix.WALL, nil)
		}
		var m Message
		n, _, _ := unix.Recvfrom(launcher, into(&m), 0)
		failed <- fmt.Sprint(err, " ", fmt.Sprintf("%x", int(status)), " ", m.Kind == Descriptors && n == int(messageSize))
	}()
	require.Equal(t, "<nil> 7d00 true", <-failed)
}

// refuseClone3 makes clone3 ENOSYS for this thread, as Docker's filter does.
func refuseClone3() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x00050000 | uint32(unix.ENOSYS)}, // SECCOMP_RET_ERRNO
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},                       // SECCOMP_RET_ALLOW
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

func TestStartFails(t *testing.T) {
	p := newProgram(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	file, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer file.Close()
	_, err = p.Start(Options{Cgroup: int(file.Fd()), Control: -1, Launcher: -1})
	require.ErrorIs(t, err, unix.EBADF, "no control group")
	_, err = p.Start(Options{Flags: unix.CLONE_NEWUSER | unix.CLONE_FS, Control: -1, Launcher: -1})
	require.ErrorIs(t, err, unix.EINVAL)
}
