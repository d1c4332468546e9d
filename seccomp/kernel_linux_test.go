package seccomp

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	gosyscall "syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The kernel tests run this test binary again, in a role: "control" makes the
// calls of kernelCases without a filter, the name of a filter with it. The
// answers come back on stdout, a line each: "name errno".
const roleVariable = "PCCRUN_SECCOMP_TEST_ROLE"

// A kernelCase is one call that does no harm also where it is let through: its
// arguments are such that the kernel refuses them, with another errno.
type kernelCase struct {
	name string
	nr   uintptr
	args [6]uintptr
	want gosyscall.Errno // with the default filter; 0 with same
	same bool            // answers as without a filter
	root bool            // the kernel itself gives EPERM to the unprivileged
	abi  func(nr uintptr, args [6]uintptr) gosyscall.Errno
}

const (
	minus = ^uintptr(0) // -1, as a descriptor
	hi    = uintptr(1) << 32
)

func kernelCases() []kernelCase {
	const eperm, enosys, einval = unix.EPERM, unix.ENOSYS, unix.EINVAL
	call := func(name string, nr uintptr, want gosyscall.Errno, args ...uintptr) kernelCase {
		c := kernelCase{name: name, nr: nr, want: want}
		copy(c.args[:], args)
		return c
	}
	root := func(c kernelCase) kernelCase { c.root = true; return c }
	same := func(name string, nr uintptr, args ...uintptr) kernelCase {
		c := call(name, nr, 0, args...)
		c.same = true
		return c
	}
	here := unix.AT_FDCWD
	cwd := uintptr(here)
	cases := []kernelCase{
		call("clone newuser", unix.SYS_CLONE, eperm, unix.CLONE_NEWUSER|unix.CLONE_FS),
		call("clone newuser high", unix.SYS_CLONE, eperm, hi|unix.CLONE_NEWUSER|unix.CLONE_FS),
		call("clone3", unix.SYS_CLONE3, enosys, 0, 0),
		call("unshare newuser", unix.SYS_UNSHARE, eperm, unix.CLONE_NEWUSER),
		call("setns", unix.SYS_SETNS, eperm, minus, 0),
		call("mount", unix.SYS_MOUNT, eperm),
		call("umount2", unix.SYS_UMOUNT2, eperm),
		root(call("pivot_root", unix.SYS_PIVOT_ROOT, eperm)),
		call("chroot", unix.SYS_CHROOT, eperm),
		call("open_tree", unix.SYS_OPEN_TREE, eperm, cwd, 0, 0),
		root(call("fsopen", unix.SYS_FSOPEN, eperm)),
		call("mount_setattr", unix.SYS_MOUNT_SETATTR, eperm, minus, 0, 0, 0, 0),
		call("io_uring_setup", unix.SYS_IO_URING_SETUP, eperm, 0, 0),
		call("io_uring_enter", unix.SYS_IO_URING_ENTER, eperm, 99),
		root(call("bpf", unix.SYS_BPF, eperm, 9999, 0, 0)),
		call("userfaultfd", unix.SYS_USERFAULTFD, eperm, 1<<31|1),
		call("perf_event_open", unix.SYS_PERF_EVENT_OPEN, eperm),
		call("keyctl", unix.SYS_KEYCTL, enosys, 9999),
		call("add_key", unix.SYS_ADD_KEY, enosys),
		call("request_key", unix.SYS_REQUEST_KEY, enosys),
		root(call("kexec_load", unix.SYS_KEXEC_LOAD, eperm, 0, 99, 0, 0)),
		root(call("init_module", unix.SYS_INIT_MODULE, eperm)),
		root(call("finit_module", unix.SYS_FINIT_MODULE, eperm, minus)),
		root(call("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, eperm, minus)),
		root(call("swapon", unix.SYS_SWAPON, eperm)),
		root(call("reboot", unix.SYS_REBOOT, eperm, 1, 1, 1, 0)),
		root(call("syslog", unix.SYS_SYSLOG, eperm, 99)),
		root(call("fanotify_init", unix.SYS_FANOTIFY_INIT, eperm, 1<<32-1)),
		root(call("sethostname", unix.SYS_SETHOSTNAME, eperm, 0, 1<<31)),
		call("kcmp", unix.SYS_KCMP, eperm, uintptr(os.Getpid()), uintptr(os.Getpid()), 99),
		call("pidfd_getfd", unix.SYS_PIDFD_GETFD, eperm, minus),
		call("process_madvise", unix.SYS_PROCESS_MADVISE, eperm, minus),
		call("mbind", unix.SYS_MBIND, eperm, 1, 1, 99, 0, 0, 0),
		call("move_pages", unix.SYS_MOVE_PAGES, eperm, 0, 1, 0, 0, 0, 99),
		call("clock_settime", unix.SYS_CLOCK_SETTIME, eperm, 0, 1),
		call("settimeofday", unix.SYS_SETTIMEOFDAY, eperm, 1),
		call("adjtimex", unix.SYS_ADJTIMEX, eperm),
		call("quotactl", unix.SYS_QUOTACTL, eperm, 0xff),
		call("personality", unix.SYS_PERSONALITY, eperm, 0x0040000),
		call("openat2", unix.SYS_OPENAT2, enosys, minus, 0, 0, 0),
		call("fchmodat2", unix.SYS_FCHMODAT2, enosys, minus, 0, 0o4755),

		call("socket packet", unix.SYS_SOCKET, unix.EAFNOSUPPORT, unix.AF_PACKET, unix.SOCK_RAW, 0),
		call("socket packet high", unix.SYS_SOCKET, unix.EAFNOSUPPORT, hi|unix.AF_PACKET, unix.SOCK_RAW, 0),
		call("socket packet by type", unix.SYS_SOCKET, unix.EPROTONOSUPPORT, unix.AF_INET, unix.SOCK_PACKET, 0),
		call("socket raw", unix.SYS_SOCKET, unix.EPROTONOSUPPORT, unix.AF_INET, unix.SOCK_RAW, 1),
		call("socket netfilter", unix.SYS_SOCKET, unix.EAFNOSUPPORT, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC),
		call("socketpair inet", unix.SYS_SOCKETPAIR, unix.EAFNOSUPPORT, unix.AF_INET, unix.SOCK_STREAM, 0, 1),
		call("ioctl TIOCSTI", unix.SYS_IOCTL, eperm, minus, unix.TIOCSTI, 0),
		call("ioctl TIOCSTI high", unix.SYS_IOCTL, eperm, minus, hi|unix.TIOCSTI, 0),
		call("ioctl TIOCLINUX", unix.SYS_IOCTL, eperm, minus, 0x541c, 0),
		call("ioctl TIOCSETD", unix.SYS_IOCTL, eperm, minus, unix.TIOCSETD, 0),
		call("ioctl btrfs snapshot", unix.SYS_IOCTL, eperm, minus, 0x50009417, 0),
		call("ioctl flags", unix.SYS_IOCTL, eperm, minus, hi|unix.FS_IOC_SETFLAGS, 0),
		call("sendto oob", unix.SYS_SENDTO, unix.EOPNOTSUPP, minus, 0, 0, unix.MSG_OOB),
		call("sendmsg oob", unix.SYS_SENDMSG, unix.EOPNOTSUPP, minus, 0, hi|unix.MSG_OOB),
		call("setsockopt tls", unix.SYS_SETSOCKOPT, unix.ENOENT, minus, hi|unix.SOL_TCP, hi|unix.TCP_ULP),
		call("fcntl lease", unix.SYS_FCNTL, eperm, minus, unix.F_SETLEASE, 0),
		call("prlimit core and read", unix.SYS_PRLIMIT64, einval, 0, unix.RLIMIT_CORE, 1, 1),
		call("prlimit core high", unix.SYS_PRLIMIT64, einval, 0, hi|unix.RLIMIT_CORE, 1, 1),
		call("prlimit core of another", unix.SYS_PRLIMIT64, einval, 1, unix.RLIMIT_CORE, 1, 0),
		call("prlimit core done", unix.SYS_PRLIMIT64, 0, 0, hi|unix.RLIMIT_CORE, 1, 0), // without it EFAULT
		call("setrlimit core done", unix.SYS_SETRLIMIT, 0, unix.RLIMIT_CORE, 1),
		call("fchmod setuid", unix.SYS_FCHMOD, eperm, minus, 0o4755),
		call("fchmodat setgid high", unix.SYS_FCHMODAT, eperm, minus, 0, hi|0o2755),
		call("openat setuid", unix.SYS_OPENAT, eperm, cwd, 0, unix.O_CREAT|unix.O_WRONLY, 0o4755),
		call("openat tmpfile setgid", unix.SYS_OPENAT, eperm, cwd, 0, unix.O_TMPFILE|unix.O_RDWR, 0o2700),
		call("mknodat device", unix.SYS_MKNODAT, eperm, cwd, 0, unix.S_IFCHR|0o600, 0x103),

		same("getppid", unix.SYS_GETPPID),
		same("clone fails", unix.SYS_CLONE, unix.CLONE_SIGHAND),
		same("unshare fs", unix.SYS_UNSHARE, unix.CLONE_FS),
		same("openat", unix.SYS_OPENAT, cwd, 0, unix.O_CREAT, 0o644),
		same("openat, mode garbage", unix.SYS_OPENAT, cwd, 0, unix.O_RDONLY, 0o6777),
		same("fchmod", unix.SYS_FCHMOD, minus, 0o755),
		same("ioctl", unix.SYS_IOCTL, minus, unix.TCGETS, 0),
		same("ioctl sign-extended", unix.SYS_IOCTL, minus, minus&^(hi-1)|0x80045430, 0),
		same("ioctl get flags", unix.SYS_IOCTL, minus, unix.FS_IOC_GETFLAGS, 0),
		same("sendto", unix.SYS_SENDTO, minus, 0, 0, unix.MSG_NOSIGNAL),
		same("setsockopt", unix.SYS_SETSOCKOPT, minus, unix.SOL_TCP, unix.TCP_NODELAY),
		same("prlimit core, read", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, 0, 0),
		same("prlimit nofile", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, 1, 0),
		same("membarrier", unix.SYS_MEMBARRIER, 0, 0),
		same("rseq", unix.SYS_RSEQ, 0, 1, 99),
		same("pkey_free", unix.SYS_PKEY_FREE, 99),
		same("io_pgetevents", unix.SYS_IO_PGETEVENTS, 99),
		same("memfd_create", unix.SYS_MEMFD_CREATE, 0),
		same("landlock", unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1),
		same("seccomp", unix.SYS_SECCOMP, 99),
		same("ptrace", unix.SYS_PTRACE, unix.PTRACE_ATTACH, 0),
		same("process_vm_readv", unix.SYS_PROCESS_VM_READV, minus),
		same("pidfd_open", unix.SYS_PIDFD_OPEN, minus),
		same("sched_setscheduler", unix.SYS_SCHED_SETSCHEDULER, 0, 99),
		same("socket unix", unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0),
		same("socket inet6", unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DGRAM, 0),
		same("socket route", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, 0),
		same("mknodat fifo", unix.SYS_MKNODAT, cwd, 0, unix.S_IFIFO|0o600, 0),
		same("personality query", unix.SYS_PERSONALITY, 1<<32-1),
		same("setxattr", unix.SYS_SETXATTR),
		same("statx", unix.SYS_STATX, cwd),
	}
	return append(cases, machineCases()...)
}

// play makes the calls and does not return.
func play(role string) {
	runtime.LockOSThread()
	if role == "i386" {
		tryI386()
		os.Exit(0)
	}
	cases := kernelCases()
	if role != "control" {
		filter := map[string]func() []byte{NameDefault: Default, NameNested: Nested}[role]()
		if err := install(filter); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	for _, c := range cases {
		errno := gosyscall.Errno(0)
		if c.abi != nil {
			errno = c.abi(c.nr, c.args)
		} else {
			_, _, errno = gosyscall.RawSyscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
		}
		fmt.Printf("%s %d\n", strings.ReplaceAll(c.name, " ", "_"), int(errno))
	}
	os.Exit(0)
}

// install puts all threads of the process behind the filter.
func install(filter []byte) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter) / instructionSize), Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(filter)))}
	thread, _, errno := gosyscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 || thread != 0 {
		return fmt.Errorf("load filter: thread %d: %w", thread, errno)
	}
	return nil
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		play(role)
	}
	os.Exit(m.Run())
}

func answers(t *testing.T, role string) map[string]gosyscall.Errno {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	list := make(map[string]gosyscall.Errno)
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		var name string
		var errno int
		_, err := fmt.Sscan(lines.Text(), &name, &errno)
		require.NoError(t, err, lines.Text())
		name = strings.ReplaceAll(name, "_", " ")
		require.NotContains(t, list, name, "two cases of one name")
		list[name] = gosyscall.Errno(errno)
	}
	return list
}

// As root more calls show by their controls that the filter refuses them.
//
//test:root
func TestKernelAnswersAsTheFilterDecides(t *testing.T) {
	control, filtered := answers(t, "control"), answers(t, NameDefault)
	refused := 0
	for _, c := range kernelCases() {
		name := strings.ReplaceAll(c.name, "_", " ")
		if c.same {
			require.Equal(t, control[name], filtered[name], c.name)
			continue
		}
		require.Equal(t, c.want, filtered[name], c.name)
		if c.root && os.Geteuid() != 0 {
			continue // no control: the kernel refuses it too
		}
		if control[name] == unix.ENOSYS && c.want == unix.ENOSYS {
			continue // a call that this kernel is too old for
		}
		require.NotEqual(t, control[name], filtered[name], "control: %s", c.name)
		refused++
	}
	require.Greater(t, refused, 40)
}

// With the nested filter the calls that build sandboxes reach the kernel, and
// what no filter lets through does not.
func TestKernelLetsSandboxesBeBuiltWithTheNestedFilter(t *testing.T) {
	control, filtered := answers(t, "control"), answers(t, NameNested)
	for _, name := range []string{"clone newuser", "clone3", "unshare newuser", "setns", "mount", "umount2", "pivot root", "chroot", "open tree", "fsopen", "mount setattr"} {
		require.Contains(t, control, name)
		require.Equal(t, control[name], filtered[name], name)
	}
	for _, name := range []string{"io uring setup", "userfaultfd", "ioctl TIOCSTI high", "socket packet by type", "fchmod setuid"} {
		require.NotEqual(t, control[name], filtered[name], name)
	}
}

// A filter of the compiler loads, and what Load accepts the kernel accepts.
func TestKernelTakesCompiledFilters(t *testing.T) {
	for _, name := range []string{"docker", "podman"} {
		src, err := os.ReadFile("testdata/" + name + ".json")
		require.NoError(t, err)
		filter, err := CompileOCI(src, runtime.GOARCH)
		require.NoError(t, err)
		require.Zero(t, kernelRefuses(filter))
	}
}

// kernelRefuses loads a filter for one thread, which ends with its goroutine,
// and returns what the kernel says.
func kernelRefuses(filter []byte) gosyscall.Errno {
	done := make(chan gosyscall.Errno)
	go func() {
		runtime.LockOSThread() // and never unlocked
		program := unix.SockFprog{Len: uint16(len(filter) / instructionSize), Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(filter)))}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			done <- err.(gosyscall.Errno)
			return
		}
		_, _, errno := gosyscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
		done <- errno
	}()
	return <-done
}
