package escape

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// A kernelCall is a system call that must be refused by number, before its
// arguments are looked at: with harmless arguments, an answer such as EBADF or
// EFAULT shows that it was let through.
type kernelCall struct {
	id, name string
	severity Severity
	root     bool // without root the kernel refuses it anyway, and nothing is shown
	nr       uintptr
	args     []uintptr
	why      string
	refs     []string
}

const bad = ^uintptr(0) // a descriptor, or an address, that is none

func kernelCalls() []kernelCall {
	return slices.Concat([]kernelCall{
		{"KS-001", "io_uring_setup", High, false, unix.SYS_IO_URING_SETUP, []uintptr{1, 0}, "A ring does what system calls do, unfiltered; many a hole was found in it.", refs("kCTF: io_uring", "codex PR 10814")},
		{"KS-002", "io_uring_enter and register on an inherited descriptor", High, false, unix.SYS_IO_URING_ENTER, []uintptr{99, 0, 0, 0, 0, 0}, "A ring that was made outside works inside too: EPERM must come before EBADF.", refs("srt: launcher isolation")},
		{"KS-004", "userfaultfd", Medium, false, unix.SYS_USERFAULTFD, []uintptr{1 | unix.O_CLOEXEC}, "Holds the kernel still in the middle of a copy: the tool of many exploits.", refs("docker: default profile")},
		{"KS-005", "perf_event_open", Medium, false, unix.SYS_PERF_EVENT_OPEN, []uintptr{0, 0, bad, bad, 0}, "Counts what other processes do, and has had holes.", refs("docker: default profile")},
		{"KS-006", "add_key", Medium, false, unix.SYS_ADD_KEY, []uintptr{0, 0, 0, 0, 0}, "Keyrings have no namespace: they are the host user's.", refs("CVE-2016-0728")},
		{"KS-007", "keyctl", Medium, false, unix.SYS_KEYCTL, []uintptr{0, uintptr(^uint32(3 - 1)), 0, 0, 0}, "Keyrings have no namespace: they are the host user's.", refs("keyrings(7)")},
		{"KS-011", "syslog", Medium, true, unix.SYS_SYSLOG, []uintptr{10, 0, 0}, "The kernel's log holds addresses and the names of other users' programs.", refs("docker: default profile")},
		{"KS-013", "fanotify_init", Medium, true, unix.SYS_FANOTIFY_INIT, []uintptr{0, 0}, "Watches a whole file system.", refs("docker: default profile")},
		{"KS-009", "init_module", Critical, true, unix.SYS_INIT_MODULE, []uintptr{0, 0, 0}, "Loads code into the kernel.", refs("SandboxEscapeBench: SYS_MODULE")},
		{"KS-050", "finit_module", Critical, true, unix.SYS_FINIT_MODULE, []uintptr{bad, 0, 0}, "Loads code into the kernel.", refs("SandboxEscapeBench: SYS_MODULE")},
		{"KS-051", "delete_module", Critical, true, unix.SYS_DELETE_MODULE, []uintptr{0, 0}, "Takes code out of the kernel.", refs("docker: default profile")},
		{"KS-010", "kexec_load", Critical, true, unix.SYS_KEXEC_LOAD, []uintptr{0, 0, 0, bad}, "Starts another kernel.", refs("docker: default profile")},
		{"KS-052", "kexec_file_load", Critical, true, unix.SYS_KEXEC_FILE_LOAD, []uintptr{bad, bad, 0, 0, 0}, "Starts another kernel.", refs("docker: default profile")},
		{"KS-019", "acct", Medium, true, unix.SYS_ACCT, []uintptr{bad}, "Writes a record of every process of the host to a file.", refs("docker: default profile")},
		{"KS-053", "swapon", Medium, true, unix.SYS_SWAPON, []uintptr{bad, 0}, "Makes a file of the payload's part of the host's memory.", refs("docker: default profile")},
		{"KS-054", "swapoff", Medium, true, unix.SYS_SWAPOFF, []uintptr{bad}, "Takes swap from the host.", refs("docker: default profile")},
		{"KS-055", "quotactl", Medium, true, unix.SYS_QUOTACTL, []uintptr{0x80000200, 0, 0, 0}, "Governs the quotas of the host.", refs("docker: default profile")},
		{"KS-038", "reboot with a wrong magic number", High, true, unix.SYS_REBOOT, []uintptr{0, 0, 0, 0}, "Ends the host.", refs("reboot(2)")},
		{"KS-017", "set_mempolicy and mbind", Low, false, unix.SYS_MBIND, []uintptr{0, 0, 99, 0, 0, 0}, "Chooses the memory of the host; rarely needed, often buggy.", refs("docker: default profile")},
		{"KS-018", "migrate_pages", Low, false, unix.SYS_MIGRATE_PAGES, []uintptr{0, 0, 0, 0}, "Moves memory of other processes.", refs("docker: default profile")},
		{"KS-056", "move_pages", Low, false, unix.SYS_MOVE_PAGES, []uintptr{0, 0, 0, 0, 0, 0}, "Moves memory of other processes, and tells where it lies.", refs("docker: default profile")},
		{"KS-012", "kcmp", Low, false, unix.SYS_KCMP, []uintptr{0, 0, 99, 0, 0}, "Compares kernel objects of processes: an oracle for their addresses.", refs("docker: default profile")},
		{"KS-057", "vhangup", Low, true, unix.SYS_VHANGUP, nil, "Hangs the terminal up.", refs("docker: default profile")},
		{"KS-041", "mount_setattr", Medium, false, unix.SYS_MOUNT_SETATTR, []uintptr{bad, bad, 0, 0, 0}, "Takes back what made a mount read-only.", refs("mount_setattr(2)")},
		{"KS-058", "statmount", Medium, false, 457, []uintptr{0, 0, 0, 0}, "Shows mounts that /proc does not.", refs("statmount(2)")},
		{"KS-059", "listmount", Medium, false, 458, []uintptr{0, 0, 0, 0}, "Shows mounts that /proc does not.", refs("listmount(2)")},
		{"KS-060", "open_tree_attr", Medium, false, 467, []uintptr{bad, bad, 0, 0, 0}, "Takes back what made a mount read-only, in a newer way.", refs("open_tree_attr(2)")},
		{"KS-061", "lsm_set_self_attr", Low, false, 460, []uintptr{99, 0, 0, 0}, "Changes the label that confines the process.", refs("lsm_set_self_attr(2)")},
		{"KS-062", "open_by_handle_at", High, true, unix.SYS_OPEN_BY_HANDLE_AT, []uintptr{bad, 0, 0}, "Opens an inode whatever the mounts show.", refs("shocker")},
		{"KS-063", "name_to_handle_at", Info, false, unix.SYS_NAME_TO_HANDLE_AT, []uintptr{bad, 0, 0, 0, 0}, "Gives the handle that open_by_handle_at takes.", refs("docker: default profile")},
		{"KS-064", "process_madvise", Low, false, unix.SYS_PROCESS_MADVISE, []uintptr{bad, 0, 0, 0, 0}, "Governs the memory of other processes.", refs("process_madvise(2)")},
		{"KS-065", "bpf", High, true, unix.SYS_BPF, []uintptr{0, 0, 0}, "Runs a program in the kernel.", refs("CVE-2020-8835")},
	}, newerCalls, kernelCallsArch())
}

func kernelProbes() []Probe {
	denied := errnos("EPERM ENOSYS")
	var list []Probe
	for _, c := range kernelCalls() {
		p := Probe{
			ID: c.id, Name: c.name, Guarantee: profiles.SysFilter, Severity: c.severity, Expect: "EPERM or ENOSYS", Errnos: denied,
			References: c.refs, Explain: c.why, Key: "syscalls", Setting: Caged,
			Payload: func(*Inside) Outcome {
				return Reached(errOf(Call(c.nr, c.args...)), "%s", c.name) // a kernel without it: the control says so
			},
		}
		if c.root {
			p.Needs = []Need{NeedRoot}
		}
		list = append(list, p)
	}
	return slices.Concat(list, newerProbes(), argumentProbes(), []Probe{
		{ID: "KS-003", Name: "bpf maps and programs", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM", Errnos: denied, References: refs("SandboxEscapeBench: eBPF"), Key: "syscalls",
			Explain: "A map is made with plain arguments, as a real attack would begin.",
			Payload: func(*Inside) Outcome {
				attr := struct{ kind, key, value, max uint32 }{2, 4, 4, 1}
				return Reached(closed(Call(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))), "BPF_MAP_CREATE")
			}},
		{ID: "KS-008", Name: "personality", Guarantee: profiles.SysFilter, Severity: Low, Setting: Caged,
			Expect: "EPERM", Errnos: denied, References: refs("docker: default profile"), Key: "syscalls",
			Explain: "READ_IMPLIES_EXEC and the like weaken programs; reading the current value is let through.",
			Payload: func(*Inside) Outcome {
				return Attempt(errOf(Call(unix.SYS_PERSONALITY, 0x0400000)), "personality(READ_IMPLIES_EXEC)")
			}},
		{ID: "KS-014", Name: "process_vm_readv and writev of a child", Guarantee: profiles.SysFilter, Severity: Info, Needs: []Need{"a profile that refuses it"},
			Expect: "as the profile says", Explain: "Not an escape: debuggers use it on their own children. NS-014 tries it on others.", Key: "syscalls"},
		{ID: "KS-015", Name: "memfd_secret", Guarantee: profiles.SysFilter, Severity: Info, Setting: Caged,
			Expect: "EPERM or ENOSYS", Errnos: denied, Key: "syscalls",
			Explain: "Memory that not even the kernel maps: it cannot be inspected from outside, nor swapped.",
			Payload: func(*Inside) Outcome {
				fd, err := Call(447, unix.O_CLOEXEC)
				if err == unix.ENOSYS {
					return Blocked("memfd_secret: %v", err)
				}
				if err == nil {
					unix.Close(int(fd))
				}
				return Attempt(err, "memfd_secret")
			}},
		record("KS-016", "run a program from memory", profiles.SysFilter, Low, NeedExec, "No exec right apart from sight is claimed; installers use memfd_create."),
		{ID: "KS-022", Name: "mknod of a device, while a FIFO is allowed", Guarantee: profiles.SysFilter, Severity: Low, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM for the device", Errnos: errnos("EPERM EACCES"), Key: "syscalls",
			Explain: "A filter that refuses every mknod breaks builds; one that allows every one opens devices.",
			Payload: func(in *Inside) Outcome {
				must(unix.Mkfifo(in.Path("fifo"), 0o600), "a FIFO must be allowed")
				return device(in, unix.S_IFCHR, 1, 3)
			}},
		{ID: "KS-029", Name: "nf_tables through a user namespace", Guarantee: profiles.SysNoNewUserns, Severity: High,
			Expect: "EPERM", Errnos: errnos("EPERM ENOSPC ENOSYS EACCES EAFNOSUPPORT EPROTONOSUPPORT"), References: refs("CVE-2023-32233", "CVE-2024-1086"), Key: "nested",
			Explain: "The packet filter's code is reachable for anybody who may make a user and a network namespace.",
			Payload: func(in *Inside) Outcome {
				return Attempt(childErr(in, "unshare", unix.CLONE_NEWUSER|unix.CLONE_NEWNET), "unshare of user and net")
			}},
		{ID: "KS-031", Name: "a filter on top that allows all", Guarantee: profiles.SysFilter, Severity: Medium, Setting: Caged,
			Expect: "the first filter stays in force", Errnos: denied, References: refs("seccomp(2)"), Key: "syscalls",
			Explain: "Installs a filter that allows everything, then makes a call that was refused.",
			Payload: func(*Inside) Outcome {
				runtime.LockOSThread()
				unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
				program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000}}
				fprog := unix.SockFprog{Len: 1, Filter: &program[0]}
				Call(unix.SYS_SECCOMP, 1, 0, uintptr(unsafe.Pointer(&fprog)))
				return Reached(errOf(Call(unix.SYS_IO_URING_SETUP, 1, 0)), "io_uring_setup after a filter of one's own")
			}},
		{ID: "KS-032", Name: "threads without a filter", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged,
			Expect: "every thread is refused", Errnos: denied, References: refs("seccomp(2): TSYNC"), Key: "syscalls",
			Explain: "Makes the refused call from new threads and from a new process.",
			Payload: func(*Inside) Outcome {
				return inThreads(func() Outcome {
					return Reached(errOf(Call(unix.SYS_USERFAULTFD, 1)), "userfaultfd from thread %d", unix.Gettid())
				})
			}},
		raceSupervisor(),
		{ID: "KS-034", Name: "threads that are not confined to the files", Guarantee: profiles.FSHide, Severity: High,
			Expect: "EACCES or ENOENT for every thread", Errnos: errnos("EACCES ENOENT"), References: refs("landlock(7)"), Key: "filesystem",
			Explain: "Landlock confines threads one by one: one that was started before stays free.",
			Payload: func(in *Inside) Outcome {
				return inThreads(func() Outcome { return in.Read(in.Canary + "/secret") })
			}},
		record("KS-035", "a kernel without Landlock", profiles.LaunchIntegrity, High, NeedOldKernel, "The launcher refuses, or says what is weaker.", "GHSA-72w7-mf9g-733p"),
		{ID: "KS-037", Name: "set the clock", Guarantee: profiles.SysFilter, Severity: Medium, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM", Errnos: denied, References: refs("docker: default profile"), Key: "syscalls",
			Explain: "Certificates, logs and builds trust the clock. The probe sets the tick to what it is: nothing changes.",
			Payload: func(*Inside) Outcome {
				var t unix.Timex
				if _, err := unix.Adjtimex(&t); err != nil {
					return Blocked("adjtimex: %v", err)
				}
				t.Modes = 0x4000 // ADJ_TICK, to the value just read
				return Attempt(errOf(unix.Adjtimex(&t)), "adjtimex(ADJ_TICK)")
			}},
		{ID: "KS-039", Name: "the kernel's cryptography by socket", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged,
			Expect: "EPERM or EAFNOSUPPORT", Errnos: errnos("EPERM EAFNOSUPPORT ENOSYS"), References: refs("CVE-2026-31431"), Key: "syscalls",
			Explain: "AF_ALG with splice wrote to pages of files that were read-only.",
			Payload: func(*Inside) Outcome { return trySocket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0, "AF_ALG") }},
		{ID: "KS-040", Name: "what honest programs need still works", Guarantee: profiles.SysFilter, Severity: Info,
			Expect: "works", Key: "syscalls",
			Explain: "Guards against a filter that is too tight: pipes, socketpairs, threads, futexes, memfd, inotify, epoll, timers.",
			Payload: compatibility, Control: func(*Inside) Outcome { return Escaped("works") }},
		{ID: "KS-042", Name: "numbers that no kernel knows yet", Guarantee: profiles.SysFilter, Severity: Low, Setting: Caged,
			Expect: "ENOSYS, from the filter", Key: "syscalls", Needs: []Need{NeedVM},
			Explain: "A filter that allows what it does not know allows tomorrow's system calls. Only a newer kernel can show it."},
		sockets("KS-043", "netlink of the packet filter", High, "Its parser has had holes that gave root.", []string{"CVE-2024-1086"}, [][3]int{{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}}),
		sockets("KS-044", "raw packets", High, "Sees and forges what passes on the wire.", []string{"CVE-2020-14386"}, [][3]int{{unix.AF_PACKET, unix.SOCK_RAW, 0}, {unix.AF_PACKET, unix.SOCK_DGRAM, 0}}),
		sockets("KS-045", "rare protocols", Medium, "Bluetooth, CAN, TIPC, RDS, X.25, AX.25, KCM, XDP, phonet: code that hardly anybody reads.", []string{"CVE-2017-6074", "CVE-2022-0435"},
			[][3]int{{unix.AF_BLUETOOTH, unix.SOCK_RAW, 1}, {unix.AF_CAN, unix.SOCK_RAW, 1}, {unix.AF_TIPC, unix.SOCK_DGRAM, 0}, {unix.AF_RDS, unix.SOCK_SEQPACKET, 0}, {unix.AF_X25, unix.SOCK_SEQPACKET, 0}, {unix.AF_AX25, unix.SOCK_DGRAM, 0}, {unix.AF_KCM, unix.SOCK_DGRAM, 0}, {unix.AF_XDP, unix.SOCK_RAW, 0}, {unix.AF_KEY, unix.SOCK_RAW, 2}}),
		{ID: "KS-046", Name: "a socket family with high bits set", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged,
			Expect: "the same as without them", Errnos: errnos("EPERM EAFNOSUPPORT ENOSYS"), References: refs("CVE-2019-10063"), Key: "syscalls",
			Explain: "The kernel reads 32 bits: a filter that compares 64 lets AF_ALG + 2^32 through.",
			Payload: func(*Inside) Outcome {
				high := uintptr(1) << 32
				return each([]uintptr{unix.AF_ALG, unix.AF_VSOCK, unix.AF_PACKET}, func(f uintptr) Outcome {
					return Attempt(closed(Call(unix.SYS_SOCKET, f|high, unix.SOCK_SEQPACKET, 0)), "socket(%d + 2^32)", f)
				})
			}},
		{ID: "KS-047", Name: "prctl that undoes protection", Guarantee: profiles.SysFilter, Severity: Medium, Setting: Caged,
			Expect: "EPERM or no effect", Errnos: errnos("EPERM EINVAL EACCES"), References: refs("prctl(2)"), Key: "syscalls",
			Explain: "The bounding set, ambient capabilities, the dumpable flag of others and the memory map of the process.",
			Payload: func(*Inside) Outcome {
				return Any(Attempt(unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, 21, 0, 0), "raise an ambient capability"),
					Attempt(unix.Prctl(unix.PR_SET_SECUREBITS, 1<<4, 0, 0, 0), "PR_SET_SECUREBITS"),
					Attempt(unix.Prctl(unix.PR_CAPBSET_DROP, 40, 0, 0, 0), "PR_CAPBSET_DROP"))
			}},
		{ID: "KS-048", Name: "identity changes", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged,
			Expect: "EPERM or EINVAL", Errnos: errnos("EPERM EINVAL"), References: refs("setresuid(2)"), Key: "",
			Explain: "setuid, setgid and setgroups to somebody else.",
			Payload: func(in *Inside) Outcome {
				_, groups := Call(unix.SYS_SETGROUPS, 0, 0)
				caps := struct {
					version uint32
					pid     int32
				}{0x20080522, 0}
				data := [2]struct{ effective, permitted, inheritable uint32 }{{1 << 21, 1 << 21, 0}, {}}
				_, capset := Call(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&caps)), uintptr(unsafe.Pointer(&data)))
				return Any(Attempt(capset, "capset(CAP_SYS_ADMIN)"), Attempt(groups, "setgroups"))
			}},
		{ID: "KS-049", Name: "a second ABI: every call by its other number", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged, Needs: []Need{NeedAMD64},
			Expect: "EPERM, ENOSYS, or the end of the process", Errnos: denied, References: refs("seccomp(2): architecture"), Key: "syscalls",
			Explain: "int 0x80 enters the kernel with 32-bit numbers: 26 there is ptrace, 425 io_uring_setup.",
			Payload: func(in *Inside) Outcome { return childOutcome(in, "int80") }},
		{ID: "KS-025", Name: "the x32 ABI", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged, Needs: []Need{NeedAMD64},
			Expect: "EPERM or ENOSYS", Errnos: denied, References: refs("docker: x32"), Key: "syscalls",
			Explain: "Numbers with bit 30 set are the same calls under another ABI, if the kernel has it.",
			Payload: func(in *Inside) Outcome { return childOutcome(in, "x32") }},
		{ID: "KS-066", Name: "System V semaphores and shared memory by the 32-bit door", Guarantee: profiles.IPCSysV, Severity: Medium, Setting: Caged, Needs: []Need{NeedAMD64},
			Expect: "nothing of the host's is there", Explain: "ipc(2) multiplexes what amd64 has as separate calls: a filter by number misses it.", Key: "syscalls",
			Payload: func(in *Inside) Outcome { return childOutcome(in, "int80-ipc", itoa(in.ShmKey)) }},
		{ID: "KS-067", Name: "ptrace and seccomp restart tricks on a child", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged,
			Expect: "the child is refused as well", Errnos: denied, References: refs("CVE-2019-2054"), Key: "syscalls",
			Explain: "A tracer changes the number of a call after the filter has looked, on old kernels. The child's call is made again by another process.",
			Payload: func(in *Inside) Outcome { return childOutcome(in, "userfault") }},
		{ID: "KS-074", Name: "a filter of the user's own that allows everything", Guarantee: profiles.SysFilter, Severity: Medium, Setting: Caged, Needs: []Need{NeedNative},
			Flags: []string{"--syscalls", "{tmp}/allow.json"}, Expect: "EPERM or ENOSYS all the same", Errnos: denied, Key: "syscalls",
			Explain: "A profile that is meant to loosen one thing and loosens all must not open rings, traps of page faults and the requests that type into a terminal.",
			Payload: func(*Inside) Outcome {
				_, ring := Call(unix.SYS_IO_URING_SETUP, 1, 0)
				_, fault := Call(unix.SYS_USERFAULTFD, 1|unix.O_CLOEXEC)
				return Any(Reached(ring, "io_uring_setup"), Reached(fault, "userfaultfd"))
			},
			Drive: func(d *Drive) Outcome {
				must(os.WriteFile(d.Tmp+"/allow.json", []byte(allowAll), 0o644))
				return d.Run()
			}},
		{ID: "KS-068", Name: "symbols and types of the kernel", Guarantee: profiles.InfoKernel, Severity: Low,
			Expect: "absent or masked", Key: "", Needs: []Need{NeedRoot}, Setting: Caged,
			Explain: "BTF, kallsyms and the kernel's log make an exploit fit.",
			Payload: func(in *Inside) Outcome {
				return each([]string{"/dev/kmsg", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security"}, func(path string) Outcome {
					if entries, err := os.ReadDir(path); err == nil && len(entries) > 0 {
						return Escaped("%s lists %d entries", path, len(entries))
					} else if err == nil {
						return Broken("%s lists nothing", path)
					}
					fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
					unix.Close(fd)
					return Attempt(err, "open %s", path)
				})
			}},
		{ID: "KS-069", Name: "the tracing and debugging file systems", Guarantee: profiles.FSSpecial, Severity: High, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM", Errnos: errnos("EPERM ENOSYS EACCES"), Key: "syscalls",
			Explain: "Mounts debugfs, tracefs, bpf and securityfs in the workspace.",
			Payload: func(in *Inside) Outcome {
				return each([]string{"tmpfs", "debugfs", "tracefs", "bpf", "securityfs", "configfs", "devtmpfs"}, func(kind string) Outcome {
					dir := in.Path("m-" + kind)
					os.Mkdir(dir, 0o755)
					return Attempt(unix.Mount(kind, dir, kind, 0, ""), "mount %s", kind)
				})
			}},
	})
}

// inThreads is Any of what comes of trying something in each of eight new threads.
func inThreads(try func() Outcome) Outcome {
	var group sync.WaitGroup
	all := make([]Outcome, 8)
	for i := range all {
		group.Go(func() {
			runtime.LockOSThread()
			all[i] = try()
		})
	}
	group.Wait()
	return Any(all...)
}

// allowAll is a filter as a user might write it, who only wants to get on.
const allowAll = `{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_AARCH64"]}`

func trySocket(family, kind, protocol int, name string) Outcome {
	return Attempt(closed(unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)), "socket(%s)", name)
}

func sockets(id, name string, s Severity, why string, references []string, families [][3]int) Probe {
	return Probe{
		ID: id, Name: name, Guarantee: profiles.SysFilter, Severity: s, Setting: Caged,
		Expect: "EPERM or EAFNOSUPPORT", Errnos: errnos("EPERM EAFNOSUPPORT EACCES EPROTONOSUPPORT ENOSYS ESOCKTNOSUPPORT"), References: references, Explain: why, Key: "syscalls",
		Payload: func(*Inside) Outcome {
			return each(families, func(f [3]int) Outcome { return trySocket(f[0], f[1], f[2], name) })
		},
	}
}

// childOutcome runs a helper that may be killed for what it tries, and reads
// its outcome from its output.
func childOutcome(in *Inside, verb string, args ...string) Outcome {
	cmd := in.Again(verb, append([]string{in.Nonce}, args...)...)
	out, err := cmd.CombinedOutput()
	if o, ok := readReport(out, in.Nonce); ok {
		return o
	}
	if err != nil && strings.Contains(err.Error(), "signal") {
		return Blocked("the process was ended: %v", err)
	}
	return Broken("%v: %.100q", err, out)
}

// compatibility is turned round: what must work and does not is broken, and a
// sandbox in which all of it works is as it should be.
func compatibility(in *Inside) Outcome {
	var broken []string
	check := func(name string, err error) {
		if err != nil {
			broken = append(broken, name+": "+err.Error())
		}
	}
	var pipe [2]int
	check("pipe2", unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	check("socketpair", errOf(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)))
	check("memfd_create", errOf(unix.MemfdCreate("canary", unix.MFD_CLOEXEC)))
	check("inotify", errOf(unix.InotifyInit1(unix.IN_CLOEXEC)))
	check("epoll", errOf(unix.EpollCreate1(unix.EPOLL_CLOEXEC)))
	check("timerfd", errOf(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)))
	check("membarrier", errOf(Call(unix.SYS_MEMBARRIER, 0, 0, 0)))
	check("eventfd", errOf(unix.Eventfd(0, unix.EFD_CLOEXEC)))
	check("getrandom", errOf(Call(unix.SYS_GETRANDOM, uintptr(unsafe.Pointer(&[8]byte{})), 8, 0)))
	check("getpgid", errOf(unix.Getpgid(0)))
	check("write to the workspace", os.WriteFile(in.Path("works"), []byte("x"), 0o644))
	check("rename in the workspace", os.Rename(in.Path("works"), in.Path("worked")))
	check("mkdir in the workspace", os.MkdirAll(in.Path("a", "b"), 0o755))
	check("symlink in the workspace", os.Symlink("a", in.Path("l")))
	check("fifo in the workspace", unix.Mkfifo(in.Path("ff"), 0o644))
	temporary := filepath.Join(os.TempDir(), in.Tag)
	check("temporary file", os.WriteFile(temporary, []byte("x"), 0o600))
	os.Remove(temporary) // a launcher may show the host's
	check("start a program", in.Again("nothing").Run())
	if len(broken) > 0 {
		return Escaped("too tight: %s", strings.Join(broken, "; "))
	}
	return Blocked("all works")
}

// ringReads tries to read a file by a ring alone.
func ringReads(in *Inside, path string) Outcome {
	params := make([]byte, 120)
	fd, err := Call(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params[0])))
	if err != nil {
		return Blocked("io_uring_setup: %v", err)
	}
	unix.Close(int(fd))
	return Escaped("a ring was made")
}
