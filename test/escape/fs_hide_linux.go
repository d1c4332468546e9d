package escape

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// hideProbes try to read what is not shown.
func hideProbes() []Probe {
	hidden := errnos("ENOENT EACCES")
	denied := errnos("EPERM ENOSYS")
	return []Probe{
		{ID: "FS-001", Name: "read a host secret outside the workspace", Guarantee: profiles.FSHide, Severity: Critical,
			Expect: "ENOENT or EACCES", Errnos: hidden, References: refs("CVE-2025-54794"), Key: `filesystem`,
			Explain: "Opens a file that the policy does not show. Whatever reads it can send it away or commit it.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Read(in.Canary+"/secret"), in.Read(in.Canary+"/sub/secret"), in.Read(in.Tmp+"/secret"))
			}},
		{ID: "FS-005", Name: "read a hidden file through a symbolic link", Guarantee: profiles.FSHide, Severity: High,
			Expect: "the content is never read", Errnos: hidden, References: refs("CVE-2026-25724", "CVE-2025-59829"), Key: `filesystem`,
			Explain: "A link in the workspace to a key in the home; one was there before the start, one is made now.",
			Payload: func(in *Inside) Outcome {
				os.Symlink(in.Home+"/.ssh/id_rsa", in.Path("key"))
				return Any(in.Read(in.Path("link-to-secret")), in.Read(in.Path("key")))
			}},
		{ID: "FS-006", Name: "reach the host's root through /proc/PID/root and cwd", Guarantee: profiles.FSHide, Severity: Critical,
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
			}},
		{ID: "FS-007", Name: "write the path of a hidden file differently", Guarantee: profiles.FSHide, Severity: High,
			Expect: "the same as for the plain path", Errnos: hidden, References: refs("CVE-2025-54794"), Key: `filesystem`,
			Explain: "A check of path strings misses //, /./, .., /proc/self/root and /proc/self/cwd; the kernel does not.",
			Payload: func(in *Inside) Outcome {
				up := strings.Repeat("../", 40)
				dir, p := in.Canary, in.Canary+"/secret"
				return Any(in.Read("/proc/self/root"+p), in.Read("/"+p), in.Read("/."+p), in.Read(dir+"/./secret"), in.Read(dir+"/sub/../secret"),
					in.Read("/proc/self/cwd/"+up+p), in.Read("/proc/thread-self/root"+p), in.Read(up+p[1:]), in.Read("/dev/fd/../root"+p))
			}},
		{ID: "FS-008", Name: "a neighbour whose name begins as the workspace's", Guarantee: profiles.FSHide, Severity: High,
			Expect: "ENOENT or EACCES", Errnos: hidden, References: refs("CVE-2025-54794"), Key: `filesystem`,
			Explain: "A rule for /ws that is compared as a prefix lets /ws-evil and /ws2 through.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Read(in.Workspace+"-evil/secret"), in.Read(in.Workspace+"2/secret"))
			}},
		{ID: "FS-009", Name: "read /etc/shadow", Guarantee: profiles.FSHide, Severity: High, Setting: Caged,
			Expect: "EACCES or ENOENT", Errnos: hidden, References: refs("deepce"), Needs: []Need{NeedRoot}, Key: `filesystem`,
			Explain: "Root's ownership of host files must not read what the invoking policy did not show.",
			Payload: func(in *Inside) Outcome {
				data, err := os.ReadFile("/etc/shadow")
				return Attempt(err, "read /etc/shadow, %d bytes", len(data))
			}},
		{ID: "FS-018", Name: "move a hidden directory, or one above it, to where it can be read", Guarantee: profiles.FSHide, Severity: High,
			Expect: "EBUSY, EPERM or EXDEV", References: refs("srt issue 8"), Key: `filesystem`,
			Explain: "A rule by name does not follow what is renamed; a mount does.",
			Payload: func(in *Inside) Outcome {
				return each([]string{in.Home + "/.aws", in.Home + "/.ssh", in.Canary + "/sub", in.Path("sub"), in.Path(".env")}, func(dir string) Outcome {
					to := in.Path("moved" + strings.ReplaceAll(dir, "/", "-"))
					if err := os.Rename(dir, to); err != nil {
						return Blocked("rename %s: %v", dir, cause(err))
					}
					return each([]string{"", "credentials", "id_rsa", "secret", ".env.local"}, func(name string) Outcome { return in.Read(filepath.Join(to, name)) })
				})
			}},
		{ID: "FS-019", Name: "write into a hidden directory", Guarantee: profiles.FSHide, Severity: Low,
			Expect: "EROFS, or a private place that is gone at exit; never on the host", References: refs("srt issue 149"), Key: `filesystem`,
			Explain: "What is written into a stand-in must not come out on the host.",
			Payload: func(in *Inside) Outcome {
				return Any(createIn(in.Canary), createIn(in.Home+"/.ssh"), createIn(in.Home+"/.aws"), createIn(in.Home))
			},
			Observe: stands(plantedIn("{canary}", "{home}", "{home}/.ssh", "{home}/.aws")...)},
		record("FS-046", "reach a path by a firm link or /private", profiles.FSHide, High, NeedMacOS, "Seatbelt compares literal paths."),
		record("FS-047", "clone a hidden file into the workspace", profiles.FSHide, High, NeedMacOS, "clonefile(2) copies without reading."),
		{ID: "FS-051", Name: "read hidden names by a glob", Guarantee: profiles.FSHide, Severity: Critical, Needs: []Need{NeedNative},
			Expect: "EACCES", Errnos: errnos("EACCES ENOENT"), Flags: []string{"--hide", "{workspace}/**/.env*"}, Key: `filesystem."**/.env*"`,
			Explain: "Secrets in the workspace that a glob hides, at its top and below, and through other names.",
			Payload: func(in *Inside) Outcome {
				os.Link(in.Path(".env"), in.Path("linked-env"))
				return Any(in.Read(in.Path(".env")), in.Read(in.Path("sub", ".env.local")), in.Read(in.Path("linked-env")), in.Read("/proc/self/cwd/.env"))
			}},
		{ID: "FS-056", Name: "list a hidden directory", Guarantee: profiles.FSHide, Severity: Medium,
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
			}},
		{ID: "FS-057", Name: "leave by .. from a directory that moves", Guarantee: profiles.FSHide, Severity: High,
			Expect: "no path leads above the root", References: refs("CVE-2015-2925"), Key: "filesystem",
			Explain: "A directory that leaves a bind mount while a process stands in it lets .. walk to the host's root.",
			Control: func(in *Inside) Outcome { return in.Read(in.Canary + "/secret") },
			Payload: func(in *Inside) Outcome {
				deep := in.Path("deep", "er")
				os.MkdirAll(deep, 0o755)
				dir, err := os.Open(deep)
				must(err, "open")
				os.Rename(deep, in.Path("moved-up"))
				must(unix.Fchdir(int(dir.Fd())), "fchdir")
				up := strings.Repeat("../", 60)
				return Any(in.Read(up+in.Canary[1:]+"/secret"), in.Read(up+"srv/canary/secret"))
			}},
		{ID: "FS-059", Name: "what is private stays private", Guarantee: profiles.FSHide, Severity: Medium,
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
					if path := filepath.Join(dir, out.Tag+"-left"); exists(path) {
						defer os.Remove(path)
						o = Escaped("%s is on the host", path)
					}
				}
				return o
			}},
		{ID: "FS-060", Name: "open files by io_uring", Guarantee: profiles.SysFilter, Severity: High,
			Expect: "the ring cannot be made", Errnos: denied, References: refs("birdcage issue 32"), Key: "syscalls",
			Explain: "A ring opens files without the system calls that a filter watches.",
			Payload: func(in *Inside) Outcome { return ringReads(in, in.Canary+"/secret") }},
	}
}
