package escape

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// mountProbes try mounts, devices, the kernel's own files, and programs that give rights.
func mountProbes() []Probe {
	readonly := errnos("EROFS EACCES EPERM ENOENT")
	denied := errnos("EPERM ENOSYS")
	return []Probe{
		mountProbe("FS-020", "mount a tmpfs over the workspace", High, func(in *Inside) error {
			return unix.Mount("none", in.Workspace, "tmpfs", 0, "")
		}),
		mountProbe("FS-021", "remount a read-only mount writable", Critical, func(in *Inside) error {
			return errors.Join(unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
		}),
		mountProbe("FS-022", "unmount what covers other things", Critical, func(in *Inside) error {
			var last error
			for _, path := range []string{in.Home, "/tmp", "/proc", "/sys", "/dev/shm", "/run", in.Workspace} {
				if last = unix.Unmount(path, unix.MNT_DETACH); last == nil {
					return nil
				}
			}
			return last
		}),
		mountProbe("FS-023", "bind-mount one directory over another", High, func(in *Inside) error {
			return unix.Mount("/", in.Workspace, "", unix.MS_BIND|unix.MS_REC, "")
		}),
		{ID: "FS-024", Name: "the new mount API: fsopen, open_tree, move_mount, fspick", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged,
			Expect: "EPERM or ENOSYS", Errnos: denied, References: refs("CVE-2022-0185"), Key: "syscalls",
			Explain: "The parameters of file systems are parsed in the kernel, where mistakes were found that gave root.",
			Payload: func(in *Inside) Outcome {
				name, _ := unix.BytePtrFromString("tmpfs")
				root, _ := unix.BytePtrFromString("/")
				fd, open := Call(unix.SYS_FSOPEN, uintptr(unsafe.Pointer(name)), 0)
				if open == nil {
					_, open = Call(unix.SYS_FSCONFIG, fd, unix.FSCONFIG_CMD_CREATE, 0, 0, 0)
				}
				_, clone := Call(unix.SYS_OPEN_TREE, at(unix.AT_FDCWD), uintptr(unsafe.Pointer(root)), unix.OPEN_TREE_CLONE)
				_, pick := Call(unix.SYS_FSPICK, at(unix.AT_FDCWD), uintptr(unsafe.Pointer(root)), 0)
				return Any(Attempt(open, "fsopen and fsconfig"), Attempt(clone, "open_tree of a clone"), Attempt(pick, "fspick"))
			}},
		{ID: "FS-025", Name: "make a block device node of a disk", Guarantee: profiles.FSSpecial, Severity: Critical, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM", Errnos: errnos("EPERM EACCES"), References: refs("CDK: mknod"), Key: "filesystem",
			Explain: "The disk read as a device passes by every rule about files. No byte of it is read.",
			Payload: func(in *Inside) Outcome { return device(in, unix.S_IFBLK, 254, 0) }},
		{ID: "FS-026", Name: "make a character device node of memory", Guarantee: profiles.FSSpecial, Severity: High, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM", Errnos: errnos("EPERM EACCES"), References: refs("deepce"), Key: "filesystem",
			Explain: "A node of /dev/mem or /dev/kmsg.",
			Payload: func(in *Inside) Outcome {
				return Any(device(in, unix.S_IFCHR, 1, 1), device(in, unix.S_IFCHR, 1, 11))
			}},
		{ID: "FS-027", Name: "open a file by handle", Guarantee: profiles.FSHide, Severity: Critical, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM", Errnos: denied, References: refs("shocker"), Key: "syscalls",
			Explain: "A handle names an inode of the file system, whatever the mounts show.",
			Payload: func(in *Inside) Outcome {
				h, mountID, err := unix.NameToHandleAt(unix.AT_FDCWD, in.Path("README.md"), 0)
				_ = mountID
				blockedBy(err, "name_to_handle_at")
				dir, err := os.Open(in.Workspace)
				blockedBy(err, "open")
				defer dir.Close()
				return Attempt(closed(unix.OpenByHandleAt(int(dir.Fd()), h, unix.O_RDONLY)), "open_by_handle_at")
			}},
		{ID: "FS-028", Name: "leave by a second chroot", Guarantee: profiles.FSHide, Severity: High, Setting: Caged,
			Expect: "EPERM", Errnos: denied, References: refs("chroot(2)"), Key: "syscalls",
			Explain: "chroot does not change the working directory: from above the new root, .. leads on.",
			Payload: func(in *Inside) Outcome { return Attempt(unix.Chroot(in.Workspace), "chroot") }},
		{ID: "FS-029", Name: "pivot_root", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged,
			Expect: "EPERM or ENOSYS", Errnos: denied, Key: "syscalls",
			Explain: "Whoever exchanges the root can bring an old one back.",
			Payload: func(in *Inside) Outcome {
				if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
					return Reached(unix.PivotRoot("/", "/"), "pivot_root")
				}
				return Reached(unix.PivotRoot(in.Workspace, in.Workspace), "pivot_root")
			}},
		{ID: "FS-030", Name: "open devices of the host", Guarantee: profiles.FSSpecial, Severity: High,
			Expect: "ENOENT or EPERM", Errnos: errnos("ENOENT EPERM EACCES ENXIO ENODEV"), References: refs("deepce"), Key: "filesystem",
			Explain: "A minimal /dev has null, zero, full, random, urandom, tty and a terminal multiplexer of its own.",
			Payload: func(in *Inside) Outcome {
				o := each([]string{"vda", "sda", "nvme0n1", "mem", "kmsg", "port", "fuse", "kvm", "vsock", "vhost-vsock", "vhost-net", "loop-control", "loop0", "net/tun",
					"uinput", "uhid", "userfaultfd", "dri/card0", "dri/renderD128", "snd/timer", "rfkill", "hwrng", "rtc0", "watchdog", "cpu_dma_latency", "mapper/control", "btrfs-control", "autofs", "ppp", "tty0", "console", "vcs"}, func(name string) Outcome {
					fd, err := unix.Open("/dev/"+name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
					if err != nil {
						fd, err = unix.Open("/dev/"+name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
					}
					if err == nil {
						defer unix.Close(fd)
					}
					if err == nil && name == "console" && !hostDevice(fd) {
						return Broken("a terminal of the sandbox's own")
					}
					return Attempt(err, "open /dev/%s", name)
				})
				if in.Control && !in.Alone && o.Kind == DidBlock { // without protection this caller cannot open one either
					return Needing("a device of the host that its user may open: " + o.Detail)
				}
				return o
			}},
		openForWriting("FS-031", "the kernel's request key", High, "/proc/sysrq-trigger"),
		openForWriting("FS-032", "the handler of core dumps", Critical, "/proc/sys/kernel/core_pattern"),
		openForWriting("FS-033", "the handler of device events", Critical, "/sys/kernel/uevent_helper", "/proc/sys/kernel/hotplug"),
		openForWriting("FS-034", "the handlers of modules and binary formats", Critical, "/proc/sys/kernel/modprobe", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/usermodehelper/bset"),
		{ID: "FS-035", Name: "open control groups for writing", Guarantee: profiles.FSSpecial, Severity: Critical, Setting: Caged, Needs: []Need{NeedCgroup},
			Expect: "EROFS, EACCES or ENOENT", Errnos: readonly, References: refs("CVE-2022-0492"), Key: "filesystem",
			Explain: "release_agent runs a program as root on the host; cgroup.procs moves a process out of its limits.",
			Payload: func(in *Inside) Outcome {
				return walkForWriting("/sys/fs/cgroup", "release_agent", "cgroup.procs", "cgroup.subtree_control", "tasks", "notify_on_release", "devices.allow", "cgroup.kill")
			}},
		{ID: "FS-036", Name: "write kernel settings of the namespaces", Guarantee: profiles.FSSpecial, Severity: Low, Setting: Caged,
			Expect: "EROFS or EACCES", Errnos: readonly, References: refs("docker: read-only paths"), Key: "filesystem",
			Explain: "ns_last_pid and net.* belong to the sandbox's namespaces; they are kernel surface all the same.",
			Payload: func(in *Inside) Outcome {
				return Any(openWrite("/proc/sys/kernel/ns_last_pid"), openWrite("/proc/sys/net/ipv4/ip_forward"), openWrite("/proc/sys/net/core/somaxconn"),
					openWrite("/proc/sys/kernel/hostname"), openWrite("/proc/sys/kernel/shmmax"), openWrite("/proc/sys/vm/overcommit_memory"))
			}},
		{ID: "FS-037", Name: "tune the sandbox's first process", Guarantee: profiles.ProcIsolated, Severity: Low, Setting: Caged,
			Expect: "EACCES", Errnos: errnos("EACCES EPERM EROFS ENOENT"), Key: "",
			Explain: "Its OOM score, core dump filter and timer slack.",
			Payload: func(in *Inside) Outcome {
				dir := "/proc/" + strconv.Itoa(int(in.firstPID())) + "/"
				return each([][2]string{{"oom_score_adj", "0"}, {"coredump_filter", "0x33"}, {"timerslack_ns", "50000"}, {"clear_refs", "1"}}, func(file [2]string) Outcome {
					return Attempt(os.WriteFile(dir+file[0], []byte(file[1]), 0), "write %s", dir+file[0])
				})
			}},
		{ID: "FS-038", Name: "write to a FIFO on a read-only mount", Guarantee: profiles.FSSpecial, Severity: Medium,
			Expect: "EACCES, EROFS or absence", Errnos: readonly, Key: "filesystem",
			Explain: "A read-only mount does not stop a write to a FIFO: what listens at its other end is on the host.",
			Payload: func(in *Inside) Outcome {
				fd, err := unix.Open(in.Shown+"/fifo", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
				if err == nil {
					_, err = unix.Write(fd, []byte("canary"))
					defer unix.Close(fd)
				}
				return Attempt(err, "write to %s", in.Shown+"/fifo")
			}},
		{ID: "FS-042", Name: "enter the layers of an overlay", Guarantee: profiles.FSOverlay, Severity: Medium, Needs: []Need{NeedNative},
			Expect: "the upper and work directories are not to be reached", Flags: []string{"--overlay", "{shown}/sub"}, Key: "filesystem",
			Explain: "Whoever writes into the upper layer by its own path changes what the overlay records, or the lower files.",
			Control: func(in *Inside) Outcome { return appendTo(in.Shown + "/sub/f") },
			Payload: func(in *Inside) Outcome {
				mounts, _ := os.ReadFile("/proc/self/mountinfo")
				for line := range strings.Lines(string(mounts)) {
					for option := range strings.SplitSeq(line, ",") {
						dir, is := strings.CutPrefix(option, "upperdir=")
						if is {
							if o := createIn(dir); o.Kind == DidEscape {
								return o
							}
						}
					}
				}
				must(os.WriteFile(in.Shown+"/sub/f", []byte("changed\n"), 0o644), "an overlay must be writable")
				return Blocked("the overlay took the write")
			},
			Observe: hostUnchanged},
		{ID: "FS-043", Name: "gain an identity by a setuid program", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged, Needs: []Need{NeedSetuid},
			Expect: "no_new_privs: the identity is unchanged", References: refs("CVE-2022-31214"), Key: "",
			Explain: "A setuid program of root's is started by somebody who is not root.",
			Payload: setuidPayload},
		record("FS-044", "pass by a rule about execution", profiles.SysFilter, Medium, NeedExec, "No exec right apart from sight is claimed: ld.so, memfd and copies pass by one."),
		record("FS-045", "write a protected name in another case or form", profiles.FSProtect, High, NeedCaseless, ".GIT/hooks is .git/hooks where names ignore case.", "CVE-2025-59944", "CVE-2014-9390"),
		{ID: "FS-061", Name: "setuid and setgid bits in the workspace", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "no file with the bit stands on the host", Key: "",
			Explain: "A setuid file that root's run leaves in the workspace is root for whoever starts it later.",
			Payload: func(in *Inside) Outcome {
				path := in.Path("suid")
				err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755)
				if err == nil {
					err = unix.Chmod(path, 0o6755)
				}
				unix.Fchmodat(unix.AT_FDCWD, path, 0o6755, 0)
				fd, _ := unix.Open(in.Path("suid2"), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o6755)
				unix.Fchmod(fd, 0o6755)
				return Attempt(err, "chmod 6755")
			},
			Observe: finds(func(out *Outside) string {
				for _, name := range []string{"suid", "suid2"} {
					fi, err := os.Stat(filepath.Join(out.Workspace, name))
					if err == nil && fi.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
						return name + " is " + fi.Mode().String()
					}
				}
				return ""
			})},
		{ID: "FS-062", Name: "write into a setuid program of root's in the workspace", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EROFS or EACCES", Errnos: readonly, References: refs("chmod(2)"), Key: "",
			Explain: "What is written through a shared mapping keeps the bit: the program stays root's, with the payload's code.",
			Payload: func(in *Inside) Outcome {
				f, err := os.OpenFile(in.Path("root-program"), os.O_RDWR, 0)
				blockedBy(err, "open")
				defer f.Close()
				page, err := unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
				blockedBy(err, "mmap")
				copy(page, "changed!")
				return Attempt(unix.Msync(page, unix.MS_SYNC), "msync")
			},
			Drive: func(d *Drive) Outcome {
				program := d.Workspace + "/root-program"
				must(errors.Join(os.WriteFile(program, []byte("original"), 0o755), os.Chmod(program, 0o755|os.ModeSetuid)))
				o := d.Run()
				data, err := os.ReadFile(program)
				fi, statErr := os.Stat(program)
				if err == nil && statErr == nil && string(data) != "original" && fi.Mode()&os.ModeSetuid != 0 {
					return Escaped("it is %q, and still %s", data, fi.Mode())
				}
				return keepBlocked(o)
			}},
	}
}

// unhide judges a second name of a host file: it must neither hold the secret
// nor be the host's own file, writable.
func unhide(in *Inside, from string, err error, to string) Outcome {
	if err != nil {
		return Blocked("link %s: %v", from, cause(err))
	}
	return appendTo(to)
}

func mountProbe(id, name string, severity Severity, try func(*Inside) error) Probe {
	return Probe{
		ID: id, Name: name, Guarantee: profiles.PrivNone, Severity: severity, Setting: Caged,
		Expect: "EPERM", Errnos: errnos("EPERM ENOSYS"), References: refs("CDK: mount"), Key: "syscalls",
		Explain: "Whoever can mount and unmount undoes what hides and what is read-only.",
		Payload: func(in *Inside) Outcome { return Reached(try(in), "%s", name) },
	}
}

func openForWriting(id, name string, severity Severity, paths ...string) Probe {
	return Probe{
		ID: id, Name: "open " + name + " for writing", Guarantee: profiles.FSSpecial, Severity: severity, Setting: Caged, Needs: []Need{NeedRoot},
		Expect: "EROFS, EACCES or ENOENT", Errnos: errnos("EROFS EACCES ENOENT EPERM"), References: refs("CVE-2025-31133", "CVE-2025-52881"), Key: "filesystem",
		Explain: "What is written there runs, or acts, as root on the host. It is opened and nothing is written.",
		Payload: func(in *Inside) Outcome {
			o := each(paths, openWrite)
			if in.Control && o.Errno == Errno(unix.ENOENT) {
				return Needing("a kernel with " + paths[0])
			}
			return o
		},
	}
}

func walkForWriting(root string, names ...string) Outcome {
	o := Blocked("nothing below %s can be written", root)
	seen := 0
	filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if seen++; err != nil || o.Kind == DidEscape || seen > 3000 {
			return filepath.SkipDir
		}
		for _, name := range names {
			if d.Name() == name {
				o = Any(o, openWrite(path))
			}
		}
		return nil
	})
	return o
}

func device(in *Inside, kind uint32, major, minor uint32) Outcome {
	path := in.Path("node-" + strconv.Itoa(int(minor)))
	return Attempt(unix.Mknod(path, kind|0o600, int(unix.Mkdev(major, minor))), "mknod %d:%d", major, minor)
}

// hostDevice says whether a descriptor is a device other than a pseudo-terminal.
func hostDevice(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return true
	}
	major := unix.Major(uint64(st.Rdev))
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && (major < 136 || major > 143)
}
