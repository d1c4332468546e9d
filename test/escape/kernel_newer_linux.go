package escape

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// newerCalls are system calls that kernels since 5.6 have brought. A filter
// that lists what is bad does not know them, and lets them through; their
// numbers, from 424 on, are the same on every architecture.
var newerCalls = []kernelCall{
	{"KS-075", "pidfd_getfd", High, false, unix.SYS_PIDFD_GETFD, []uintptr{bad, bad, 0}, "Takes an open descriptor out of another process.", refs("pidfd_getfd(2)")},
	{"KS-076", "quotactl_fd", Medium, false, 443, []uintptr{bad, 0x80000200, 0, 0}, "Governs the quotas of the host, by a descriptor in place of a device.", refs("quotactl_fd(2)")},
	{"KS-077", "set_mempolicy_home_node", Low, false, 450, []uintptr{0, 0, 0, 1}, "Chooses the memory of the host; rarely needed.", refs("set_mempolicy(2)")},
	{"KS-078", "cachestat", Low, false, 451, []uintptr{bad, 0, 0, 0}, "Tells which pages of a file are in memory, and so what others read: the side channel that mincore(2) was closed for.", refs("CVE-2019-5489")},
	{"KS-079", "map_shadow_stack", Low, false, 453, []uintptr{0, 0, bad}, "Maps memory that holds return addresses: new surface that only C libraries need.", nil},
	{"KS-080", "futex_wake, the call", Low, false, 454, []uintptr{0, 0, 0, 0xff}, "The futex anew, in three calls: code as young as that which once gave root.", refs("CVE-2014-3153")},
	{"KS-081", "futex_requeue, the call", Low, false, 456, []uintptr{0, 0xff, 0, 0}, "Moves waiters from one futex to another: the operation that once gave root.", refs("CVE-2014-3153")},
	{"KS-082", "lsm_get_self_attr", Low, false, 459, []uintptr{99, 0, 0, bad}, "Tells by which security modules the process is confined.", refs("lsm_get_self_attr(2)")},
	{"KS-083", "lsm_list_modules", Low, false, 461, []uintptr{0, 0, 1}, "Tells which security modules the host has.", refs("lsm_list_modules(2)")},
	{"KS-084", "mseal", Low, false, 462, []uintptr{0, 0, 1}, "Makes mappings that nothing can take back, a debugger's own included.", refs("mseal(2)")},
	{"KS-085", "setxattrat", Medium, false, 463, []uintptr{bad, 0, bad, 0, 0, 0}, "Sets attributes by a number that a filter of setxattr(2) does not name.", refs("setxattrat(2)")},
	{"KS-086", "removexattrat", Low, false, 466, []uintptr{bad, 0, bad, 0}, "Takes attributes away by a number that a filter of removexattr(2) does not name.", refs("removexattrat(2)")},
	{"KS-087", "file_setattr", Medium, false, 469, []uintptr{bad, 0, 0, 0, bad}, "Makes a file immutable, or another project's, by its name: until 6.17 that took an ioctl(2).", refs("file_setattr(2)")},
	{"KS-088", "listns", Medium, false, 470, []uintptr{0, 0, 0, 1}, "Lists namespaces, also those that no process in sight is in.", nil},
	{"KS-089", "fanotify_init, as anybody may call it", Medium, false, unix.SYS_FANOTIFY_INIT, []uintptr{unix.FAN_CLASS_NOTIF | unix.FAN_REPORT_FID, 0}, "Since 5.13 no capability is needed to watch a whole mount by handles of files.", refs("fanotify_init(2)")},
	{"KS-090", "fanotify_mark", Medium, false, unix.SYS_FANOTIFY_MARK, []uintptr{bad, 0, 0, bad, 0}, "Marks on an inherited group: permission events make whoever opens a file wait.", refs("fanotify_mark(2)")},
	{"KS-091", "request_key", Medium, false, unix.SYS_REQUEST_KEY, []uintptr{0, 0, 0, 0}, "Has the host's root run /sbin/request-key.", refs("request_key(2)")},
}

// newerProbes try what newer kernels offer by calls that are older.
func newerProbes() []Probe {
	return []Probe{
		sockets("KS-092", "netlink of other subsystems", Medium, "Audit, IPsec, device events, generic families, cryptography, the table of sockets: each a parser of its own.", []string{"CVE-2022-27666"},
			[][3]int{{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM}, {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT},
				{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC}, {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_CRYPTO}, {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG}, {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_CONNECTOR}}),
		sockets("KS-093", "families and protocols that load modules", Medium, "SMC, QIPCRTR, MCTP, PPP, LLC, NFC, RxRPC, L2TP: a socket is all it takes to load their code.", []string{"CVE-2023-2006"},
			[][3]int{{unix.AF_SMC, unix.SOCK_STREAM, 0}, {unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0}, {unix.AF_MCTP, unix.SOCK_DGRAM, 0}, {unix.AF_PPPOX, unix.SOCK_STREAM, 0}, {unix.AF_LLC, unix.SOCK_STREAM, 0},
				{unix.AF_NFC, unix.SOCK_SEQPACKET, 0}, {unix.AF_RXRPC, unix.SOCK_DGRAM, unix.AF_INET}, {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_L2TP}, {unix.AF_INET, unix.SOCK_STREAM, 256}}),
		{ID: "NS-032", Name: "namespaces of another process by its pidfd", Guarantee: profiles.ProcIsolated, Severity: High,
			Expect: "ESRCH, EPERM or EACCES", Errnos: errnos("ESRCH EPERM EACCES ENOSYS ENOTTY"), References: refs("PIDFD_GET_NET_NAMESPACE"), Key: "",
			Explain: "Since 6.11 a pidfd gives the namespaces of its process by ioctl(2), where /proc is masked or not there.",
			Payload: namespacesByPidfd},
		{ID: "NS-033", Name: "descriptors of another process by its pidfd", Guarantee: profiles.ProcIsolated, Severity: High,
			Expect: "ESRCH, EPERM or ENOSYS", Errnos: errnos("ESRCH EPERM ENOSYS"), References: refs("pidfd_getfd(2)"), Key: "syscalls",
			Explain: "What the launcher, or the sandbox's first process, holds open is taken from it: listeners, directories of the host.",
			Payload: func(in *Inside) Outcome {
				return in.eachPidfd(func(pid string, pidfd int) Outcome {
					return each([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, func(n int) Outcome {
						return Attempt(closed(unix.PidfdGetfd(pidfd, n, 0)), "pidfd_getfd of process %s, descriptor %d", pid, n)
					})
				})
			}},
		{ID: "FS-063", Name: "flags of a file outside", Guarantee: profiles.FSReadonly, Severity: Medium,
			Expect: "EROFS, EACCES, EPERM or ENOENT", Errnos: errnos("EROFS EACCES EPERM ENOENT ENOTTY"), References: refs("ioctl_iflags(2)"), Key: "filesystem",
			Explain: "FS_IOC_SETFLAGS needs no descriptor for writing: an owner sets no-dump, no-atime and, with a capability, immutable.",
			Payload: func(in *Inside) Outcome { return each([]string{in.Shown + "/f", in.Canary + "/f"}, setFlag) }},
	}
}

// eachPidfd tries something on a descriptor of each process in sight, and of
// the one that waits outside, but for the payload's own.
func (in *Inside) eachPidfd(try func(pid string, pidfd int) Outcome) Outcome {
	var all []Outcome
	for _, pid := range append(processes(), itoa(in.HostPID)) {
		n, err := strconv.Atoi(pid)
		if err != nil || n == os.Getpid() {
			continue
		}
		fd, err := unix.PidfdOpen(n, 0)
		if err != nil {
			all = append(all, Blocked("pidfd_open of process %s: %v", pid, err))
			continue
		}
		all = append(all, try(pid, fd))
		unix.Close(fd)
	}
	return Any(all...)
}

// namespacesByPidfd asks for the namespaces of processes by the requests of
// linux/pidfd.h, and compares them with the host's.
func namespacesByPidfd(in *Inside) Outcome {
	const get = 0xff00 // _IO(PIDFS_IOCTL_MAGIC, n)
	if self, err := unix.PidfdOpen(os.Getpid(), 0); in.Control && err == nil {
		fd, err := Call(unix.SYS_IOCTL, at(self), get|4, 0)
		unix.Close(self)
		if err == unix.ENOTTY || err == unix.EINVAL {
			return Needing("Linux 6.11 (PIDFD_GET_NET_NAMESPACE)")
		}
		if err == nil {
			unix.Close(int(fd))
		}
	}
	return in.eachPidfd(func(pid string, pidfd int) Outcome {
		return each([]string{"mnt", "net", "pid", "user"}, func(ns string) Outcome {
			fd, err := Call(unix.SYS_IOCTL, at(pidfd), get|map[string]uintptr{"mnt": 3, "net": 4, "pid": 5, "user": 9}[ns], 0)
			if err != nil {
				return Blocked("the %s namespace of process %s: %v", ns, pid, err)
			}
			defer unix.Close(int(fd))
			name, _ := os.Readlink("/proc/self/fd/" + itoa(int(fd)))
			if name == in.Namespaces[ns] {
				return Escaped("process %s gave the host's %s", pid, name)
			}
			return Blocked("process %s gave %s, not the host's", pid, name)
		})
	})
}

// setFlag sets the no-dump flag of a file: ioctl_iflags(2).
func setFlag(path string) Outcome {
	const noDump = 0x40
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Blocked("open %s: %v", path, err)
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return Blocked("flags of %s: %v", path, err)
	}
	return Attempt(unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags|noDump)), "set the flags of %s", path)
}
