package credentials

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/hint"
)

const role = "CREDENTIALS_TEST_ROLE"

// nobody's number is nobody's, and has no other process.
const nobody = 0x70636373

// A signal at the parent's death goes with the thread that has started the child, and where the C library is linked it is set
// on the caller's alone.
func init() { runtime.LockOSThread() }

// Whoever started it, and is root, is killed: a process that has become another user dies as well.
//
//test:root
func TestDiesWithItsParent(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), role+"=parent")
	in, stdin, err := os.Pipe()
	require.NoError(t, err)
	defer stdin.Close() // not before the end: its child ends by itself then
	defer in.Close()
	cmd.Stdin = in
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	require.NoError(t, cmd.Start())
	w.Close()
	require.NoError(t, r.SetReadDeadline(time.Now().Add(await.Patience)))
	out := bufio.NewReader(r)
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	_, err = out.ReadByte()
	require.ErrorIs(t, err, io.EOF, "nobody has its output any more")
}

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "become":
		if err := Become(nobody, nobody+1); err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		report()
	case "parent":
		child := exec.Command("/proc/self/exe")
		child.Env, child.Stdin, child.Stdout, child.Stderr = append(os.Environ(), role+"=child"), os.Stdin, os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		_ = child.Run() // on the first thread: see init
	case "child":
		if err := Become(nobody, nobody+1); err != nil {
			fmt.Println(err)
		}
		fmt.Println("ready")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed, or whoever tests it has seen enough
	case "filled":
		// The queue is full just after the timers were made.
		timers, err := nudge(0)
		if err != nil || len(timers) < 2 {
			fmt.Println(len(timers), err)
			os.Exit(3)
		}
		unix.Setrlimit(unix.RLIMIT_SIGPENDING, &unix.Rlimit{Max: 1000})
		err = become(nobody, nobody+1)
		timers.remove()
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		report()
	case "raw":
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(nobody+1, nobody+1, nobody+1), syscall.Setresuid(nobody, nobody, nobody)); err != nil {
			os.Exit(3)
		}
		report()
	}
}

// report prints each thread's own credentials, one line for all that are alike.
func report() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil || len(tasks) < 2 {
		fmt.Println("threads:", len(tasks), err)
		return
	}
	lines := map[string]bool{}
	for _, t := range tasks {
		status, _ := os.ReadFile("/proc/self/task/" + t.Name() + "/status")
		var own []string
		for l := range strings.Lines(string(status)) {
			if name, rest, _ := strings.Cut(l, ":"); name == "Uid" || name == "Gid" || name == "Groups" || name == "CapPrm" {
				own = append(own, strings.Join(strings.Fields(rest), " "))
			}
		}
		lines[strings.Join(own, "; ")] = true
	}
	for l := range lines {
		fmt.Println(l)
	}
}

// Where the queue of signals is full, before or meanwhile, nobody waits for ever.
//
//test:root
func TestBecome(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	within := func(patience time.Duration, as, pending string) (string, error) {
		cmd := exec.Command("prlimit", "--sigpending="+pending, self, "-test.run=^$")
		cmd.Env = append(os.Environ(), role+"="+as)
		var out strings.Builder
		cmd.Stdout = &out // what counts statements may complain that its files are out of reach by then
		require.NoError(t, cmd.Start())
		// It would spin for ever, deaf to what its runtime handles.
		late := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		defer late.Stop()
		err := cmd.Wait()
		return out.String(), err
	}
	start := func(as, pending string) (string, error) { return within(await.Patience, as, pending) }
	const full = "drop root: no signal can be queued to this process's own threads: resource temporarily unavailable\n"
	over := fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d; %[2]d %[2]d %[2]d %[2]d; ; 0000000000000000\n", nobody, nobody+1)
	out, err := start("become", "1000:2000")
	require.NoError(t, err, out)
	require.Equal(t, over, out)
	out, err = start("become", "0:0")
	require.Error(t, err)
	require.Equal(t, full, out)
	out, err = start("filled", "1000:1000")
	if libc {
		require.Error(t, err)
		require.Equal(t, full, out)
	} else {
		require.NoError(t, err, out)
		require.Equal(t, over, out, "the timers' signals come where the runtime's are lost")
	}

	out, err = start("raw", "1000:1000")
	require.NoError(t, err)
	require.Equal(t, over, out)
	if libc {
		out, err = start("raw", "0:1000")
		require.NoError(t, err)
		require.Contains(t, out, "0 0 0 0; 0 0 0 0", "control: without them threads stay root's")
	} else {
		out, err = within(2*time.Second, "raw", "0:1000")
		require.Error(t, err)
		require.Empty(t, out, "control: without them it waits for ever")
	}
}

// Whoever may not is told so, and a thread that is somebody else is found.
//
//test:root
func TestBecomeNobody(t *testing.T) {
	require.NoError(t, all(os.Getuid()))
	require.ErrorIs(t, all(nobody), unix.EAGAIN)
	if os.Getuid() != 0 {
		require.ErrorIs(t, Become(nobody, nobody), unix.EPERM)
	}
}

// The room is asked for when a timer is made, and waited for.
func TestNudge(t *testing.T) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_SIGPENDING, &limit))
	set := func(soft uint64) {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_SIGPENDING, &unix.Rlimit{Cur: soft, Max: limit.Max}))
	}
	t.Cleanup(func() { set(limit.Cur) })
	made, err := nudge(0)
	require.NoError(t, err)
	require.NotEmpty(t, made)
	made.remove()

	set(0)
	made, err = nudge(20 * time.Millisecond)
	made.remove()
	var full *hint.Error
	require.ErrorAs(t, err, &full)
	require.ErrorIs(t, err, unix.EAGAIN)
	require.Contains(t, full.Hint(), "ulimit -i")

	time.AfterFunc(50*time.Millisecond, func() { set(limit.Cur) })
	made, err = nudge(await.Patience)
	require.NoError(t, err)
	made.remove()
}
