package escape

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

func fsProbes() []Probe {
	hidden := errnos("ENOENT EACCES")
	readonly := errnos("EROFS EACCES EPERM ENOENT")
	denied := errnos("EPERM ENOSYS")
	return []Probe{
		{
			ID: "FS-001", Name: "read a host secret outside the workspace", Guarantee: profiles.FSHide, Severity: Critical,
			Expect: "ENOENT or EACCES", Errnos: hidden, References: refs("CVE-2025-54794"), Key: `filesystem`,
			Explain: "Opens a file that the policy does not show. Whatever reads it can send it away or commit it.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Read(in.Canary+"/secret"), in.Read(in.Canary+"/sub/secret"), in.Read(in.Tmp+"/secret"))
			},
		},
		{
			ID: "FS-002", Name: "create a file outside the workspace", Guarantee: profiles.FSReadonly, Severity: Critical,
			Expect: "EROFS, EACCES or ENOENT", Errnos: readonly, References: refs("CVE-2025-59532"), Key: `filesystem`,
			Explain: "Creates files beside shown and hidden ones. The host looks afterwards.",
			Payload: func(in *Inside) Outcome {
				return Any(createIn(in.Canary), createIn(in.Tmp), createIn(in.Shown))
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-003", Name: "append to a start-up file in the home", Guarantee: profiles.FSReadonly, Severity: Critical,
			Expect: "EROFS, absence or a private home", References: refs("srt: mandatory-deny tests"), Key: `filesystem."~"`,
			Explain: "A line in ~/.bashrc runs outside the sandbox the next time that a shell starts.",
			Payload: func(in *Inside) Outcome {
				return Any(appendTo(in.Home+"/.bashrc"), appendTo(in.Home+"/.profile"), appendTo(in.Home+"/.gitconfig"))
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-004", Name: "write through a symbolic link in the workspace", Guarantee: profiles.FSReadonly, Severity: Critical,
			Expect: "EROFS or EACCES at the target", References: refs("CVE-2026-39861", "CVE-2025-53109", "CVE-2025-53110"), Key: `filesystem`,
			Explain: "Plants a link to a directory outside in the writable workspace and writes through it.",
			Payload: func(in *Inside) Outcome {
				return Any(throughLink(in, in.Canary), throughLink(in, in.Shown))
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-005", Name: "read a hidden file through a symbolic link", Guarantee: profiles.FSHide, Severity: High,
			Expect: "the content is never read", Errnos: hidden, References: refs("CVE-2026-25724", "CVE-2025-59829"), Key: `filesystem`,
			Explain: "A link in the workspace to a key in the home; one was there before the start, one is made now.",
			Payload: func(in *Inside) Outcome {
				os.Symlink(in.Home+"/.ssh/id_rsa", in.Path("key"))
				return Any(in.Read(in.Path("link-to-secret")), in.Read(in.Path("key")))
			},
		},
		{
			ID: "FS-006", Name: "reach the host's root through /proc/PID/root and cwd", Guarantee: profiles.FSHide, Severity: Critical,
			Expect: "EACCES or ENOENT", References: refs("CVE-2024-21626"), Key: `filesystem`,
			Explain: "Every process has links to its root and working directory; one that was started outside leads out.",
			Payload: func(in *Inside) Outcome {
				o := Any(in.Read("/proc/self/root"+in.Canary+"/secret"), in.Read("/proc/1/root"+in.Canary+"/secret"))
				for _, pid := range processes() {
					for _, link := range []string{"root" + in.Canary, "cwd" + in.Canary, "cwd", "cwd/../../canary"} {
						o = Any(o, in.Read("/proc/"+pid+"/"+link+"/secret"))
					}
				}
				return o
			},
		},
		{
			ID: "FS-007", Name: "spell the path of a hidden file in other ways", Guarantee: profiles.FSHide, Severity: High,
			Expect: "the same as for the plain path", Errnos: hidden, References: refs("CVE-2025-54794"), Key: `filesystem`,
			Explain: "A check of path strings misses //, /./, .., /proc/self/root and /proc/self/cwd; the kernel does not.",
			Payload: func(in *Inside) Outcome {
				up := strings.Repeat("../", 40)
				dir, p := in.Canary, in.Canary+"/secret"
				return Any(in.Read("/proc/self/root"+p), in.Read("/"+p), in.Read("/."+p), in.Read(dir+"/./secret"), in.Read(dir+"/sub/../secret"),
					in.Read("/proc/self/cwd/"+up+p), in.Read("/proc/thread-self/root"+p), in.Read(up+p[1:]), in.Read("/dev/fd/../root"+p))
			},
		},
		{
			ID: "FS-008", Name: "a neighbour whose name begins as the workspace's", Guarantee: profiles.FSHide, Severity: High,
			Expect: "ENOENT or EACCES", Errnos: hidden, References: refs("CVE-2025-54794"), Key: `filesystem`,
			Explain: "A rule for /ws that is compared as a prefix lets /ws-evil and /ws2 through.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Read(in.Workspace+"-evil/secret"), in.Read(in.Workspace+"2/secret"))
			},
		},
		{
			ID: "FS-009", Name: "read /etc/shadow", Guarantee: profiles.FSHide, Severity: High, Setting: Caged,
			Expect: "EACCES or ENOENT", Errnos: hidden, References: refs("deepce"), Needs: []Need{NeedRoot}, Key: `filesystem`,
			Explain: "Root's ownership of host files must not read what the invoking policy did not show.",
			Payload: func(in *Inside) Outcome {
				data, err := os.ReadFile("/etc/shadow")
				return Tried(err, "read /etc/shadow, %d bytes", len(data))
			},
		},
		{
			ID: "FS-010", Name: "write the system's accounts, preloads and schedules", Guarantee: profiles.FSReadonly, Severity: Critical, Setting: Caged,
			Expect: "EROFS or EACCES", Errnos: readonly, References: refs("CDK"), Key: `filesystem."/"`,
			Explain: "A line in any of these runs as root later.",
			Payload: func(in *Inside) Outcome {
				var all []Outcome
				for _, path := range []string{"/etc/passwd", "/etc/ld.so.preload", "/etc/cron.d/canary", "/etc/profile.d/canary.sh", "/etc/crontab", "/etc/hosts"} {
					all = append(all, appendTo(path))
				}
				return Any(all...)
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				for _, path := range []string{"/etc/ld.so.preload", "/etc/cron.d/canary", "/etc/profile.d/canary.sh"} {
					if _, err := os.Stat(path); err == nil {
						return Escaped("%s exists", path)
					}
				}
				if data, _ := os.ReadFile("/etc/passwd"); bytes.Contains(data, []byte("canary")) {
					return Escaped("/etc/passwd has a new line")
				}
				if o.Kind == DidEscape {
					return Blocked("%s, but the host's files are unchanged", o.Detail)
				}
				return o
			},
		},
		{
			ID: "FS-011", Name: "plant a program in a system directory", Guarantee: profiles.FSReadonly, Severity: High, Setting: Caged,
			Expect: "EROFS", Errnos: readonly, Key: `filesystem."/"`,
			Explain: "A program in /usr/local/bin or /opt is started by others.",
			Payload: func(in *Inside) Outcome {
				return Any(createIn("/usr/local/bin"), createIn("/usr/bin"), createIn("/opt"), createIn("/srv"), createIn("/"))
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/opt", "/srv", "/"} {
					if _, err := os.Lstat(filepath.Join(dir, "planted")); err == nil {
						return Escaped("%s/planted exists", dir)
					}
				}
				if o.Kind == DidEscape {
					return Blocked("%s, but not on the host", o.Detail)
				}
				return o
			},
		},
		{
			ID: "FS-012", Name: "delete a file outside the workspace", Guarantee: profiles.FSReadonly, Severity: Critical,
			Expect: "EROFS, EACCES or ENOENT", Errnos: readonly, Key: `filesystem`,
			Explain: "Deleting is a write to the directory, not to the file: a filter on open does not see it.",
			Payload: func(in *Inside) Outcome {
				return Any(Tried(os.Remove(in.Shown+"/f"), "unlink"), Tried(os.RemoveAll(in.Shown+"/sub"), "remove a tree"),
					Tried(os.Remove(in.Canary+"/f"), "unlink a hidden file"))
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-013", Name: "change the times of a file outside", Guarantee: profiles.FSReadonly, Severity: Low,
			Expect: "EROFS or EPERM", Errnos: readonly, References: refs("landlock(7)"), Key: `filesystem`,
			Explain: "Build tools trust time stamps. Landlock does not govern utimensat.",
			Payload: func(in *Inside) Outcome {
				return Tried(os.Chtimes(in.Shown+"/f", time.Unix(1, 0), time.Unix(1, 0)), "utimensat")
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				if fi, err := os.Stat(out.Shown + "/f"); err == nil && fi.ModTime().Unix() == 1 {
					return Escaped("the host's file has the new time")
				}
				return keepBlocked(o)
			},
		},
		{
			ID: "FS-014", Name: "set extended attributes and ACLs outside", Guarantee: profiles.FSReadonly, Severity: Medium,
			Expect: "EROFS or EPERM", Errnos: errnos("EROFS EPERM EACCES EOPNOTSUPP"), References: refs("landlock(7)"), Key: `filesystem`,
			Explain: "An ACL opens a file to others; Landlock does not govern setxattr.",
			Payload: func(in *Inside) Outcome {
				acl := []byte{2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 6, 0, 255, 255, 255, 255}
				return Any(Tried(unix.Setxattr(in.Shown+"/f", "user.canary", []byte("x"), 0), "setxattr user.canary"),
					Tried(unix.Setxattr(in.Shown+"/f", "system.posix_acl_access", acl, 0), "setxattr of an ACL"))
			},
		},
		{
			ID: "FS-015", Name: "truncate(2) a file outside", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EROFS or EACCES", Errnos: readonly, References: refs("landlock(7): ABI < 3"), Key: `filesystem`,
			Explain: "truncate takes a path, not a descriptor: a filter on open does not see it.",
			Payload: func(in *Inside) Outcome {
				return Any(Tried(unix.Truncate(in.Shown+"/f", 0), "truncate"), Tried(unix.Truncate(in.Canary+"/f", 0), "truncate"))
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-016", Name: "hard-link a host file into the workspace", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EXDEV, EPERM or EACCES", References: refs("fs.protected_hardlinks"), Key: `filesystem`,
			Explain: "The same inode under a writable name is the host's file, writable.",
			Payload: func(in *Inside) Outcome {
				var all []Outcome
				for i, from := range []string{in.Shown + "/f", in.Canary + "/f", in.Home + "/.bashrc"} {
					to := in.Path("linked" + strconv.Itoa(i))
					all = append(all, unhide(in, from, os.Link(from, to), to))
				}
				return Any(all...)
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-017", Name: "rename files outside, and into the workspace", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EROFS, EXDEV or EACCES", Errnos: errnos("EROFS EXDEV EACCES ENOENT EPERM EBUSY"), References: refs("srt issue 8"), Key: `filesystem`,
			Explain: "rename needs no open. RENAME_EXCHANGE swaps a file with one of the attacker's.",
			Payload: func(in *Inside) Outcome {
				os.WriteFile(in.Path("mine"), []byte("mine\n"), 0o644)
				return Any(
					Tried(unix.Renameat2(unix.AT_FDCWD, in.Path("mine"), unix.AT_FDCWD, in.Shown+"/f", unix.RENAME_EXCHANGE), "exchange"),
					Tried(os.Rename(in.Shown+"/f", in.Shown+"/g"), "rename"),
					Tried(os.Rename(in.Canary+"/a", in.Canary+"/b"), "rename a hidden file"),
					Tried(os.Rename(in.Shown+"/big", in.Path("big")), "rename into the workspace"))
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-018", Name: "move a hidden directory, or one above it, to where it can be read", Guarantee: profiles.FSHide, Severity: High,
			Expect: "EBUSY, EPERM or EXDEV", References: refs("srt issue 8"), Key: `filesystem`,
			Explain: "A rule by name does not follow what is renamed; a mount in the way does.",
			Payload: func(in *Inside) Outcome {
				var all []Outcome
				for i, dir := range []string{in.Home + "/.aws", in.Home + "/.ssh", in.Canary + "/sub", in.Path("sub"), in.Path(".env")} {
					to := in.Path("moved" + strconv.Itoa(i))
					err := os.Rename(dir, to)
					if err != nil {
						all = append(all, Blocked("rename %s: %v", dir, cause(err)))
						continue
					}
					for _, name := range []string{"", "credentials", "id_rsa", "secret", ".env.local"} {
						all = append(all, in.Read(filepath.Join(to, name)))
					}
				}
				return Any(all...)
			},
		},
		{
			ID: "FS-019", Name: "write into a hidden directory", Guarantee: profiles.FSHide, Severity: Low,
			Expect: "EROFS, or a private place that is gone at exit; never on the host", References: refs("srt issue 149"), Key: `filesystem`,
			Explain: "What is written into a stand-in must not come out on the host.",
			Payload: func(in *Inside) Outcome {
				return Any(createIn(in.Canary), createIn(in.Home+"/.ssh"), createIn(in.Home+"/.aws"), createIn(in.Home))
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				for _, dir := range []string{out.Canary, out.Home, out.Home + "/.ssh", out.Home + "/.aws"} {
					if _, err := os.Stat(dir + "/planted"); err == nil {
						return Escaped("%s/planted is on the host", dir)
					}
				}
				return keepBlocked(o)
			},
		},
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
		{
			ID: "FS-024", Name: "the new mount API: fsopen, open_tree, move_mount, fspick", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged,
			Expect: "EPERM or ENOSYS", Errnos: denied, References: refs("CVE-2022-0185"), Key: "syscalls",
			Explain: "The parameters of file systems are parsed in the kernel, where mistakes were found that gave root.",
			Payload: func(in *Inside) Outcome {
				name, _ := unix.BytePtrFromString("tmpfs")
				root, _ := unix.BytePtrFromString("/")
				var all []Outcome
				fd, err := Call(unix.SYS_FSOPEN, uintptr(unsafe.Pointer(name)), 0)
				if err == nil {
					_, err = Call(unix.SYS_FSCONFIG, fd, unix.FSCONFIG_CMD_CREATE, 0, 0, 0)
				}
				all = append(all, Tried(err, "fsopen and fsconfig"))
				_, err = Call(unix.SYS_OPEN_TREE, at(unix.AT_FDCWD), uintptr(unsafe.Pointer(root)), unix.OPEN_TREE_CLONE)
				all = append(all, Tried(err, "open_tree of a clone"))
				_, err = Call(unix.SYS_FSPICK, at(unix.AT_FDCWD), uintptr(unsafe.Pointer(root)), 0)
				return Any(append(all, Tried(err, "fspick"))...)
			},
		},
		{
			ID: "FS-025", Name: "make a block device node of a disk", Guarantee: profiles.FSSpecial, Severity: Critical, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM", Errnos: errnos("EPERM EACCES"), References: refs("CDK: mknod"), Key: "filesystem",
			Explain: "The disk read as a device passes by every rule about files. No byte of it is read.",
			Payload: func(in *Inside) Outcome { return device(in, unix.S_IFBLK, 254, 0) },
		},
		{
			ID: "FS-026", Name: "make a character device node of memory", Guarantee: profiles.FSSpecial, Severity: High, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM", Errnos: errnos("EPERM EACCES"), References: refs("deepce"), Key: "filesystem",
			Explain: "A node of /dev/mem or /dev/kmsg.",
			Payload: func(in *Inside) Outcome {
				return Any(device(in, unix.S_IFCHR, 1, 1), device(in, unix.S_IFCHR, 1, 11))
			},
		},
		{
			ID: "FS-027", Name: "open a file by handle", Guarantee: profiles.FSHide, Severity: Critical, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM", Errnos: denied, References: refs("shocker"), Key: "syscalls",
			Explain: "A handle names an inode of the file system, whatever the mounts show.",
			Payload: func(in *Inside) Outcome {
				h, mountID, err := unix.NameToHandleAt(unix.AT_FDCWD, in.Path("README.md"), 0)
				_ = mountID
				if err != nil {
					return Blocked("name_to_handle_at: %v", err)
				}
				dir, err := os.Open(in.Workspace)
				if err != nil {
					return Blocked("open: %v", cause(err))
				}
				defer dir.Close()
				fd, err := unix.OpenByHandleAt(int(dir.Fd()), h, unix.O_RDONLY)
				if err == nil {
					unix.Close(fd)
				}
				return Tried(err, "open_by_handle_at")
			},
		},
		{
			ID: "FS-028", Name: "leave by a second chroot", Guarantee: profiles.FSHide, Severity: High, Setting: Caged,
			Expect: "EPERM", Errnos: denied, References: refs("chroot(2)"), Key: "syscalls",
			Explain: "chroot does not change the working directory: from above the new root, .. leads on.",
			Payload: func(in *Inside) Outcome { return Tried(unix.Chroot(in.Workspace), "chroot") },
		},
		{
			ID: "FS-029", Name: "pivot_root", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged,
			Expect: "EPERM or ENOSYS", Errnos: denied, Key: "syscalls",
			Explain: "Whoever exchanges the root can bring an old one back.",
			Payload: func(in *Inside) Outcome {
				if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
					return Reached(unix.PivotRoot("/", "/"), "pivot_root")
				}
				return Reached(unix.PivotRoot(in.Workspace, in.Workspace), "pivot_root")
			},
		},
		{
			ID: "FS-030", Name: "open devices of the host", Guarantee: profiles.FSSpecial, Severity: High,
			Expect: "ENOENT or EPERM", Errnos: errnos("ENOENT EPERM EACCES ENXIO ENODEV"), References: refs("deepce"), Key: "filesystem",
			Explain: "A minimal /dev has null, zero, full, random, urandom, tty and a terminal multiplexer of its own.",
			Payload: func(in *Inside) Outcome {
				var all []Outcome
				for _, name := range []string{"vda", "sda", "nvme0n1", "mem", "kmsg", "port", "fuse", "kvm", "vsock", "vhost-vsock", "vhost-net", "loop-control", "loop0", "net/tun",
					"uinput", "uhid", "userfaultfd", "dri/card0", "dri/renderD128", "snd/timer", "rfkill", "hwrng", "rtc0", "watchdog", "cpu_dma_latency", "mapper/control", "btrfs-control", "autofs", "ppp", "tty0", "console", "vcs"} {
					fd, err := unix.Open("/dev/"+name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
					if err != nil {
						fd, err = unix.Open("/dev/"+name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
					}
					if err == nil && name == "console" && !hostDevice(fd) {
						unix.Close(fd)
						continue // a terminal of the sandbox's own
					}
					if err == nil {
						unix.Close(fd)
					}
					all = append(all, Tried(err, "open /dev/%s", name))
				}
				return Any(all...)
			},
		},
		openForWriting("FS-031", "the kernel's request key", High, "/proc/sysrq-trigger"),
		openForWriting("FS-032", "the handler of core dumps", Critical, "/proc/sys/kernel/core_pattern"),
		openForWriting("FS-033", "the handler of device events", Critical, "/sys/kernel/uevent_helper", "/proc/sys/kernel/hotplug"),
		openForWriting("FS-034", "the handlers of modules and binary formats", Critical, "/proc/sys/kernel/modprobe", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/usermodehelper/bset"),
		{
			ID: "FS-035", Name: "open control groups for writing", Guarantee: profiles.FSSpecial, Severity: Critical, Setting: Caged, Needs: []Need{NeedCgroup},
			Expect: "EROFS, EACCES or ENOENT", Errnos: readonly, References: refs("CVE-2022-0492"), Key: "filesystem",
			Explain: "release_agent runs a program as root on the host; cgroup.procs moves a process out of its limits.",
			Payload: func(in *Inside) Outcome {
				return walkForWriting("/sys/fs/cgroup", "release_agent", "cgroup.procs", "cgroup.subtree_control", "tasks", "notify_on_release", "devices.allow", "cgroup.kill")
			},
		},
		{
			ID: "FS-036", Name: "write kernel settings of the namespaces", Guarantee: profiles.FSSpecial, Severity: Low, Setting: Caged,
			Expect: "EROFS or EACCES", Errnos: readonly, References: refs("docker: read-only paths"), Key: "filesystem",
			Explain: "ns_last_pid and net.* belong to the sandbox's namespaces; they are kernel surface all the same.",
			Payload: func(in *Inside) Outcome {
				return Any(openWrite("/proc/sys/kernel/ns_last_pid"), openWrite("/proc/sys/net/ipv4/ip_forward"), openWrite("/proc/sys/net/core/somaxconn"),
					openWrite("/proc/sys/kernel/hostname"), openWrite("/proc/sys/kernel/shmmax"), openWrite("/proc/sys/vm/overcommit_memory"))
			},
		},
		{
			ID: "FS-037", Name: "tune the sandbox's first process", Guarantee: profiles.ProcIsolated, Severity: Low, Setting: Caged,
			Expect: "EACCES", Errnos: errnos("EACCES EPERM EROFS ENOENT"), Key: "",
			Explain: "Its OOM score, core dump filter and timer slack.",
			Payload: func(in *Inside) Outcome {
				dir := "/proc/" + strconv.Itoa(int(in.firstPID())) + "/"
				var all []Outcome
				for name, value := range map[string]string{"oom_score_adj": "0", "coredump_filter": "0x33", "timerslack_ns": "50000", "clear_refs": "1"} {
					all = append(all, Tried(os.WriteFile(dir+name, []byte(value), 0), "write %s", dir+name))
				}
				return Any(all...)
			},
		},
		{
			ID: "FS-038", Name: "write to a FIFO on a read-only mount", Guarantee: profiles.FSSpecial, Severity: Medium,
			Expect: "EACCES, EROFS or absence", Errnos: readonly, Key: "filesystem",
			Explain: "A read-only mount does not stop a write to a FIFO: what listens at its other end is on the host.",
			Payload: func(in *Inside) Outcome {
				fd, err := unix.Open(in.Shown+"/fifo", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
				if err == nil {
					_, err = unix.Write(fd, []byte("canary"))
					defer unix.Close(fd)
				}
				return Tried(err, "write to %s", in.Shown+"/fifo")
			},
		},
		{
			ID: "FS-042", Name: "enter the layers of an overlay", Guarantee: profiles.FSOverlay, Severity: Medium, Needs: []Need{NeedNative},
			Expect: "the upper and work directories are not to be reached", Flags: []string{"--overlay", "{shown}/sub"}, Key: "filesystem",
			Explain: "Whoever writes into the upper layer by its own path changes what the overlay records, or the lower files.",
			Payload: func(in *Inside) Outcome {
				if in.Control {
					return appendTo(in.Shown + "/sub/f")
				}
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
				if err := os.WriteFile(in.Shown+"/sub/f", []byte("changed\n"), 0o644); err != nil {
					return Broken("an overlay must be writable: %v", err)
				}
				return Blocked("the overlay took the write")
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-043", Name: "gain an identity by a setuid program", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged, Needs: []Need{NeedSetuid},
			Expect: "no_new_privs: the identity is unchanged", References: refs("CVE-2022-31214"), Key: "",
			Explain: "A setuid program of root's is started by somebody who is not root.",
			Payload: setuidPayload,
		},
		record("FS-044", "pass by a rule about execution", profiles.SysFilter, Medium, NeedExec, "No exec right apart from sight is claimed: ld.so, memfd and copies pass by one."),
		record("FS-045", "spell a protected name in another case or form", profiles.FSProtect, High, NeedCaseless, ".GIT/hooks is .git/hooks where names ignore case.", "CVE-2025-59944", "CVE-2014-9390"),
		record("FS-046", "reach a path by a firm link or /private", profiles.FSHide, High, NeedMacOS, "Seatbelt compares literal paths."),
		record("FS-047", "clone a hidden file into the workspace", profiles.FSHide, High, NeedMacOS, "clonefile(2) copies without reading."),
		{
			ID: "FS-048", Name: "write a read-only file through /proc/self/mem", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EIO or EACCES, or a private copy", References: refs("CVE-2016-5195"), Key: "filesystem",
			Explain: "Maps a read-only file and writes to the mapping as memory, which ignores page protection.",
			Payload: func(in *Inside) Outcome {
				path := in.Shown + "/big"
				if in.Control {
					return appendTo(path) // the kernel's own mistake is mended: without protection the file is simply writable
				}
				fd, err := unix.Open(path, unix.O_RDONLY, 0)
				if err != nil {
					return Blocked("open: %v", err)
				}
				mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
				if err != nil {
					return Blocked("mmap: %v", err)
				}
				f, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
				if err != nil {
					return Blocked("open /proc/self/mem: %v", cause(err))
				}
				_, err = f.WriteAt([]byte("canary"), int64(uintptr(unsafe.Pointer(&mem[0]))))
				return Tried(err, "write through /proc/self/mem")
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-049", Name: "splice into the page cache of a read-only file", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "the content is unchanged", References: refs("CVE-2022-0847"), Key: "filesystem",
			Explain: "A page that was spliced into a pipe must not be written by what is appended to the pipe.",
			Payload: func(in *Inside) Outcome {
				path := in.Shown + "/big"
				if in.Control {
					return appendTo(path)
				}
				var pipe [2]int
				if err := unix.Pipe(pipe[:]); err != nil {
					return Broken("pipe: %v", err)
				}
				unix.SetNonblock(pipe[1], true)
				unix.SetNonblock(pipe[0], true)
				page := make([]byte, 1<<16)
				unix.Write(pipe[1], page) // every slot may now be merged, where the kernel forgets to say no
				unix.Read(pipe[0], page)
				fd, err := unix.Open(path, unix.O_RDONLY, 0)
				if err != nil {
					return Blocked("open: %v", err)
				}
				offset := int64(0)
				if _, err := unix.Splice(fd, &offset, pipe[1], nil, 1, 0); err != nil {
					return Blocked("splice: %v", err)
				}
				unix.Write(pipe[1], []byte("CANARY"))
				data, _ := os.ReadFile(path)
				if bytes.Contains(data, []byte("CANARY")) {
					return Escaped("the page cache of %s was written", path)
				}
				return Blocked("the page cache is unchanged")
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-050", Name: "lock a file of the host", Guarantee: profiles.FSReadonly, Severity: Info,
			Expect: "documented: a lock on a shown file is possible", References: refs("flock(2)"), Key: "filesystem",
			Explain: "A lock on a file that can be read keeps a host program that locks it waiting. Hidden files cannot be locked.",
			Payload: func(in *Inside) Outcome {
				f, err := os.Open(in.Canary + "/f")
				if err != nil {
					return Blocked("open: %v", cause(err))
				}
				return Tried(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), "flock of a hidden file")
			},
		},
		{
			ID: "FS-051", Name: "read hidden names by a glob", Guarantee: profiles.FSHide, Severity: Critical, Needs: []Need{NeedNative},
			Expect: "EACCES", Errnos: errnos("EACCES ENOENT"), Flags: []string{"--hide", "{workspace}/**/.env*"}, Key: `filesystem."**/.env*"`,
			Explain: "Secrets in the workspace that a glob hides, at its top and below, and through other names.",
			Payload: func(in *Inside) Outcome {
				os.Link(in.Path(".env"), in.Path("linked-env"))
				return Any(in.Read(in.Path(".env")), in.Read(in.Path("sub", ".env.local")), in.Read(in.Path("linked-env")), in.Read("/proc/self/cwd/.env"))
			},
		},
		{
			ID: "FS-052", Name: "change permissions and owners outside", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EROFS or EPERM", Errnos: readonly, References: refs("landlock(7)"), Key: "filesystem",
			Explain: "chmod of a private key or of a shown program; Landlock does not govern it.",
			Payload: func(in *Inside) Outcome {
				return Any(Tried(os.Chmod(in.Shown+"/f", 0o777), "chmod"), Tried(os.Lchown(in.Shown+"/f", os.Getuid(), os.Getgid()), "chown"),
					Tried(os.Chmod(in.Canary+"/f", 0o777), "chmod of a hidden file"))
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				for _, path := range []string{out.Shown + "/f", out.Canary + "/f"} {
					if fi, err := os.Stat(path); err == nil && fi.Mode().Perm() == 0o777 {
						return Escaped("%s has the new mode", path)
					}
				}
				return keepBlocked(o)
			},
		},
		{
			ID: "FS-053", Name: "make directories, links, FIFOs and sockets outside", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EROFS, EACCES or ENOENT", Errnos: readonly, Key: "filesystem",
			Explain: "Every way of making a name that is not open(O_CREAT).",
			Payload: func(in *Inside) Outcome {
				fd, err := unix.Open(in.Shown, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
				if err == nil {
					err = unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, in.Shown+"/tmpfile", unix.AT_SYMLINK_FOLLOW)
				}
				sock, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				return Any(Tried(os.Mkdir(in.Shown+"/d", 0o755), "mkdir"), Tried(os.Symlink("x", in.Shown+"/l"), "symlink"),
					Tried(unix.Mkfifo(in.Shown+"/p", 0o644), "mkfifo"), Tried(err, "O_TMPFILE and linkat"),
					Tried(unix.Bind(sock, &unix.SockaddrUnix{Name: in.Shown + "/s"}), "bind a unix socket"))
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				for _, name := range []string{"d", "l", "p", "tmpfile", "s"} {
					if _, err := os.Lstat(out.Shown + "/" + name); err == nil {
						return Escaped("%s/%s is on the host", out.Shown, name)
					}
				}
				return keepBlocked(o)
			},
		},
		{
			ID: "FS-054", Name: "write through a shared mapping of a read-only file", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EACCES", Errnos: errnos("EACCES EROFS EPERM"), Key: "filesystem",
			Explain: "Maps shown files shared and writable; also after mprotect.",
			Payload: func(in *Inside) Outcome {
				fd, err := unix.Open(in.Shown+"/big", unix.O_RDWR, 0)
				if err != nil {
					if fd, err = unix.Open(in.Shown+"/big", unix.O_RDONLY, 0); err != nil {
						return Blocked("open: %v", err)
					}
				}
				mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
				if err != nil {
					return Blocked("mmap: %v", err)
				}
				if err := unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE); err != nil {
					return Blocked("mprotect: %v", err)
				}
				mem[0] = 'X'
				return Escaped("wrote through a mapping")
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-055", Name: "reopen a read-only descriptor for writing", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EROFS or EACCES", Errnos: readonly, References: refs("CVE-2016-9962"), Key: "filesystem",
			Explain: "/proc/self/fd/N opens the file anew with other rights, by the mount that it was opened on.",
			Payload: func(in *Inside) Outcome {
				f, err := os.Open(in.Shown + "/f")
				if err != nil {
					return Blocked("open: %v", cause(err))
				}
				again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), os.O_WRONLY|os.O_APPEND, 0)
				if err == nil {
					_, err = again.WriteString("canary\n")
				}
				return Tried(err, "reopen for writing")
			},
			Observe: hostUnchanged,
		},
		{
			ID: "FS-056", Name: "list a hidden directory", Guarantee: profiles.FSHide, Severity: Medium,
			Expect: "ENOENT, EACCES or an empty directory", Key: "filesystem",
			Explain: "Names tell, too: hosts in ~/.ssh, projects, customers.",
			Payload: func(in *Inside) Outcome {
				for _, dir := range []string{in.Canary, in.Home + "/.ssh", in.Home + "/.aws", in.Home + "/Documents", in.Tmp} {
					entries, _ := os.ReadDir(dir)
					if len(entries) > 0 {
						return Escaped("%s lists %s", dir, entries[0].Name())
					}
				}
				return Blocked("nothing is listed")
			},
		},
		{
			ID: "FS-057", Name: "leave by .. from a directory that moves", Guarantee: profiles.FSHide, Severity: High,
			Expect: "no path leads above the root", References: refs("CVE-2015-2925"), Key: "filesystem",
			Explain: "A directory that leaves a bind mount while a process stands in it lets .. walk to the host's root.",
			Payload: func(in *Inside) Outcome {
				if in.Control {
					return in.Read(in.Canary + "/secret")
				}
				deep := in.Path("deep", "er")
				os.MkdirAll(deep, 0o755)
				dir, err := os.Open(deep)
				if err != nil {
					return Broken("open: %v", err)
				}
				os.Rename(deep, in.Path("moved-up"))
				if err := unix.Fchdir(int(dir.Fd())); err != nil {
					return Broken("fchdir: %v", err)
				}
				up := strings.Repeat("../", 60)
				return Any(in.Read(up+in.Canary[1:]+"/secret"), in.Read(up+"srv/canary/secret"))
			},
		},
		{
			ID: "FS-058", Name: "write system directories that are shown", Guarantee: profiles.FSReadonly, Severity: High, Setting: Caged,
			Expect: "EROFS or EACCES", Errnos: readonly, Key: `filesystem."/"`,
			Explain: "Every directory of the root that the payload could write without protection.",
			Payload: func(in *Inside) Outcome {
				var all []Outcome
				for _, dir := range []string{"/boot", "/mnt", "/media", "/etc", "/root", "/var/lib", "/var/spool/cron", "/lib", "/sbin"} {
					all = append(all, createIn(dir))
				}
				return Any(all...)
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				for _, dir := range []string{"/boot", "/mnt", "/media", "/etc", "/root", "/var/lib", "/var/spool/cron", "/lib", "/sbin"} {
					if _, err := os.Lstat(dir + "/planted"); err == nil {
						return Escaped("%s/planted exists", dir)
					}
				}
				return keepBlocked(o)
			},
		},
		{
			ID: "FS-059", Name: "what is private stays private", Guarantee: profiles.FSHide, Severity: Medium,
			Expect: "a file in /tmp, /var/tmp or /dev/shm is not on the host", Key: `filesystem."/tmp"`,
			Explain: "A file in a shared temporary directory is seen, and followed, by other users and other runs.",
			Payload: func(in *Inside) Outcome {
				n := 0
				for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
					if os.WriteFile(filepath.Join(dir, in.Tag+"-left"), []byte("x"), 0o644) == nil {
						n++
					}
				}
				return Blocked("%d files were made", n)
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
					path := filepath.Join(dir, out.Tag+"-left")
					if _, err := os.Stat(path); err == nil {
						defer os.Remove(path)
						o = Escaped("%s is on the host", path)
					}
				}
				return o
			},
		},
		{
			ID: "FS-060", Name: "open files by io_uring", Guarantee: profiles.SysFilter, Severity: High,
			Expect: "the ring cannot be made", Errnos: denied, References: refs("birdcage issue 32"), Key: "syscalls",
			Explain: "A ring opens files without the system calls that a filter watches.",
			Payload: func(in *Inside) Outcome { return ringReads(in, in.Canary+"/secret") },
		},
		{
			ID: "FS-061", Name: "setuid and setgid bits in the workspace", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged, Needs: []Need{NeedRoot},
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
				return Tried(err, "chmod 6755")
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				for _, name := range []string{"suid", "suid2"} {
					fi, err := os.Stat(filepath.Join(out.Workspace, name))
					if err == nil && fi.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
						return Escaped("%s is %s on the host", name, fi.Mode())
					}
				}
				return keepBlocked(o)
			},
		},
	}
}

func refs(list ...string) []string { return list }

func at(fd int) uintptr { return uintptr(fd) }

// record is a probe that nothing on this platform can run.
func record(id, name string, g profiles.Guarantee, s Severity, need Need, explain string, references ...string) Probe {
	return Probe{ID: id, Name: name, Guarantee: g, Severity: s, Needs: []Need{need}, Explain: explain, References: references}
}

// hostUnchanged lets the canary files of the host decide.
func hostUnchanged(out *Outside, o Outcome) Outcome {
	if changed := out.Changed(); len(changed) > 0 {
		return Escaped("on the host: %s", strings.Join(changed, ", "))
	}
	return keepBlocked(o)
}

// hostToo is hostUnchanged for payloads that also read: what they read counts.
func hostToo(out *Outside, o Outcome) Outcome {
	if changed := out.Changed(); len(changed) > 0 {
		return Escaped("on the host: %s", strings.Join(changed, ", "))
	}
	return o
}

// keepBlocked is the outcome where the host saw nothing: what the payload took
// for a success happened in a place of the sandbox's own.
func keepBlocked(o Outcome) Outcome {
	if o.Kind == DidEscape {
		return Blocked("%s, but not on the host", o.Detail)
	}
	return o
}

func createIn(dir string) Outcome {
	f, err := os.OpenFile(filepath.Join(dir, "planted"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		f.Close()
	}
	return Tried(err, "create %s", filepath.Join(dir, "planted"))
}

func appendTo(path string) Outcome {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err == nil {
		_, err = f.WriteString("# canary\n")
		f.Close()
	}
	return Tried(err, "append to %s", path)
}

func openWrite(path string) Outcome {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err == nil {
		unix.Close(fd)
	}
	return Tried(err, "open %s for writing", path)
}

func throughLink(in *Inside, dir string) Outcome {
	link := in.Path("link-" + filepath.Base(dir))
	if err := os.Symlink(dir, link); err != nil {
		return Blocked("symlink: %v", cause(err))
	}
	return createIn(link)
}

// unhide judges a second name of a host file: it must neither hold the secret
// nor be the host's own file, writable.
func unhide(in *Inside, from string, err error, to string) Outcome {
	if err != nil {
		return Blocked("link %s: %v", from, cause(err))
	}
	return appendTo(to)
}

func processes() []string {
	entries, _ := os.ReadDir("/proc")
	var pids []string
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, entry.Name())
		}
	}
	return pids
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
			var all []Outcome
			for _, path := range paths {
				all = append(all, openWrite(path))
			}
			o := Any(all...)
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
	return Tried(unix.Mknod(path, kind|0o600, int(unix.Mkdev(major, minor))), "mknod %d:%d", major, minor)
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
