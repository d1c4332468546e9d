package escape

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

func infoProbes() []Probe {
	masked := errnos("ENOENT EACCES EPERM ENODEV EISDIR")
	return []Probe{
		{ID: "INF-001", Name: "addresses of the kernel", Guarantee: profiles.InfoKernel, Severity: Low, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "zero or absent", References: refs("docker: masked paths"), Key: "",
			Explain: "/proc/kallsyms, /proc/modules: where an exploit jumps to.",
			Payload: func(in *Inside) Outcome {
				data, err := os.ReadFile("/proc/kallsyms")
				blockedBy(err, "open")
				for i, line := range strings.SplitN(string(data), "\n", 200) {
					address, _, _ := strings.Cut(line, " ")
					if i > 20 && strings.Trim(address, "0") != "" {
						return Escaped("an address of the kernel is shown")
					}
				}
				return Blocked("%d bytes without addresses", len(data))
			}},
		{ID: "INF-002", Name: "the kernel's memory", Guarantee: profiles.InfoKernel, Severity: High, Setting: Caged, Needs: []Need{NeedRoot, "/proc/kcore on the host"},
			Expect: "masked", Errnos: masked, References: refs("docker: masked paths"), Explain: "/proc/kcore is all of memory.",
			Payload: func(in *Inside) Outcome { return readable("/proc/kcore") }},
		{ID: "INF-003", Name: "the user's keys by name", Guarantee: profiles.InfoKernel, Severity: Medium, Setting: Caged,
			Expect: "masked", Errnos: masked, References: refs("docker: masked paths"), Explain: "Descriptions and sizes of keys of the host's user.",
			Payload: func(in *Inside) Outcome {
				if in.Control { // there may be none yet
					unix.AddKey("user", in.Tag, []byte("canary"), unix.KEY_SPEC_PROCESS_KEYRING)
				}
				return Any(readable("/proc/keys"), readable("/proc/key-users"))
			}},
		reads("INF-004", "timers, interrupts and schedules", Low, "Which drivers there are, what the host is doing.", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats", "/proc/interrupts", "/proc/kpagecount", "/proc/kpageflags", "/proc/slabinfo", "/proc/vmallocinfo", "/proc/pagetypeinfo"),
		reads("INF-005", "firmware, power and buses", Low, "Power readings tell what another process computes.", "/sys/firmware/acpi/tables/DSDT", "/sys/firmware/memmap/0/start", "/proc/acpi", "/proc/scsi/scsi", "/sys/devices/virtual/powercap/intel-rapl/enabled", "/sys/class/powercap/intel-rapl:0/energy_uj", "/sys/firmware/dmi/entries/0-0/type", "/proc/asound/cards"),
		{ID: "INF-006", Name: "the machine's identity", Guarantee: profiles.InfoHost, Severity: Low, Setting: Caged,
			Expect: "machine-id and host name are made up, serial numbers absent", Key: "",
			Explain: "machine-id, host name, serial numbers and hardware addresses tell machines apart.",
			Payload: func(in *Inside) Outcome {
				if id, err := os.ReadFile("/etc/machine-id"); err == nil && in.Machine != "" && strings.TrimSpace(string(id)) == in.Machine {
					return Escaped("the machine-id is the host's")
				}
				if name, _ := os.Hostname(); name == in.HostName {
					return Escaped("the host name is the host's: %s", name)
				}
				list, _ := net.Interfaces()
				for _, i := range list {
					if len(i.HardwareAddr) > 0 {
						return Escaped("a hardware address: %s", i.HardwareAddr)
					}
				}
				for _, path := range []string{"/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/product_serial", "/sys/class/dmi/id/board_serial", "/sys/class/dmi/id/chassis_serial"} {
					if data, err := os.ReadFile(path); err == nil && len(strings.TrimSpace(string(data))) > 0 {
						return Escaped("%s is shown", path)
					}
				}
				return Blocked("identity is made up")
			}},
		{ID: "INF-007", Name: "paths of the host in the table of mounts", Guarantee: profiles.InfoHost, Severity: Low,
			Gap:    "the mount table names the host",
			Expect: "no unrelated host path", Key: "",
			Explain: "/proc/self/mountinfo shows the root of each mount within its file system.",
			Payload: func(in *Inside) Outcome {
				data, err := os.ReadFile("/proc/self/mountinfo")
				blockedBy(err, "open")
				if in.Control {
					return Escaped("the host's own table, %d bytes", len(data))
				}
				for line := range strings.Lines(string(data)) {
					for i, field := range strings.Fields(line) {
						const at = 4 // where it is mounted: in a shown directory the name of what is hidden stands
						for _, path := range []string{in.Canary, in.Tmp, "upperdir=", "workdir="} {
							if i != at && strings.Contains(field, path) {
								return Escaped("%s is named", path)
							}
						}
					}
				}
				return Blocked("%d bytes name no hidden path", len(data))
			}},
		reads("INF-008", "the kernel's command line and configuration", Low, "Which mitigations are off.", "/proc/cmdline", "/proc/config.gz", "/boot/config-canary"),
		{ID: "INF-009", Name: "the host's table of sockets", Guarantee: profiles.NetAllowlist, Severity: Medium,
			Expect: "its own only", Key: "",
			Explain: "/proc/net lists ports, peers and unix sockets of the namespace.",
			Payload: func(in *Inside) Outcome {
				port := fmt.Sprintf(":%04X", in.TCP4)
				for _, name := range []string{"tcp", "tcp6", "unix", "udp"} {
					data, _ := os.ReadFile("/proc/net/" + name)
					if strings.Contains(string(data), port+" ") || strings.Contains(string(data), in.Abstract) {
						return Escaped("/proc/net/%s lists the canary", name)
					}
				}
				return Blocked("the canary is not listed")
			}},
		{ID: "INF-010", Name: "other people's homes", Guarantee: profiles.FSHide, Severity: Medium, Setting: Caged,
			Expect: "absent", Key: "filesystem",
			Explain: "/home and /root list accounts; what is readable in them is read.",
			Payload: func(in *Inside) Outcome {
				data, err := os.ReadFile("/home/other/secret")
				if in.Leaks(data) {
					return Escaped("another home was read")
				}
				entries, _ := os.ReadDir("/home")
				for _, entry := range entries {
					if entry.Name() == "other" {
						return Escaped("/home lists other accounts")
					}
				}
				if data, e := os.ReadFile("/root/secret"); e == nil && in.Leaks(data) {
					return Escaped("root's home was read")
				}
				return Blocked("%v", cause(err))
			},
			Drive: func(d *Drive) Outcome {
				if d.Caged {
					os.Mkdir("/home/other", 0o755)
					os.WriteFile("/home/other/secret", []byte(d.secret), 0o644)
					os.WriteFile("/root/secret", []byte(d.secret), 0o644)
				}
				return d.Run()
			}},
		{ID: "INF-011", Name: "credentials in the home", Guarantee: profiles.FSHide, Severity: Critical,
			Expect: "content never read", References: refs("CDK: sensitive files"), Key: `filesystem."~"`,
			Explain: "Thirty well-known places: cloud, git, ssh, registries, browsers, agents, key rings.",
			Payload: func(in *Inside) Outcome {
				return each(homeSecrets, func(name string) Outcome { return in.Read(filepath.Join(in.Home, name)) })
			}},
		record("INF-012", "the service account of a pod", profiles.FSHide, High, NeedK8s, "/var/run/secrets/kubernetes.io holds a token."),
		{ID: "INF-013", Name: "histories of shells and editors", Guarantee: profiles.FSHide, Severity: High,
			Expect: "absent", Errnos: masked, Key: `filesystem."~"`,
			Explain: "Commands with passwords in them.",
			Payload: func(in *Inside) Outcome {
				return each([]string{".bash_history", ".zsh_history", ".python_history", ".viminfo", ".lesshst", ".psql_history"}, func(name string) Outcome { return in.Read(filepath.Join(in.Home, name)) })
			}},
		record("INF-014", "processes by system call", profiles.ProcIsolated, Medium, NeedMacOS, "ps without /proc."),
		record("INF-015", "the keychain", profiles.FSHide, Critical, NeedMacOS, "security find-internet-password."),
		{ID: "INF-016", Name: "a crash of the launcher tells secrets", Guarantee: profiles.LaunchIntegrity, Severity: Low, Needs: []Need{NeedNative},
			Expect: "no secret in what it prints", References: refs("GOTRACEBACK"), Key: "",
			Explain: "The launcher, whose environment holds secrets, is made to abort, with the most talkative setting of its runtime: what it prints ends up in logs.",
			Payload: waitOrTell, Drive: crashed},
		{ID: "INF-017", Name: "what the launcher itself tells", Guarantee: profiles.EnvScrub, Severity: Info, Needs: []Need{NeedNative},
			Expect: "no secret, no path of the host in its variables", Key: "environment",
			Explain: "Variables of the launcher's own, such as proxies and credentials for them.",
			Payload: func(in *Inside) Outcome {
				for _, entry := range os.Environ() {
					if in.Control || strings.HasPrefix(entry, "PCCRUN_") && (strings.Contains(entry, in.Canary) || strings.Contains(entry, in.Tmp)) {
						return Escaped("%s", entry[:min(len(entry), 60)])
					}
				}
				return Blocked("nothing of the host")
			}},
		{ID: "INF-018", Name: "what other users do", Guarantee: profiles.ProcIsolated, Severity: Medium, Setting: Caged,
			Expect: "absent", Errnos: masked, Key: "",
			Explain: "utmp, wtmp, lastlog and the logs of the system.",
			Payload: func(in *Inside) Outcome { return readable("/run/utmp") },
			Drive: func(d *Drive) Outcome {
				if d.Caged {
					os.WriteFile("/run/utmp", []byte("canary"), 0o644)
				}
				return d.Run()
			}},
		reads("INF-020", "types of the kernel", Info, "BTF makes an exploit fit; tracing tools need it.", "/sys/kernel/btf/vmlinux", "/sys/kernel/notes", "/sys/kernel/vmcoreinfo", "/proc/softirqs", "/proc/schedstat"),
		{ID: "INF-019", Name: "load and memory of the host", Guarantee: profiles.InfoHost, Severity: Info, Needs: []Need{"a policy that hides load"},
			Expect: "documented: /proc/loadavg, meminfo and stat are the host's", Explain: "They carry a side channel of low width; tools need them."},
	}
}

// reads is a probe of files of the kernel's that must be masked. Its control
// needs at least one of them to be readable.
func reads(id, name string, s Severity, why string, paths ...string) Probe {
	return Probe{
		ID: id, Name: name, Guarantee: profiles.InfoKernel, Severity: s, Setting: Caged, Explain: why, References: refs("docker: masked paths"),
		Expect: "masked or absent", Errnos: errnos("ENOENT EACCES EPERM ENODEV EISDIR ENOTDIR"),
		Payload: func(in *Inside) Outcome {
			return each(paths, func(path string) Outcome {
				o := readable(path)
				if o.Kind == DidEscape && !in.Control && path == "/proc/cmdline" && !in.isHosts(path) {
					o = Blocked("%s is made up", path)
				}
				return o
			})
		},
	}
}

// isHosts reports whether a text of the kernel's is the host's.
func (in *Inside) isHosts(path string) bool {
	text, _ := os.ReadFile(path)
	sum := sha256.Sum256(text)
	return in.CommandLine == hex.EncodeToString(sum[:])
}

func readable(path string) Outcome {
	f, err := os.Open(path)
	if err != nil {
		return Blocked("open %s: %v", path, cause(err))
	}
	defer f.Close()
	buf := make([]byte, 64)
	n, err := f.Read(buf)
	if n > 0 {
		return Escaped("%s: %.30q", path, buf[:n])
	}
	return Blocked("read %s: %d bytes, %v", path, n, err)
}

// syncProbes are records: the file synchronisation of remote providers has
// tests of its own, which need no sandbox; against a provider they need one.
func syncProbes() []Probe {
	up, down := profiles.SyncUp, profiles.SyncDown
	return []Probe{
		record("SYN-001", "a member with ..", down, Critical, NeedRemote, "An archive from the remote side names ../x.", "CVE-2019-1002101"),
		record("SYN-002", "an absolute member", down, Critical, NeedRemote, "An archive names /abs.", "CVE-2007-4559"),
		record("SYN-004", "a chain of links", down, Critical, NeedRemote, "a -> .., b -> a/out, b/x.", "CVE-2025-4517"),
		record("SYN-005", "a hard link to the outside", down, Critical, NeedRemote, "LNK ../out.", "CVE-2019-11251"),
		record("SYN-006", "a link, then a file of the same name", down, Critical, NeedRemote, "x -> ../out/e, then x as a file."),
		record("SYN-007", "hooks and agent configuration from the remote side", down, Critical, NeedRemote, "What protect forbids must not come by download."),
		record("SYN-008", "protected names in other spellings", down, High, NeedRemote, ".GIT, .g(ZWJ)it, git~1, trailing dots.", "CVE-2014-9390", "CVE-2021-21300"),
		record("SYN-009", "devices, FIFOs and sockets", down, Medium, NeedRemote, "Members that are no files."),
		record("SYN-010", "modes, owners and attributes", down, High, NeedRemote, "6755, foreign owners, xattrs."),
		record("SYN-011", "sizes that lie", down, High, NeedRemote, "Huge, sparse, negative; millions of members; a bomb."),
		record("SYN-012", "extended headers that override", down, High, NeedRemote, "PAX path=../x, GNU long names, duplicates."),
		record("SYN-013", "names that differ in case only", down, High, NeedRemote, "README and readme, one of them a link.", "CVE-2021-21300"),
		record("SYN-014", "a file that changed here meanwhile", down, Medium, NeedRemote, "No silent overwrite."),
		record("SYN-016", "secrets in the upload", up, High, NeedRemote, ".env, .npmrc, tokens in .git/config."),
		record("SYN-017", "a name that a shell would run", down, Critical, NeedRemote, "$(touch x).", "CVE-2026-41567"),
		record("SYN-018", "a decompressor out of PATH", down, High, NeedRemote, "xz or unpigz in the workspace.", "CVE-2026-41567"),
		record("SYN-019", "a tree that changes while it is sent", down, High, NeedRemote, "Checks are on received bytes.", "CVE-2018-15664"),
		record("SYN-020", "deletions that spread", down, High, NeedRemote, "The remote side deletes all."),
		record("SYN-021", "the identity of the server", up, High, NeedRemote, "A wrong certificate; the provider's token inside."),
		record("SYN-022", "sequences in remote output", profiles.TTYOutput, Medium, NeedRemote, "Filtered as local output is."),
		record("SYN-023", "a tunnel back to this machine", profiles.NetAllowlist, High, NeedRemote, "None by default."),
		record("SYN-024", "a machine that is left running", profiles.ProcNoSurvivors, Medium, NeedRemote, "A time to live, and gc."),
	}
}

// waitOrTell waits; the control is a program that tells its environment when it
// crashes.
func waitOrTell(in *Inside) Outcome {
	abort := make(chan os.Signal, 1)
	if in.Control {
		signal.Notify(abort, unix.SIGABRT, unix.SIGSEGV)
	}
	must(os.WriteFile(in.Path("payload-runs"), nil, 0o644))
	select {
	case <-abort:
		os.Stdout.WriteString(strings.Join(os.Environ(), "\n") + "\n")
	case <-in.ctx.Done():
	}
	return Blocked("waited")
}

func crashed(d *Drive) Outcome {
	d.extra = []string{"GOTRACEBACK=system"}
	for _, s := range []unix.Signal{unix.SIGABRT, unix.SIGSEGV} {
		o := d.whileItRuns(func(cmd *exec.Cmd, ended <-chan *Run) Outcome {
			cmd.Process.Signal(s)
			run := <-ended
			switch {
			case bytes.Contains(run.Output, []byte(d.secret)):
				return Escaped("%v: the secret is in what came out", run.State)
			case run.Late:
				return Broken("%s did not end it", unix.SignalName(s))
			}
			return Blocked("%v, %d bytes came out", run.State, run.Total)
		})
		if o.Kind != DidBlock || s == unix.SIGSEGV {
			return o
		}
		os.Remove(d.Workspace + "/payload-runs")
	}
	panic("BUG: no signal")
}
