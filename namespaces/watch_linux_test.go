package namespaces

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/seccomp"
	"github.com/pccrun/pccrun/seccomp/supervisor"
)

// watching makes a bench's plan ask about calls.
func (b *bench) watching(calls []seccomp.Watched) *bench {
	filter, err := seccomp.Watch(calls, runtime.GOARCH)
	require.NoError(b.t, err)
	b.plan.Watch = &Watch{Filter: filter, Flags: supervisor.InstallFlags()}
	return b
}

// seen runs a script and returns what the launcher was told, as "call deed path".
func (b *bench) seen(script string) (list []string, out outcome) {
	b.t.Helper()
	run, err := b.sh(script).begin()
	require.NoError(b.t, err)
	listener, err := run.Listener()
	require.NoError(b.t, err)
	s := supervisor.Observe(listener, func(c *supervisor.Call) {
		for _, n := range c.Names() {
			place, err := c.Path(n)
			if err != nil {
				place.Path = err.Error()
			}
			list = append(list, fmt.Sprintln(c.Name, n.Op, place.Path))
		}
	})
	out = run.end()
	require.NoError(b.t, s.Wait())
	return list, out
}

// The launcher sees each call with the path as the command means it, and the
// calls do what they do without it.
func TestListener(t *testing.T) {
	b := newBench(t, []string{"dir/sub/", "file"}).watching(supervisor.Writes())
	list, out := b.seen(`set -e
echo x > made; cat made >/dev/null
mkdir new; ln -s dir/sub link; cd link; echo y > ../up; mv ../up down
ln down hard; mkdir /etc/no 2>/dev/null || echo refused
cat made 2>/dev/null || echo absent
ls -l /proc/self/fd /proc/$$/fd | grep -c seccomp || true`)
	require.Equal(t, "refused\nabsent\n0\n", out.out, "what is refused stays refused, and nobody inside holds the listener")
	require.Zero(t, out.Status.ExitStatus())
	for _, want := range []string{
		"openat write " + b.path("made"), "mkdir create " + b.path("new"), "symlinkat create " + b.path("link"),
		"openat write " + b.path("dir/up"), "mkdir create /etc/no",
	} {
		require.Contains(t, list, want+"\n")
	}
	for _, want := range []string{"remove " + b.path("dir/up"), "create " + b.path("dir/sub/down"), "read " + b.path("dir/sub/down"), "create " + b.path("dir/sub/hard")} {
		require.Contains(t, strings.Join(list, ""), " "+want+"\n")
	}
	require.Equal(t, "x\n", b.read("made"))
	require.NotContains(t, list, "openat read "+b.path("made")+"\n", "opens for reading are not asked about")
}

// Reads and programs are seen where they are asked about.
func TestListenerAccesses(t *testing.T) {
	b := newBench(t, []string{"file", "other"}).watching(supervisor.Both(supervisor.Writes(), supervisor.Accesses()))
	list, out := b.seen("cat file; ln -s other link; cat link; test -e absent || true")
	require.Zero(t, out.Status.ExitStatus(), out.out)
	require.Contains(t, list, "openat read "+b.path("file")+"\n")
	require.Contains(t, list, "openat read "+b.path("other")+"\n", "where the link leads")
	require.NotContains(t, list, "openat read "+b.path("link")+"\n")
	require.Contains(t, strings.Join(list, ""), "execve execute /")
}

// A kernel has one supervisor for a process: where there is one around us, the
// run goes on without if it may, and does not begin if it must not.
func TestListenerTwice(t *testing.T) {
	if os.Getenv(insideVariable) == "" {
		cmd := self(t, "watched", "-test.run=^TestListenerTwice$", "-test.v")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "--- PASS: TestListenerTwice")
		return
	}
	b := newBench(t, nil).watching(supervisor.Writes())
	run, err := b.sh("echo ran").begin()
	require.NoError(t, err)
	_, err = run.Listener()
	require.ErrorIs(t, err, ErrWatched)
	require.Equal(t, "ran\n", run.end().out)

	b.plan.Watch.Required = true
	run, err = b.begin()
	require.NoError(t, err)
	_, err = run.Listener()
	require.ErrorIs(t, err, unix.EBUSY)
	run.Close()
}

const insideVariable = "PCCRUN_NAMESPACES_TEST_WATCHED"

// watchedRole puts a supervisor around this program, and starts it again.
func watchedRole(args []string) error {
	runtime.LockOSThread()
	filter, err := seccomp.Watch([]seccomp.Watched{{Name: "swapon"}}, runtime.GOARCH)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(supervisor.InstallFlags()), uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, roleVariable+"=") })
	return unix.Exec(binary, append([]string{binary}, args...), append(env, insideVariable+"=1"))
}

// Without a supervisor each call fails: nothing passes unseen.
func TestListenerClosed(t *testing.T) {
	b := newBench(t, []string{"file"}).watching(supervisor.Writes())
	run, err := b.sh("echo x > made; mkdir new; cat file && echo read").begin()
	require.NoError(t, err)
	listener, err := run.Listener()
	require.NoError(t, err)
	require.NoError(t, unix.Close(listener))
	require.Contains(t, run.end().out, "read\n")
	require.NoFileExists(t, b.path("made"))
	require.NoDirExists(t, b.path("new"))
}
