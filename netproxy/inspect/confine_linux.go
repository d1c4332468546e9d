package inspect

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbidden are the system calls that the process has no use for once it serves: it reaches
// what it has open, and executes nothing. What a hostile request could make of it would need
// one of them. Descriptors come from the launcher (recvmsg(2)).
var forbidden = []uint32{
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN,
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_PIDFD_GETFD, unix.SYS_IO_URING_SETUP, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_MOUNT, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_MKDIRAT,
	// Paths that Landlock does not govern.
	unix.SYS_RENAMEAT, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT, unix.SYS_TRUNCATE, unix.SYS_MKNODAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
	// Other processes, the launcher among them. Go's scheduler has tgkill(2), which the filter judges by its argument.
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL,
	unix.SYS_PRLIMIT64, unix.SYS_SETPRIORITY, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_IOPRIO_SET,
	unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_SETPGID,
	// What processes of a user share without a name.
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_MSGGET, unix.SYS_MQ_OPEN,
}

// Architectures as seccomp(2) has them.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// confine takes from each thread of this process, for good, what it does not need: by
// Landlock, where the kernel has it, every file and port; by a filter, programs and sockets.
func confine() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl(PR_SET_NO_NEW_PRIVS): %w", err)
	}
	return errors.Join(landlock(), filter())
}

// landlock has a domain without any rule. A kernel without Landlock leaves the filter.
func landlock() error {
	abi, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return nil
	}
	files := uint64(1)<<13 - 1 // of the first ABI
	for i, right := range [...]uint64{unix.LANDLOCK_ACCESS_FS_REFER, unix.LANDLOCK_ACCESS_FS_TRUNCATE, 0, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV} {
		if int(abi) >= i+2 {
			files |= right
		}
	}
	attr, size := [3]uint64{files}, uintptr(8) // handled_access_fs, handled_access_net, scoped
	if abi >= 4 {
		size, attr[1] = 16, unix.LANDLOCK_ACCESS_NET_BIND_TCP|unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 6 {
		size, attr[2] = 24, unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET|unix.LANDLOCK_SCOPE_SIGNAL
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	// Credentials, and domains with them, are a thread's own. A program with a C library cannot
	// change those of all: pccrun is built without one, and its tests have the filter.
	if _, _, errno = syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno == unix.ENOTSUP {
		return nil
	}
	if errno == 0 {
		_, _, errno = syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
	}
	if errno != 0 {
		return fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return nil
}

// filter refuses the calls that are forbidden, in every thread, and all of another architecture.
func filter() error {
	arch, ok := auditArch[runtime.GOARCH]
	if !ok {
		return nil
	}
	const load, equal, more, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	refused := uint32(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	program := []unix.SockFilter{
		{Code: load, K: 4}, {Code: equal, K: arch, Jt: 1}, {Code: answer, K: refused},
		{Code: load, K: 0}, {Code: more, K: 1 << 30, Jf: 1}, {Code: answer, K: refused}, // x32
	}
	for _, nr := range append(forbidden, forbiddenHere...) {
		program = append(program, unix.SockFilter{Code: equal, K: nr, Jf: 1}, unix.SockFilter{Code: answer, K: refused})
	}
	program = append(program, // of a signal to a thread, the process
		unix.SockFilter{Code: equal, K: unix.SYS_TGKILL, Jf: 3}, unix.SockFilter{Code: load, K: 16},
		unix.SockFilter{Code: equal, K: uint32(os.Getpid()), Jt: 1}, unix.SockFilter{Code: answer, K: refused},
		unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("seccomp: thread %d has another filter", thread)
	}
	return nil
}
