package escape

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

func nsProbes() []Probe {
	denied := errnos("EPERM ENOSYS")
	gone := errnos("ESRCH EPERM")
	return []Probe{
		{ID: "NS-001", Name: "see processes of the host", Guarantee: profiles.ProcIsolated, Severity: High,
			Expect: "absent from /proc", References: refs("srt: pid namespace tests"),
			Explain: "Command lines and environments of other processes hold secrets; their numbers are targets.",
			Payload: func(in *Inside) Outcome {
				if pids := processesWhose("cmdline", holding(in.Name)); len(pids) > 0 {
					return Escaped("processes of the host: %v", pids)
				}
				return Blocked("%d processes in sight, none of the host's", len(processes()))
			}},
		{ID: "NS-002", Name: "signal a process of the host", Guarantee: profiles.ProcIsolated, Severity: Critical,
			Expect: "ESRCH or EPERM", Errnos: gone, References: refs("landlock(7): LANDLOCK_SCOPE_SIGNAL"),
			Explain: "By number, by process group, by pidfd and by thread.",
			Payload: func(in *Inside) Outcome {
				if in.HostPID == os.Getpid() || statusLine(strconv.Itoa(in.HostPID), "Pid") == "" && unix.Kill(in.HostPID, 0) != nil {
					return Blocked("kill %d: %v", in.HostPID, unix.Kill(in.HostPID, 0))
				}
				if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", in.HostPID)); err == nil && !bytes.Contains(line, []byte(in.Name)) {
					return Blocked("number %d is another process here", in.HostPID)
				}
				return Any(Attempt(unix.Kill(in.HostPID, unix.SIGUSR1), "kill"), Attempt(unix.Tgkill(in.HostPID, in.HostPID, unix.SIGUSR1), "tgkill"))
			},
			Observe: waiterDecides},
		{ID: "NS-003", Name: "kill -9 -1", Guarantee: profiles.ProcIsolated, Severity: Critical, Setting: Caged,
			Expect:  "ends the sandbox's processes only",
			Explain: "A signal to everybody must not reach the host, the launcher or its proxy.",
			Payload: func(in *Inside) Outcome {
				report(in.Nonce, Blocked("kill -1 was sent"))
				return Attempt(unix.Kill(-1, unix.SIGKILL), "kill -9 -1")
			},
			Observe: waiterDecides},
		userns("NS-004", "unshare(CLONE_NEWUSER)", func(in *Inside) error { return childErr(in, "unshare", unix.CLONE_NEWUSER) }),
		{ID: "NS-005", Name: "clone and clone3 into a user namespace", Guarantee: profiles.SysNoNewUserns, Severity: High,
			Expect: "EPERM, ENOSPC or ENOSYS", Errnos: errnos("EPERM ENOSPC ENOSYS EACCES"), References: refs("CVE-2021-41133"), Key: "nested",
			Explain: "clone3 passes its flags in memory, where a filter cannot look: it must be refused as unknown.",
			Payload: func(in *Inside) Outcome {
				return Any(Attempt(tryClone(in, unix.CLONE_NEWUSER), "clone"), Attempt(tryClone3(unix.CLONE_NEWUSER), "clone3"))
			}},
		{ID: "NS-006", Name: "enter namespaces of another process", Guarantee: profiles.PrivNone, Severity: Critical, Setting: Caged,
			Expect: "EPERM or ENOENT", Errnos: errnos("EPERM ENOENT EACCES ENOSYS ESRCH"), References: refs("nsenter(1)"),
			Explain: "setns to the namespaces of the first process, of the parent and of every process in sight.",
			Payload: func(in *Inside) Outcome {
				runtime.LockOSThread()
				return each(append([]string{"1"}, processes()...), func(pid string) Outcome {
					return each([]string{"net", "ipc", "uts", "pid", "cgroup"}, func(ns string) Outcome {
						fd, err := unix.Open("/proc/"+pid+"/ns/"+ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
						if err != nil {
							return Blocked("open ns/%s of %s: %v", ns, pid, err)
						}
						defer unix.Close(fd)
						return Attempt(unix.Setns(fd, 0), "setns to %s of %s", ns, pid)
					})
				})
			}},
		{ID: "NS-007", Name: "effective capabilities", Guarantee: profiles.PrivNone, Severity: Critical, Setting: Caged,
			Expect: "CapEff, CapPrm, CapInh and CapAmb are 0", References: refs("capabilities(7)"),
			Explain: "A capability, even in a user namespace, opens kernel surface.",
			Payload: func(in *Inside) Outcome { return capsZero("CapEff", "CapPrm", "CapInh", "CapAmb") }},
		{ID: "NS-008", Name: "no_new_privs and the bounding set", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged,
			Expect: "NoNewPrivs 1, CapBnd 0", References: refs("capabilities(7)"),
			Explain: "Without both, a setuid program or file capabilities may bring rights back.",
			Payload: func(in *Inside) Outcome {
				if statusLine("self", "NoNewPrivs") == "0" {
					return Escaped("NoNewPrivs is 0")
				}
				return capsZero("CapBnd")
			}},
		{ID: "NS-009", Name: "a seccomp filter is in force", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged,
			Expect: "Seccomp: 2, for every thread", References: refs("seccomp(2)"), Key: "syscalls",
			Explain: "Without a filter, all of the kernel's surface can be called.",
			Payload: func(in *Inside) Outcome {
				threads, _ := filepath.Glob("/proc/self/task/*")
				for _, t := range threads {
					mode := ""
					filtered := func() bool {
						mode = statusLine("self/task/"+filepath.Base(t), "Seccomp")
						return mode == "2" || mode == "" && !isDirectory(t) // it has ended
					}
					if !eventually(200*time.Millisecond, filtered) { // gVisor lists a thread before it is one
						return Escaped("thread %s has Seccomp: %s", filepath.Base(t), mode)
					}
				}
				return Blocked("%d threads are filtered", len(threads))
			}},
		{ID: "NS-010", Name: "a debugger works on the payload's own child", Guarantee: profiles.ProcIsolated, Severity: Info,
			Expect: "as the profile says", Key: "syscalls", Needs: []Need{NeedDesktop},
			Explain: "Not an escape: it says whether gdb and strace work inside."},
		{ID: "NS-011", Name: "trace the sandbox's first process", Guarantee: profiles.ProcIsolated, Severity: High, Setting: Caged,
			Expect: "EPERM", Errnos: errnos("EPERM ESRCH EACCES ENOSYS"), References: refs("srt: launcher isolation"),
			Explain: "Whoever traces pid 1 is pid 1, with its descriptors.",
			Payload: func(in *Inside) Outcome {
				pid := in.firstPID()
				_, err := Call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, pid, 0, 0)
				if err == nil {
					Call(unix.SYS_PTRACE, unix.PTRACE_DETACH, pid, 0, 0)
				}
				return Attempt(err, "PTRACE_SEIZE of %d", pid)
			}},
		{ID: "NS-012", Name: "open the memory of other processes", Guarantee: profiles.ProcIsolated, Severity: Critical, Setting: Caged,
			Expect: "EACCES", Errnos: errnos("EACCES EPERM ENOENT"), References: refs("srt: launcher isolation"),
			Explain: "The first process and the launcher hold what the payload must not have, also in their environment.",
			Payload: func(in *Inside) Outcome {
				pid := strconv.Itoa(int(in.firstPID()))
				return Any(Attempt(closed(unix.Open("/proc/"+pid+"/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)), "open the memory of %s", pid), in.Read("/proc/"+pid+"/environ"))
			}},
		{ID: "NS-013", Name: "read what /proc says of the first process", Guarantee: profiles.ProcIsolated, Severity: Medium, Setting: Caged,
			Expect: "EACCES", Errnos: errnos("EACCES EPERM ENOENT"),
			Explain: "Its maps, descriptors, working directory, root and stack.",
			Payload: func(in *Inside) Outcome {
				pid := strconv.Itoa(int(in.firstPID()))
				return Any(each([]string{"maps", "environ", "auxv", "io"}, func(name string) Outcome {
					return Attempt(errOf(os.ReadFile("/proc/"+pid+"/"+name)), "read /proc/%s/%s", pid, name)
				}), each([]string{"root", "cwd", "exe", "fd/0"}, func(name string) Outcome {
					return Attempt(errOf(os.Readlink("/proc/"+pid+"/"+name)), "follow /proc/%s/%s", pid, name)
				}))
			}},
		{ID: "NS-014", Name: "read another process's memory by system call", Guarantee: profiles.ProcIsolated, Severity: High, Setting: Caged,
			Expect: "EPERM or ESRCH", Errnos: errnos("EPERM ESRCH ENOSYS"), References: refs("process_vm_readv(2)"),
			Explain: "process_vm_readv of the first process needs no file in /proc.",
			Payload: func(in *Inside) Outcome {
				pid := int(in.firstPID())
				buf := make([]byte, 16)
				local := []unix.Iovec{{Base: &buf[0], Len: 16}}
				_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: 16}}, 0)
				if err == unix.EFAULT {
					err = nil
				}
				return Attempt(err, "process_vm_readv of %d", pid)
			}},
		{ID: "NS-015", Name: "change the host's name", Guarantee: profiles.PrivNone, Severity: Low, Setting: Caged,
			Expect: "EPERM, or a name of the sandbox's own", Errnos: denied,
			Explain: "In a shared UTS namespace the host's name changes.",
			Payload: func(in *Inside) Outcome { return Attempt(unix.Sethostname([]byte("canary")), "sethostname") },
			Observe: finds(func(*Outside) string {
				if name, _ := os.Hostname(); name == "canary" {
					return "it is called canary"
				}
				return ""
			})},
		{ID: "NS-016", Name: "every namespace is the sandbox's own", Guarantee: profiles.ProcIsolated, Severity: Medium,
			Gap:    "the user namespace is the machine",
			Expect: "user, mnt, pid, net, ipc, uts and cgroup differ from the host's", References: refs("namespaces(7)", "amicontained"),
			Explain: "A namespace that is shared is a way to reach, or to watch, the host.",
			Payload: func(in *Inside) Outcome {
				var shared []string
				for ns, host := range in.Namespaces {
					if mine, err := os.Readlink("/proc/self/ns/" + ns); err == nil && mine == host {
						shared = append(shared, ns)
					}
				}
				if len(shared) > 0 {
					return Escaped("shared with the host: %s", strings.Join(shared, ", "))
				}
				return Blocked("all %d differ", len(in.Namespaces))
			}},
		{ID: "NS-017", Name: "root of the host behind the payload's identity", Guarantee: profiles.PrivNone, Severity: High, Needs: []Need{NeedRoot}, Setting: Caged,
			Expect:  "the payload's files are not root's on the host",
			Explain: "A payload that is the host's uid 0, mapped or not, owns /proc/sys and every file of root's.",
			Payload: func(in *Inside) Outcome {
				startDaemon(in)
				report(in.Nonce, Blocked("waits to be looked at"))
				time.Sleep(400 * time.Millisecond)
				return Blocked("waited to be looked at")
			},
			Drive: identityOutside},
		{ID: "NS-024", Name: "leave the control group", Guarantee: profiles.ResPids, Severity: High, Setting: Caged, Needs: []Need{NeedCgroup},
			Expect: "EACCES or EROFS", References: refs("CVE-2022-0492"),
			Explain: "A process that moves to the parent group leaves its limits.",
			Payload: func(in *Inside) Outcome {
				return each([]string{"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/pids/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs"}, func(path string) Outcome { return Attempt(os.WriteFile(path, []byte("0"), 0), "write to %s", path) })
			}},
		{ID: "NS-025", Name: "have the host's services start something", Guarantee: profiles.IPCUnix, Severity: Critical, Setting: Caged,
			Expect:  "no bus, no socket, no spool directory",
			Explain: "cron, at and systemd start commands outside the sandbox.",
			Payload: func(in *Inside) Outcome {
				return Any(createIn("/etc/cron.d"), createIn("/var/spool/cron/crontabs"), createIn("/var/spool/cron/atjobs"), createIn(in.Home+"/.config/systemd/user"),
					createIn(in.Home+"/.config/autostart"), in.Dial("unix", in.Home+"/agent.sock"))
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				if hits := out.Hits("agent socket"); len(hits) > 0 {
					return Escaped("a service's socket was reached")
				}
				return stands(plantedIn("/etc/cron.d", "/var/spool/cron/crontabs", "{home}/.config/autostart", "{home}/.config/systemd/user")...)(out, o)
			}},
		timeNamespace(),
		{ID: "NS-027", Name: "take the processor by priority", Guarantee: profiles.ResCPU, Severity: Medium, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM", Errnos: errnos("EPERM EACCES ENOSYS"), References: refs("sched(7)"), Key: "resources.cpus",
			Explain: "Real-time scheduling, a negative nice value and real-time I/O starve the host.",
			Payload: func(in *Inside) Outcome {
				param := struct{ priority int32 }{1}
				_, err := Call(unix.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&param)))
				_, ionice := Call(unix.SYS_IOPRIO_SET, 1, 0, 1<<13)
				return Any(Attempt(err, "SCHED_FIFO"), Attempt(unix.Setpriority(unix.PRIO_PROCESS, 0, -20), "nice -20"), Attempt(ionice, "real-time I/O"))
			}},
		{ID: "NS-028", Name: "start the launcher again with a wider policy", Guarantee: profiles.LaunchIntegrity, Severity: High, Needs: []Need{NeedNative},
			Expect:  "no more authority than before",
			Explain: "A launcher that can be run inside must not give what its caller does not have.",
			Control: func(in *Inside) Outcome { return in.Read(in.Canary + "/secret") },
			Payload: func(in *Inside) Outcome {
				ctx, cancel := context.WithTimeout(in.ctx, 4*time.Second)
				defer cancel()
				out, err := exec.CommandContext(ctx, in.Program, "run", "--read", "/", "--read", in.Canary, "--", "/bin/cat", in.Canary+"/secret").CombinedOutput()
				if in.Leaks(out) {
					return Escaped("an inner launcher read the secret")
				}
				return Blocked("%v: %.80q", err, out)
			}},
		{ID: "NS-029", Name: "namespaces without a user namespace", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged,
			Expect: "EPERM", Errnos: denied, References: refs("unshare(2)"), Key: "syscalls",
			Explain: "A mount, network or pid namespace of the payload's own is surface, and hides it from tools of the host.",
			Payload: func(in *Inside) Outcome {
				return each([]int{unix.CLONE_NEWNS, unix.CLONE_NEWNET, unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWPID, unix.CLONE_NEWCGROUP}, func(flag int) Outcome {
					return Attempt(childErr(in, "unshare", flag), "unshare(%#x)", flag)
				})
			}},
		{ID: "NS-030", Name: "find the launcher's descriptors through the parent", Guarantee: profiles.ProcIsolated, Severity: High, Setting: Caged,
			Expect: "EPERM or ESRCH", Errnos: errnos("EPERM ESRCH EACCES ENOSYS"), References: refs("pidfd_getfd(2)"),
			Explain: "pidfd_getfd copies a descriptor out of another process.",
			Payload: func(in *Inside) Outcome {
				pid := int(in.firstPID())
				fd, err := unix.PidfdOpen(pid, 0)
				blockedBy(err, "pidfd_open")
				return Attempt(errOf(unix.PidfdGetfd(fd, 0, 0)), "pidfd_getfd of %d", pid)
			}},
		{ID: "NS-031", Name: "the limits of another process", Guarantee: profiles.ProcIsolated, Severity: Low, Setting: Caged,
			Expect: "EPERM or ESRCH", Errnos: errnos("EPERM ESRCH ENOSYS EACCES EINVAL"), References: refs("prlimit(2)"),
			Explain: "prlimit of the first process or the parent.",
			Payload: func(in *Inside) Outcome {
				l := unix.Rlimit{Cur: 64, Max: 64}
				return Attempt(unix.Prlimit(int(in.firstPID()), unix.RLIMIT_CORE, &l, nil), "prlimit of %d", in.firstPID())
			}},
	}
}

// firstPID is the process that stands above the payload: pid 1 in a sandbox,
// the waiting process in the control, where pid 1 is the cage itself.
func (in *Inside) firstPID() uintptr {
	if in.Control {
		return uintptr(in.HostPID)
	}
	return 1
}

func waiterDecides(out *Outside, o Outcome) Outcome {
	if end := out.waiterEnded(); end != "" {
		return Escaped("the host's process ended: %s", end)
	}
	return keepBlocked(o)
}

func userns(id, name string, try func(*Inside) error) Probe {
	return Probe{
		ID: id, Name: name, Guarantee: profiles.SysNoNewUserns, Severity: High,
		Expect: "EPERM or ENOSPC", Errnos: errnos("EPERM ENOSPC ENOSYS EACCES"), References: refs("user_namespaces(7)"), Key: "nested",
		Explain: "In a user namespace of its own the payload has every capability, and all the kernel surface behind them.",
		Payload: func(in *Inside) Outcome { return Attempt(try(in), "%s", name) },
	}
}

func timeNamespace() Probe {
	p := userns("NS-026", "unshare of a time namespace", func(in *Inside) error { return childErr(in, "unshare", unix.CLONE_NEWTIME) })
	try := p.Payload
	p.Payload = func(in *Inside) Outcome {
		if _, err := os.Stat("/proc/self/ns/time"); in.Control && err != nil {
			return Needing("a kernel with time namespaces (CONFIG_TIME_NS)")
		}
		return try(in)
	}
	return p
}

// childErr runs a helper that makes one call and exits with its errno.
func childErr(in *Inside, verb string, arg int) error {
	err := in.Again(verb, strconv.Itoa(arg), in.Program, in.Tag).Run()
	if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() > 0 {
		return unix.Errno(exit.ExitCode())
	}
	return err
}

func tryClone(in *Inside, flags uintptr) error {
	cmd := in.Again("nothing")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	return cmd.Run()
}

// tryClone3 gives clone3 arguments that it accepts but for a stack that no
// child could use: the child ends at once, if there is one.
func tryClone3(flags uint64) error {
	args := struct{ flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64 }{
		flags: flags, exitSignal: uint64(unix.SIGCHLD), setTIDSize: 99,
	}
	// set_tid_size is checked after the flags are read and before anything is
	// made: EINVAL shows that the call was let through.
	_, err := Call(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
	if err == unix.EINVAL {
		return nil
	}
	return err
}

func capsZero(names ...string) Outcome {
	for _, name := range names {
		value := statusLine("self", name)
		if strings.Trim(value, "0") != "" {
			return Escaped("%s is %s", name, value)
		}
	}
	return Blocked("%s: none", strings.Join(names, ", "))
}

// eventually asks until it is so, at most for as long.
func eventually(limit time.Duration, is func() bool) bool {
	for end := time.Now().Add(patience(limit)); ; time.Sleep(10 * time.Millisecond) {
		if is() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// setuidPayload starts a program that is setuid root as somebody who is not.
func setuidPayload(in *Inside) Outcome {
	program := in.Shown + "/setuid"
	if _, err := os.Stat(program); err != nil {
		return Needing(string(NeedSetuid))
	}
	run := func(credential *syscall.Credential) ([]byte, error) {
		cmd := exec.Command(program, helperVerb, "whoami", in.Tag)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		return cmd.Output()
	}
	var out []byte
	var err error
	if os.Geteuid() == 0 {
		out, err = run(&syscall.Credential{Uid: 12345, Gid: 12345, NoSetGroups: true})
	}
	if len(out) == 0 {
		out, err = run(nil)
	}
	real, effective, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	blockedBy(err, "start")
	if real != effective {
		return Escaped("uid %s became %s", real, effective)
	}
	return Blocked("uid %s stayed", real)
}

// identityOutside looks, while the payload runs, who it is on the host.
func identityOutside(d *Drive) Outcome {
	cmd, out := d.begin()
	defer d.sweep()
	uid := ""
	eventually(5*time.Second, func() bool {
		for _, pid := range d.Survivors() {
			if fields := strings.Fields(statusLine(strconv.Itoa(pid), "Uid")); len(fields) == 4 {
				uid = fields[1]
			}
		}
		return uid != ""
	})
	run := d.wait(cmd, out)
	switch uid {
	case "":
		return Broken("no process of the payload's was seen: %s", tail(run))
	case "0":
		return Escaped("the payload is uid 0 of the host")
	}
	return Blocked("the payload is uid %s of the host", uid)
}
