package rules

// harmless are the calls that ordinary programs make and that act on what the
// caller already holds. i386 and older names of a call stand beside it.
var harmless = []string{
	// files by name
	"access", "chdir", "chown", "chown32", "faccessat", "faccessat2", "fchdir", "fchown", "fchown32",
	"fchownat", "fstatat64", "futimesat", "getcwd", "lchown", "lchown32", "link", "linkat", "lstat", "lstat64",
	"mkdir", "mkdirat", "name_to_handle_at", "newfstatat", "oldlstat", "oldstat", "readlink", "readlinkat",
	"rename", "renameat", "renameat2", "rmdir", "stat", "stat64", "statfs", "statfs64", "statx", "symlink", "symlinkat",
	"truncate", "truncate64", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimensat_time64", "utimes",
	"fgetxattr", "flistxattr", "fremovexattr", "fsetxattr", "getxattr", "lgetxattr", "listxattr", "llistxattr",
	"lremovexattr", "lsetxattr", "removexattr", "setxattr",

	// descriptors
	"_llseek", "_newselect", "close", "close_range", "copy_file_range", "dup", "dup2", "dup3", "epoll_create",
	"epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait", "epoll_pwait2", "epoll_wait", "epoll_wait_old",
	"eventfd", "eventfd2", "fadvise64", "fadvise64_64", "fallocate", "fdatasync", "flock", "fstat", "fstat64",
	"fstatfs", "fstatfs64", "fsync", "ftruncate", "ftruncate64", "getdents", "getdents64", "inotify_add_watch",
	"inotify_init", "inotify_init1", "inotify_rm_watch", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents",
	"io_pgetevents_time64", "io_setup", "io_submit", "lseek", "oldfstat", "pipe", "pipe2", "poll", "ppoll",
	"ppoll_time64", "pread64", "preadv", "preadv2", "pselect6", "pselect6_time64", "pwrite64", "pwritev", "pwritev2",
	"read", "readahead", "readdir", "readv", "select", "sendfile", "sendfile64", "signalfd", "signalfd4", "splice",
	"sync", "sync_file_range", "syncfs", "tee", "timerfd_create", "timerfd_gettime", "timerfd_gettime64",
	"timerfd_settime", "timerfd_settime64", "vmsplice", "write", "writev",

	// memory
	"brk", "get_thread_area", "madvise", "membarrier", "memfd_create", "mincore", "mlock", "mlock2",
	"mlockall", "mmap", "mmap2", "mprotect", "mremap", "msync", "munlock", "munlockall", "munmap", "pkey_alloc",
	"pkey_free", "pkey_mprotect", "remap_file_pages", "set_thread_area",

	// processes and threads. ptrace and reading the memory of another process
	// are kept to the sandbox by its pid namespace and by pid 1 not being dumpable.
	"arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "get_robust_list",
	"getegid", "getegid32", "geteuid", "geteuid32", "getgid", "getgid32", "getgroups", "getgroups32", "getpgid",
	"getpgrp", "getpid", "getppid", "getresgid", "getresgid32", "getresuid", "getresuid32", "getsid", "gettid",
	"getuid", "getuid32", "pidfd_open", "pidfd_send_signal", "prctl", "process_mrelease", "process_vm_readv",
	"process_vm_writev", "ptrace", "rseq", "set_robust_list", "set_tid_address", "setfsgid", "setfsgid32",
	"setfsuid", "setfsuid32", "setgid", "setgid32", "setgroups", "setgroups32", "setpgid", "setregid", "setregid32",
	"setresgid", "setresgid32", "setresuid", "setresuid32", "setreuid", "setreuid32", "setsid", "setuid",
	"setuid32", "vfork", "wait4", "waitid", "waitpid",

	// more of the same kind of filter: it can only take away
	"landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "seccomp",

	// scheduling, limits, usage; the kernel keeps real-time and negative nice values for who has them
	"getcpu", "getpriority", "getrlimit", "getrusage", "ioprio_get", "ioprio_set", "nice", "sched_get_priority_max",
	"sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
	"sched_rr_get_interval", "sched_rr_get_interval_time64", "sched_setaffinity", "sched_setattr", "sched_setparam",
	"sched_setscheduler", "sched_yield", "setpriority", "sysinfo", "times", "ugetrlimit", "oldolduname", "olduname", "uname",

	// signals, time, futexes
	"alarm", "clock_getres", "clock_getres_time64", "clock_gettime", "clock_gettime64", "clock_nanosleep",
	"clock_nanosleep_time64", "futex", "futex_time64", "futex_waitv", "getitimer", "getrandom", "gettimeofday", "kill",
	"nanosleep", "pause", "restart_syscall", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo",
	"rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_sigtimedwait_time64", "rt_tgsigqueueinfo", "setitimer",
	"sgetmask", "sigaction", "sigaltstack", "signal", "sigpending", "sigprocmask", "sigreturn", "sigsuspend", "ssetmask",
	"tgkill", "time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_gettime64",
	"timer_settime", "timer_settime64", "tkill",

	// sockets that exist, and System V and POSIX objects of the sandbox's own namespace
	"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "ipc", "listen",
	"mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedreceive_time64", "mq_timedsend",
	"mq_timedsend_time64", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "recv", "recvfrom", "recvmmsg",
	"recvmmsg_time64", "recvmsg", "semctl", "semget", "semop", "semtimedop", "semtimedop_time64", "shmat", "shmctl", "shmdt", "shmget", "shutdown",
}

// sandboxing are the calls with which a program builds a sandbox of its own,
// and which the default filter refuses.
var sandboxing = []string{
	"chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount", "open_tree",
	"pivot_root", "setdomainname", "sethostname", "setns", "umount", "umount2",
}

// dangerous are the calls that no filter lets through: a way out, a wide
// kernel surface, or the whole machine's state. What is not in any list gets
// DefaultErrno, which is as final but reads as "not on this kernel": clone3
// and openat2, whose arguments stand behind a pointer, keyrings (programs go
// on without), memory that is in no count (memfd_secret), NUMA policy of a later
// kernel, and every newer call.
var dangerous = []string{
	"_sysctl", "acct", "adjtimex", "afs_syscall", "bdflush", "bpf", "break", "clock_adjtime", "clock_adjtime64",
	"clock_settime", "clock_settime64", "create_module", "delete_module", "fanotify_init", "fanotify_mark",
	"finit_module", "ftime", "get_kernel_syms", "get_mempolicy", "getpmsg", "gtty", "idle", "init_module",
	"io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load",
	"kexec_load", "lock", "lookup_dcookie", "mbind", "migrate_pages", "modify_ldt", "move_pages", "mpx",
	"nfsservctl", "open_by_handle_at", "perf_event_open", "pidfd_getfd", "process_madvise", "prof", "profil",
	"putpmsg", "query_module", "quotactl", "quotactl_fd", "reboot", "security", "set_mempolicy", "settimeofday",
	"stime", "stty", "swapoff", "swapon", "sysfs", "syslog", "tuxcall", "ulimit", "uselib", "userfaultfd",
	"ustat", "vhangup", "vm86", "vm86old", "vserver",

	// The family stands behind a pointer. C libraries call socket and its like
	// directly, and libseccomp, unless told, would allow it wherever socket is.
	"socketcall",
}
