package escape

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

func ipcProbes() []Probe {
	gone := errnos("ECONNREFUSED EPERM EACCES ENOENT ENOSYS EAFNOSUPPORT")
	return []Probe{
		{ID: "IPC-001", Name: "an abstract unix socket of the host", Guarantee: profiles.IPCUnix, Severity: Critical,
			Expect: "ECONNREFUSED or EPERM", Errnos: gone, References: refs("CVE-2020-15257"), Key: "network.sockets",
			Explain: "Abstract names belong to the network namespace, not to the file system: no mount hides them.",
			Payload: func(in *Inside) Outcome { return in.Dial("unix", in.Abstract) }, Observe: hitDecides("abstract")},
		{ID: "IPC-002", Name: "a datagram to an abstract socket", Guarantee: profiles.IPCUnix, Severity: High,
			Expect: "ECONNREFUSED or EPERM", Errnos: gone, References: refs("landlock(7)"), Key: "network.sockets",
			Explain: "sendto needs no connect.",
			Payload: func(in *Inside) Outcome { return sendDatagram(in.AbstractDgram) }, Observe: hitDecides("abstract dgram")},
		{ID: "IPC-003", Name: "a unix socket in a directory that is shown", Guarantee: profiles.IPCUnix, Severity: Critical,
			Expect: "ECONNREFUSED, EACCES or absence", Errnos: gone, Key: "network.sockets",
			Explain: "A read-only mount does not stop connect(): what listens is the host's.",
			Payload: func(in *Inside) Outcome { return in.Dial("unix", in.ShownSocket) }, Observe: hitDecides("shown socket")},
		{ID: "IPC-004", Name: "a unix socket in a hidden place", Guarantee: profiles.IPCUnix, Severity: Critical,
			Expect: "ENOENT", Errnos: gone, Key: "network.sockets",
			Explain: "By its path, through /proc and through a link in the workspace.",
			Payload: func(in *Inside) Outcome {
				os.Symlink(in.Socket, in.Path("sock"))
				return Any(in.Dial("unix", in.Socket), in.Dial("unix", in.Path("sock")), in.Dial("unix", "/proc/self/root"+in.Socket), sendDatagram(in.Canary+"/dgram"))
			},
			Observe: hitDecides("socket", "dgram")},
		{ID: "IPC-005", Name: "System V shared memory, queues and semaphores of the host", Guarantee: profiles.IPCSysV, Severity: High,
			Expect: "EINVAL, EIDRM or ENOENT", Errnos: errnos("EINVAL ENOENT EACCES EPERM ENOSYS"), References: refs("ipc_namespaces(7)"),
			Explain: "Keys are one space for the whole machine without a namespace.",
			Payload: func(in *Inside) Outcome {
				var all []Outcome
				id, err := unix.SysvShmGet(in.ShmKey, 4096, 0)
				if err == nil {
					var mem []byte
					if mem, err = unix.SysvShmAttach(id, 0, unix.SHM_RDONLY); err == nil && in.Leaks(mem[:64]) {
						all = append(all, Escaped("the shared memory of the host holds the secret"))
					}
				}
				all = append(all, Attempt(err, "shmget and shmat"))
				return Any(append(all, Attempt(errOf(Call(unix.SYS_MSGGET, uintptr(in.ShmKey), 0)), "msgget"),
					Attempt(errOf(Call(unix.SYS_SEMGET, uintptr(in.ShmKey), 1, 0)), "semget"))...)
			}},
		{ID: "IPC-006", Name: "POSIX shared memory and message queues of the host", Guarantee: profiles.IPCSysV, Severity: High,
			Expect: "ENOENT", Errnos: errnos("ENOENT EACCES ENOSYS EPERM"), References: refs("ipc_namespaces(7)"),
			Explain: "Files in /dev/shm and names of queues.",
			Payload: func(in *Inside) Outcome {
				name, _ := unix.BytePtrFromString(in.Tag)
				_, err := Call(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDONLY, 0, 0)
				return Any(in.Read("/dev/shm/"+in.Tag), Attempt(err, "mq_open"))
			}},
		{ID: "IPC-007", Name: "well-known sockets", Guarantee: profiles.IPCUnix, Severity: Critical, Setting: Caged,
			Expect: "absent", Errnos: gone, References: refs("CDK", "deepce"), Key: "network.sockets",
			Explain: "Container engines, buses, displays, agents: each of them starts programs outside or holds keys.",
			Payload: func(in *Inside) Outcome {
				return each(wellKnownSockets(os.Getuid()), func(path string) Outcome { return in.Dial("unix", path) })
			},
			Drive: func(d *Drive) Outcome {
				return d.besideListeners("well-known socket", wellKnownSockets(d.job.UID)...)
			},
			Observe: hitDecides("well-known socket")},
		{ID: "IPC-008", Name: "sockets that variables point to", Guarantee: profiles.EnvScrub, Severity: Critical,
			Expect: "unset, and unreachable", References: refs("tmux send-keys"), Key: "environment.pass",
			Explain: "SSH_AUTH_SOCK, DBUS_SESSION_BUS_ADDRESS, DOCKER_HOST, VSCODE_IPC_HOOK_CLI, TMUX, WAYLAND_DISPLAY.",
			Payload: func(in *Inside) Outcome {
				for _, name := range []string{"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "VSCODE_IPC_HOOK_CLI", "TMUX", "WAYLAND_DISPLAY", "GPG_AGENT_INFO"} {
					if value := os.Getenv(name); strings.Contains(value, "agent.sock") {
						return Escaped("%s is %s", name, value)
					}
				}
				return in.Dial("unix", in.Home+"/agent.sock")
			},
			Observe: hitDecides("agent socket")},
		{ID: "IPC-009", Name: "a container engine by TCP", Guarantee: profiles.NetAllowlist, Severity: Critical, Setting: Caged,
			Expect: "as NET-003", References: refs("CVE-2025-9074"), Key: "network",
			Explain: "Port 2375 gives root on the host to whoever connects.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Dial("tcp4", in.Peers["evil.test"]+":2375"), in.Dial("tcp4", internetAddress+":2375"))
			},
			Observe: hitDecides("tcp ")},
		{ID: "IPC-010", Name: "socketpair works", Guarantee: profiles.IPCUnix, Severity: Info, Needs: []Need{NeedDesktop},
			Expect: "works", References: refs("codex: AF_UNIX test"), Explain: "Not an escape; KS-040 tries it.", Key: "syscalls"},
		{ID: "IPC-011", Name: "descriptors that were left open", Guarantee: profiles.LaunchIntegrity, Severity: Critical, Setting: Leaky,
			Expect: "closed, unless the user passed them", References: refs("CVE-2024-21626"), Key: "--pass-fd",
			Explain: "A directory, a file and a socket of the host's as descriptors 3 to 6.",
			Payload: func(in *Inside) Outcome {
				for fd := 3; fd < 64; fd++ {
					var st unix.Stat_t
					if unix.Fstat(fd, &st) != nil {
						continue
					}
					n, buf := 0, make([]byte, 256)
					switch st.Mode & unix.S_IFMT {
					case unix.S_IFDIR:
						for _, name := range []string{"secret", in.Canary[1:] + "/secret"} {
							if inner, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
								more, _ := unix.Read(inner, buf[n:])
								n += max(more, 0)
							}
						}
					case unix.S_IFREG:
						n, _ = unix.Pread(fd, buf, 0)
					case unix.S_IFSOCK:
						n, _, _ = unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
					}
					if in.Leaks(buf[:max(n, 0)]) {
						return Escaped("descriptor %d gives the secret: mode %o", fd, st.Mode)
					}
				}
				return Blocked("no descriptor of the host's is open")
			}},
		{ID: "IPC-012", Name: "replace the socket of the launcher's own proxy", Guarantee: profiles.NetAllowlist, Severity: High, Setting: Caged | Proxy, Flags: allowTest,
			Expect: "the socket is held, not looked up", References: refs("srt: relay pin test"), Key: "network",
			Explain: "A bridge that is found by its path each time can be replaced by the payload's own, which others then trust. Here the payload tries the bridge's neighbours.",
			Control: func(in *Inside) Outcome { return in.viaProxy("CONNECT", "evil.test:443") },
			Payload: func(in *Inside) Outcome {
				var all []Outcome
				filepath.WalkDir("/run", func(path string, d os.DirEntry, err error) error {
					if err == nil && d.Type()&os.ModeSocket != 0 {
						all = append(all, in.Dial("unix", path), Attempt(os.Remove(path), "unlink %s", path))
					}
					return nil
				})
				return Any(append(all, Blocked("no socket of a proxy is in sight"))...)
			}},
		{ID: "IPC-013", Name: "sockets to the hypervisor", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged,
			Expect: "EAFNOSUPPORT or EPERM", Errnos: errnos("EPERM EAFNOSUPPORT ENOSYS EACCES"), References: refs("vsock(7)"), Key: "syscalls",
			Explain: "AF_VSOCK knows no network namespace: it leads to the hypervisor and to other machines' agents.",
			Payload: func(*Inside) Outcome { return trySocket(unix.AF_VSOCK, unix.SOCK_STREAM, 0, "AF_VSOCK") }},
		{ID: "IPC-014", Name: "start a unit on the bus", Guarantee: profiles.IPCUnix, Severity: Critical, Setting: Caged,
			Expect: "no bus", Errnos: gone, References: refs("CVE-2021-21261"), Key: "network.sockets",
			Explain: "StartTransientUnit on the user's bus runs a program outside.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Dial("unix", "/run/dbus/system_bus_socket"), in.Dial("unix", runtimeDir(os.Getuid())+"/bus"), in.Dial("unix", runtimeDir(os.Getuid())+"/systemd/private"))
			},
			Drive: func(d *Drive) Outcome {
				return d.besideListeners("bus", "/run/dbus/system_bus_socket", runtimeDir(d.job.UID)+"/bus", runtimeDir(0)+"/bus")
			},
			Observe: hitDecides("bus")},
		record("IPC-015", "services of macOS", profiles.IPCUnix, Critical, NeedMacOS, "launchd, the pasteboard, SecurityServer, AppleEvents."),
		record("IPC-016", "launch agents of macOS", profiles.IPCUnix, Critical, NeedMacOS, "launchctl and ~/Library/LaunchAgents."),
		{ID: "IPC-017", Name: "the clipboard", Guarantee: profiles.IPCUnix, Severity: Medium, Setting: Caged,
			Expect: "no display", Errnos: gone, Key: "network.sockets",
			Explain: "X11's socket is abstract as well as a file: whoever reaches it reads the clipboard and the keyboard.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Dial("unix", "@/tmp/.X11-unix/X77"), in.Dial("unix", "/tmp/.X11-unix/X77"))
			},
			Drive: func(d *Drive) Outcome {
				return d.besideListeners("display", "@/tmp/.X11-unix/X77", "/tmp/.X11-unix/X77")
			},
			Observe: hitDecides("display")},
		{ID: "IPC-018", Name: "watch what happens to a hidden file", Guarantee: profiles.FSHide, Severity: Low,
			Expect: "ENOENT or EACCES", Errnos: errnos("ENOENT EACCES"), References: refs("inotify(7)"), Key: "filesystem",
			Explain: "inotify on a file tells when the host reads and writes it.",
			Payload: func(in *Inside) Outcome {
				fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
				blockedBy(err, "inotify_init")
				defer unix.Close(fd)
				return Attempt(errOf(unix.InotifyAddWatch(fd, in.Canary+"/f", unix.IN_ALL_EVENTS)), "watch %s", in.Canary+"/f")
			}},
		{ID: "IPC-019", Name: "keys of the host's keyring", Guarantee: profiles.SysFilter, Severity: High,
			Expect: "EPERM, ENOSYS or ENOKEY", References: refs("keyrings(7)"), Key: "syscalls",
			Explain: "A key that the user's session holds, found by its description.",
			Drive:   driveKeyring,
			Payload: func(in *Inside) Outcome {
				id, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", in.Tag, 0)
				blockedBy(err, "search")
				buf := make([]byte, 64)
				n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, buf, 0)
				if in.Leaks(buf[:min(max(n, 0), len(buf))]) {
					return Escaped("the key of the host was read")
				}
				return Blocked("read: %v", err)
			}},
	}
}

func sendDatagram(address string) Outcome {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Blocked("socket: %v", err)
	}
	defer unix.Close(fd)
	return Attempt(unix.Sendto(fd, []byte("canary"), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: address}), "send to %s", address)
}

// besideListeners is Run while the host, in a cage with directories of its own, listens at some sockets.
func (d *Drive) besideListeners(name string, paths ...string) Outcome {
	for _, path := range paths {
		if !d.Caged {
			break
		}
		os.MkdirAll(filepath.Dir(strings.TrimPrefix(path, "@")), 0o755)
		if l, err := net.Listen("unix", path); err == nil {
			os.Chmod(path, 0o777)
			d.answer(l, name)
		}
	}
	return d.Run()
}

func runtimeDir(uid int) string { return "/run/user/" + itoa(uid) }

func wellKnownSockets(uid int) []string {
	dir := runtimeDir(uid)
	return []string{
		"/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock", "/run/dbus/system_bus_socket",
		"/run/snapd.socket", "/run/systemd/private", "/run/libvirt/libvirt-sock", "/run/lxd.socket", "/run/uuidd/request",
		dir + "/bus", dir + "/podman/podman.sock", dir + "/docker.sock", dir + "/wayland-0", dir + "/pipewire-0", dir + "/gnupg/S.gpg-agent", dir + "/keyring/ssh", dir + "/vscode-ipc-canary.sock",
		"/tmp/.X11-unix/X99", "/tmp/tmux-" + itoa(uid) + "/default",
	}
}

// driveKeyring gives the launcher a session keyring with a key in it. Keyrings
// belong to threads: the launcher is started by the one that has it.
func driveKeyring(d *Drive) Outcome {
	o := make(chan Outcome, 1)
	go func() {
		runtime.LockOSThread()
		_, err := unix.KeyctlJoinSessionKeyring("canary")
		var id int
		if err == nil {
			id, err = unix.AddKey("user", d.Tag, []byte(d.secret), unix.KEY_SPEC_SESSION_KEYRING)
		}
		if err != nil {
			o <- Needing("a kernel with keyrings")
			return
		}
		d.Key = int32(id)
		o <- d.Run()
	}()
	return <-o
}
