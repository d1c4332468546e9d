//go:build linux

package cgroups

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const nobody = 65534

// The test binary is also the command in the sandboxes of these tests: with
// this variable it does what its value names. It says what it has done, line
// by line, on stdout, and stays until stdin ends. One that a test has started
// waits for a first line on stdin.
const helperVariable = "CGROUPS_TEST_HELPER"

func init() {
	if os.Getenv(helperVariable) == "leaderless" {
		runtime.LockOSThread() // in an init it is the first
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		if os.Getenv("WAIT") != "" {
			wait()
		}
		helper(name, os.Args[1:])
		return
	}
	os.Exit(m.Run())
}

func helper(name string, args []string) {
	number := func(i int) int {
		n, err := strconv.Atoi(args[i])
		must(err)
		return n
	}
	switch name {
	case "sleep":
	case "anonymous": // BYTES
		fill(mapping(number(0), unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1))
	case "shared": // BYTES
		fill(mapping(number(0), unix.MAP_SHARED|unix.MAP_ANONYMOUS, -1))
	case "hidden": // HELPER ARG: not dumpable
		must(unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
		helper(args[0], args[1:])
		return
	case "watch": // watches itself for two seconds, stops itself, and says if it was for longer, and if the watch was over when a timer was
		runtime.GOMAXPROCS(1) // the watch does not go on where this does not
		watched := make(chan bool, 1)
		watch(2*time.Second, func() {
			begun, timer := time.Now(), time.NewTimer(2*time.Second)
			must(unix.Kill(os.Getpid(), unix.SIGSTOP))
			<-timer.C
			fmt.Println("stopped for longer", time.Since(begun) > 2*time.Second, "watched", len(watched))
			<-watched
			fmt.Println("watched")
		}, func() { watched <- true })
	case "memfd", "memfd-mapped": // BYTES: the memory is in an open file, or mapped and closed
		fd, err := unix.MemfdCreate("hog", 0)
		must(err)
		must(unix.Ftruncate(fd, int64(number(0))))
		b := mapping(number(0), unix.MAP_SHARED, fd)
		fill(b)
		if name != "memfd-mapped" {
			must(unix.Munmap(b))
		} else {
			must(unix.Close(fd))
		}
	case "memfd-program": // BYTES: behind a program
		fd, err := unix.MemfdCreate("hog", unix.MFD_CLOEXEC)
		must(err)
		program, err := os.ReadFile("/proc/self/exe")
		must(err)
		_, err = unix.Write(fd, program)
		must(err)
		chunk := make([]byte, mib)
		fill(chunk)
		for range number(0) / len(chunk) {
			_, err := unix.Write(fd, chunk)
			must(err)
		}
		must(os.Setenv(helperVariable, "sleep"))
		must(os.Unsetenv("WAIT"))
		must(unix.Exec(fmt.Sprintf("/proc/self/fd/%d", fd), []string{"sleep"}, os.Environ()))
	case "memfd-thread": // BYTES: in an open file of one thread alone
		done := make(chan bool)
		go func() {
			runtime.LockOSThread()
			must(unix.Unshare(unix.CLONE_FILES))
			fd, err := unix.MemfdCreate("hog", 0)
			must(err)
			must(unix.Ftruncate(fd, int64(number(0))))
			b := mapping(number(0), unix.MAP_SHARED, fd)
			fill(b)
			must(unix.Munmap(b))
			close(done)
			select {}
		}()
		<-done
	case "leaderless": // BYTES: the first thread has ended by then
		debug.SetGCPercent(-1) // it would wait for that one
		go func() {
			for first := "/proc/self/statm"; ; time.Sleep(time.Millisecond) {
				if b, err := os.ReadFile(first); err == nil && b[0] == '0' {
					break
				}
			}
			fill(mapping(number(0), unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1))
			fmt.Println("done")
			io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	case "tmpfs": // DIRECTORY BYTES: mounts one there, says so, waits for a line, fills it
		must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		must(unix.Mount("tmpfs", args[0], "tmpfs", 0, ""))
		fmt.Println("mounted")
		wait()
		f, err := os.Create(filepath.Join(args[0], "file"))
		must(err)
		b := make([]byte, 1<<20)
		for range number(1) / len(b) {
			_, err := f.Write(b)
			must(err)
		}
	case "segment": // BYTES: a System V segment that nobody has attached. Its table is the descriptor that is said first
		table, err := unix.Open("/proc/sysvipc/shm", unix.O_RDONLY, 0)
		must(err)
		fmt.Println(table)
		wait()
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, number(0), unix.IPC_CREAT|0o600)
		must(err)
		b, err := unix.SysvShmAttach(id, 0, 0)
		must(err)
		fill(b)
		must(unix.SysvShmDetach(b))
	case "many": // N HELPER ARG: starts that many, each leaving its parent
		for range number(0) {
			c := exec.Command(os.Args[0], args[2:]...)
			c.Env = []string{helperVariable + "=" + args[1], "GOMAXPROCS=1"}
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			c.Stdin = os.Stdin
			must(c.Start())
		}
	case "orphan": // HELPER ARG: starts one and ends, so that pid 1 gets it
		c := exec.Command(os.Args[0], args[1:]...)
		c.Env = []string{helperVariable + "=" + args[0]}
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		c.Stdin = os.Stdin
		c.Stdout = os.Stdout
		must(c.Start())
		return
	case "double-fork": // HELPER ARG
		c := exec.Command(os.Args[0], args...)
		c.Env = []string{helperVariable + "=orphan"}
		c.Stdin, c.Stdout = os.Stdin, os.Stdout
		must(c.Run())
		time.Sleep(time.Hour) // it is the orphan that says when it is done
	case "forks": // N BYTES: memory that N forks share
		fill(mapping(number(1), unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1))
		for range number(0) {
			forkSleeper()
		}
	case "vforks", "forks-write": // BYTES: memory that another process uses as well, which has not called exec yet, or of which it has a copy
		b := mapping(number(0), unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
		fill(b)
		if name == "forks-write" {
			r, w, err := os.Pipe()
			must(err)
			forkWriter(b, w.Fd())
			_, err = r.Read(make([]byte, 1))
			must(err)
			break
		}
		debug.SetGCPercent(-1) // which would wait for a thread that does not come back
		go vforkSleeper()
	case "pids": // N: tries that many threads, says how many it got
		n := 0
		for range number(0) {
			if forkSleeper() != 0 {
				break
			}
			n++
		}
		fmt.Println(n)
	case "nested-pids": // N: the same in another user namespace
		must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		must(unix.Mount("proc", "/proc", "proc", 0, "")) // package os writes /proc/PID/uid_map
		c := exec.Command(os.Args[0], args...)
		c.Env = []string{helperVariable + "=pids"}
		c.Stdin, c.Stdout = os.Stdin, os.Stdout
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}}
		must(c.Run())
		return
	case "nproc": // N HELPER ARG: sets RLIMIT_NPROC and becomes the helper
		limit := unix.Rlimit{Cur: uint64(number(0)), Max: uint64(number(0))}
		must(unix.Setrlimit(unix.RLIMIT_NPROC, &limit))
		must(unix.Exec(os.Args[0], append([]string{os.Args[0]}, args[2:]...), []string{helperVariable + "=" + args[1]}))
	case "spin": // MILLISECONDS: two threads, says how many thousandths of a processor it got
		used := func() int64 {
			var u unix.Rusage
			must(unix.Getrusage(unix.RUSAGE_SELF, &u))
			return u.Utime.Nano() + u.Stime.Nano()
		}
		before, begin := used(), time.Now()
		deadline := begin.Add(time.Duration(number(0)) * time.Millisecond)
		done := make(chan bool)
		for range 2 {
			go func() {
				for time.Now().Before(deadline) {
				}
				done <- true
			}()
		}
		<-done
		<-done
		fmt.Println(1000 * (used() - before) / time.Since(begin).Nanoseconds())
	default:
		must(fmt.Errorf("no helper %q", name))
	}
	fmt.Println("done")
	io.Copy(io.Discard, os.Stdin)
}

// wait reads a line, and not a byte more: what follows is for others.
func wait() {
	for b := []byte{0}; b[0] != '\n'; {
		_, err := os.Stdin.Read(b)
		must(err)
	}
}

func must(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func mapping(bytes, flags, fd int) []byte {
	b, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, flags)
	must(err)
	return b
}

func fill(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
}

// forkSleeper makes a child that shares all memory and does nothing. The child
// of a Go program may only make raw system calls.
//
//go:norace
func forkSleeper() syscall.Errno {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	for errno == 0 && pid == 0 {
		syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	return errno
}

// forkWriter makes a child that writes to all of b, and so has a copy of it, and then
// says so.
//
//go:norace
func forkWriter(b []byte, done uintptr) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	for errno == 0 && pid == 0 {
		for i := 0; i < len(b); i += 4096 {
			b[i] = 2
		}
		syscall.RawSyscall(syscall.SYS_WRITE, done, uintptr(unsafe.Pointer(&b[0])), 1)
		syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// vforkSleeper makes a child on its own memory and stack, that does nothing. It
// does not return. Both calls are one, so that the child leaves on the stack
// what it has found there.
//
//go:norace
func vforkSleeper() {
	nr, flags := uintptr(syscall.SYS_CLONE), uintptr(syscall.CLONE_VM|syscall.CLONE_VFORK)|uintptr(syscall.SIGCHLD)
	for {
		syscall.RawSyscall6(nr, flags, 0, 0, 0, 0, 0)
		nr, flags = syscall.SYS_PPOLL, 0
	}
}

// A command is a helper that has been started.
type command struct {
	*exec.Cmd
	t     *testing.T
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// start starts a helper, in namespaces of its own where flags ask for them. It
// is gone, with all that it started, when the test ends.
func start(t *testing.T, flags uintptr, name string, args ...string) *command {
	t.Helper()
	c := prepare(t, flags, name, args...)
	c.begin()
	return c
}

// proceed lets a helper that waits go on.
func (c *command) proceed() {
	_, err := c.stdin.Write([]byte("\n"))
	require.NoError(c.t, err)
}

func prepare(t *testing.T, flags uintptr, name string, args ...string) *command {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = []string{helperVariable + "=" + name, "GOMAXPROCS=2", "WAIT=1"}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	if flags&unix.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return &command{Cmd: cmd, t: t}
}

func (c *command) begin() {
	c.t.Helper()
	var err error
	c.stdin, err = c.StdinPipe()
	require.NoError(c.t, err)
	stdout, err := c.StdoutPipe()
	require.NoError(c.t, err)
	c.lines = bufio.NewScanner(stdout)
	require.NoError(c.t, c.Start())
	c.t.Cleanup(func() {
		c.stdin.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}

// line returns the next line that the helper says, "" at its end.
func (c *command) line() string {
	if !c.lines.Scan() {
		return ""
	}
	return c.lines.Text()
}

// sandbox are the namespaces of a sandbox that an unprivileged user can make.
const sandbox = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC

// needSandbox skips a test where a user may not have them.
func needSandbox(t *testing.T) {
	c := prepare(t, sandbox, "sleep")
	c.Stdin = strings.NewReader("\n")
	if err := c.Run(); err != nil {
		t.Skipf("needs user namespaces: %v", err)
	}
}

// asNobody runs a test of this package as an unprivileged user.
func asNobody(t *testing.T, name string) {
	t.Run("nobody", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "cgroups-test-")
		require.NoError(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		require.NoError(t, os.Chmod(dir, 0o755))
		tmp := filepath.Join(dir, "tmp")
		require.NoError(t, os.Mkdir(tmp, 0o755))
		require.NoError(t, os.Chown(tmp, nobody, nobody))
		self, err := os.ReadFile("/proc/self/exe")
		require.NoError(t, err)
		exe := filepath.Join(dir, "cgroups.test")
		require.NoError(t, os.WriteFile(exe, self, 0o755))

		c := exec.Command(exe, "-test.run=^"+name+"$", "-test.v")
		c.Dir = dir
		c.Env = []string{"TMPDIR=" + tmp}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
		out, err := c.CombinedOutput()
		t.Logf("%s", out)
		require.NoError(t, err)
		require.NotContains(t, string(out), "--- SKIP", "what root can try must not be skipped as nobody")
		require.Contains(t, string(out), "--- PASS: "+name)
	})
}
