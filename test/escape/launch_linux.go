package escape

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// secretInEnvironment looks for the secret in every environment in sight.
func secretInEnvironment(in *Inside) Outcome {
	for _, entry := range os.Environ() {
		if in.Leaks([]byte(entry)) {
			name, _, _ := strings.Cut(entry, "=")
			return Escaped("%s is in the environment", name)
		}
	}
	if pids := processesWhose("environ", in.Leaks); len(pids) > 0 {
		return Escaped("the environment of processes %v holds the secret", pids)
	}
	return Blocked("%d variables, no secret", len(os.Environ()))
}

func launchProbes() []Probe {
	hidden := errnos("ENOENT EACCES EROFS EPERM")
	return append(slices.Concat(raceProbes(), killProbes(), trustProbes()), []Probe{
		{ID: "LCH-001", Name: "secrets in the environment", Guarantee: profiles.EnvScrub, Severity: Critical,
			Expect: "not in the environment of any process in sight", Key: "environment.pass",
			Explain: "AWS_SECRET_ACCESS_KEY, GITHUB_TOKEN, ANTHROPIC_API_KEY, a database URL and a variable that no list knows.",
			Payload: secretInEnvironment},
		{ID: "LCH-083", Name: "a secret that is injected", Guarantee: profiles.NetInject, Severity: Critical,
			Flags:  []string{"--allow", "allowed.test", "--inject", "ANTHROPIC_API_KEY=allowed.test"},
			Expect: "a placeholder in the environment, the secret in no process in sight", Key: "network.inject",
			Explain: "An injected key is put into requests to its hosts by a process outside. Whoever runs inside must not find it: not in a variable, and not in a process.",
			Payload: func(in *Inside) Outcome {
				if os.Getenv("ANTHROPIC_API_KEY") == "" {
					return Broken("no placeholder: the variable is not set")
				}
				return secretInEnvironment(in)
			}},
		{ID: "LCH-002", Name: "variables that make programs run code", Guarantee: profiles.EnvScrub, Severity: High,
			Expect: "unset, where they name what is hidden", References: refs("CVE-2025-61260"), Key: "environment.pass",
			Explain: "NODE_OPTIONS, PYTHONSTARTUP, BASH_ENV, ENV, PERL5OPT, RUBYOPT, GIT_SSH_COMMAND, GCONV_PATH come from the caller's shell. Options that name no hidden file are passed.",
			Payload: func(in *Inside) Outcome {
				for _, name := range []string{"NODE_OPTIONS", "PYTHONSTARTUP", "BASH_ENV", "ENV", "PERL5OPT", "RUBYOPT", "GIT_SSH_COMMAND", "GCONV_PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"} {
					value := os.Getenv(name)
					if strings.Contains(value, in.Canary) || value == "ssh -v" {
						return Escaped("%s is %s", name, value)
					}
				}
				return Blocked("none is set as outside")
			},
			Drive: func(d *Drive) Outcome {
				d.extra = []string{"NODE_OPTIONS=--require " + d.Canary + "/f", "PERL5OPT=-I" + d.Canary, "RUBYOPT=-r" + d.Canary + "/f"}
				return d.Run()
			}},
		{ID: "LCH-005", Name: "the policy in an argument list", Guarantee: profiles.ProcIsolated, Severity: Medium, Needs: []Need{NeedNative},
			Flags: []string{"--env", "CANARY_TOKEN=argv-canary-7f3a"}, Expect: "no process inside shows the launcher's arguments", Key: "environment.set",
			Explain: "A value that was given on the command line stands in the launcher's argument list, and in that of its first process.",
			Control: func(*Inside) Outcome { return Escaped("arguments are open to all where nothing hides them") },
			Payload: func(in *Inside) Outcome {
				if pids := processesWhose("cmdline", holding("argv-canary-7f3a")); len(pids) > 0 {
					return Escaped("processes %v show the value", pids)
				}
				if os.Getenv("CANARY_TOKEN") != "argv-canary-7f3a" {
					return Broken("--env did not reach the payload")
				}
				return Blocked("no argument list shows it")
			}},
		{ID: "LCH-006", Name: "overwrite the launcher's program", Guarantee: profiles.LaunchIntegrity, Severity: Critical, Setting: Caged, Needs: []Need{NeedNative},
			Expect: "ETXTBSY, EROFS or EACCES", Errnos: slices.Concat(hidden, errnos("ETXTBSY")), References: refs("CVE-2019-5736"),
			Explain: "Through /proc/PID/exe and by its path: the next run would start what the payload wrote.",
			Control: func(in *Inside) Outcome { return openWrite(in.Home + "/.bashrc") }, // a program of the user's, writable where nothing protects it
			Payload: func(in *Inside) Outcome {
				return Any(openWrite("/proc/1/exe"), openWrite(fmt.Sprintf("/proc/%d/exe", os.Getppid())), openWrite(in.Launcher), openWrite(cageLauncher))
			}},
		{ID: "LCH-015", Name: "options hidden in the command", Guarantee: profiles.LaunchIntegrity, Severity: High,
			Expect: "nothing after -- is an option", References: refs("CVE-2024-32462"), Key: "",
			Explain: "The payload's own arguments look like options of the launcher: --read /, --without hide.",
			Payload: func(in *Inside) Outcome { return in.Read(in.Canary + "/secret") },
			Drive: func(d *Drive) Outcome {
				argv := d.Command()
				// the program ignores what comes after a probe's id only through
				// its environment: a link called like an option is the command
				link := d.Workspace + "/--bind"
				os.Symlink(".probe/pccrun", link)
				n := len(argv) - 4
				argv[n] = link
				defer d.sweep()
				return d.judge(d.wait(d.launch(argv)))
			}},
		{ID: "LCH-017", Name: "a workspace whose name is a trap", Guarantee: profiles.LaunchIntegrity, Severity: High,
			Expect: "handled as a name", References: refs("overlay: lowerdir separators"), Key: "",
			Explain: "The payload runs from a directory with spaces, quotes, commas, colons, a newline and \\040 in its name.",
			Payload: func(in *Inside) Outcome { return Any(in.Read(in.Canary+"/secret"), keepBlocked(createIn(in.Canary))) },
			Drive: func(d *Drive) Outcome {
				d.dir = d.Workspace + "/a b,c:d\\040'\"\n$(touch x)"
				must(os.Mkdir(d.dir, 0o755))
				return d.Run()
			},
			Observe: hostToo},
		{ID: "LCH-018", Name: "reopen standard input for writing", Guarantee: profiles.LaunchIntegrity, Severity: Medium,
			Expect: "EROFS or EACCES, or a pipe", References: refs("CVE-2016-9962"), Key: "",
			Explain: "A file of the host's is standard input, read-only. /proc/self/fd/0 opens it anew, for writing; .. from a directory leads on.",
			Payload: func(in *Inside) Outcome { return appendTo("/proc/self/fd/0") },
			Drive: func(d *Drive) Outcome {
				// it must be the launcher that refuses, not the owner
				must(os.Chmod(d.Canary+"/f", 0o666))
				return d.from(d.Canary + "/f")
			},
			Observe: hostUnchanged},
		{ID: "LCH-086", Name: "a hidden directory as standard input", Guarantee: profiles.LaunchIntegrity, Severity: Medium,
			Expect: "refused, or nothing below it can be opened", References: refs("CVE-2024-21626", "openat(2)"), Key: "",
			Explain: "A directory of the host's is standard input, by mistake or as a leak: what lies below it needs no path from the root.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Read("/proc/self/fd/0/secret"), Attempt(closed(unix.Openat(0, "secret", unix.O_RDONLY|unix.O_CLOEXEC, 0)), "open secret below standard input"))
			},
			Drive: func(d *Drive) Outcome { return d.orRefused(d.from(d.Canary)) }},
		plantsInHome(Probe{
			ID: "LCH-019", Name: "write the launcher's configuration and state", Guarantee: profiles.LaunchIntegrity, Severity: Critical,
			Expect: "absent or read-only", Errnos: hidden, References: refs("CVE-2026-25725"), Key: "",
			Explain: "Trust, profiles and session records lie below the home: whoever writes them decides the next run.",
		}, plantedIn(".config/pccrun", ".local/state/pccrun", ".cache/pccrun")...),
		{ID: "LCH-020", Name: "predictable names in shared directories", Guarantee: profiles.LaunchIntegrity, Severity: High, Needs: []Need{NeedNative}, Setting: Caged,
			Expect: "the launcher follows no link that others made", References: refs("CVE-2026-46406"), Key: "",
			Explain: "Links named as the launcher's temporary files might be stand in /tmp and /run before it starts.",
			Control: func(*Inside) Outcome { return appendTo("/tmp/pccrun-" + itoa(os.Getuid())) },
			Payload: func(in *Inside) Outcome { return Blocked("ran") },
			Drive: func(d *Drive) Outcome {
				for _, name := range []string{"pccrun", "pccrun-" + itoa(os.Getuid()), "pccrun-" + itoa(d.job.UID), "pccrun.sock", "pccrun-0", ".pccrun"} {
					os.Symlink(d.Canary+"/planted-by-link", "/tmp/"+name)
					os.Symlink(d.Canary+"/planted-by-link", "/run/"+name)
				}
				return d.Run()
			},
			Observe: hostUnchanged},
		{ID: "LCH-021", Name: "forge lines of the event log", Guarantee: profiles.LaunchIntegrity, Severity: High, Needs: []Need{NeedNative},
			Flags: []string{"--events", "{tmp}/events"}, Expect: "every line is an object of the launcher's", Key: "--events",
			Explain: "Host names and arguments with newlines and JSON in them; the log's own file is looked for through mounts and descriptors.",
			Control: func(in *Inside) Outcome { return appendTo(in.Tmp + "/events") },
			Payload: func(in *Inside) Outcome {
				return Any(appendTo(in.Tmp+"/events"), in.viaProxy("CONNECT", "x\",\"type\":\"forged\"}\n{\"v\":1,\"type\":\"forged\":443"))
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				data, _ := os.ReadFile(out.Tmp + "/events")
				if bytes.Contains(data, []byte(`{"v":1,"type":"forged"`)) || bytes.Contains(data, []byte("# canary")) {
					return Escaped("the log holds a forged line")
				}
				return keepBlocked(o)
			}},
		{ID: "LCH-022", Name: "pretend an exit status", Guarantee: profiles.LaunchIntegrity, Severity: Medium, Needs: []Need{NeedNative},
			Expect: "a payload that is killed does not look as if it had succeeded", Key: "",
			Explain: "The payload starts a child that succeeds and is then ended by a signal.",
			Control: func(*Inside) Outcome { return Escaped("a status is what the payload makes it") },
			Payload: func(in *Inside) Outcome {
				report(in.Nonce, Blocked("is ended by a signal"))
				in.Again("nothing").Run()
				unix.Kill(os.Getpid(), unix.SIGKILL)
				return Broken("lives")
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				if code := out.State.ExitCode(); code != 137 && code != -1 {
					return Escaped("the launcher's status is %d", code)
				}
				return o
			}},
		record("LCH-023", "start without what protects", profiles.LaunchIntegrity, Critical, NeedVM, "Needs kernels without user namespaces, Landlock or control groups: the matrix of virtual machines runs it.", "codex: fails closed"),
		{ID: "LCH-024", Name: "a way round that the payload can take", Guarantee: profiles.LaunchIntegrity, Severity: Critical,
			Expect: "no effect", References: refs("CVE-2026-42074"), Key: "",
			Explain: "Variables and options that switch protection off, set inside and tried on a child.",
			Payload: func(in *Inside) Outcome {
				cmd := in.Again("read", in.Canary+"/secret")
				cmd.Env = append(os.Environ(), "PCCRUN_DISABLE=1", "PCCRUN_SANDBOX=0", "NO_SANDBOX=1", "PCCRUN_WITHOUT=hide,seccomp", "DANGEROUSLY_DISABLE_SANDBOX=1")
				out, err := cmd.Output()
				if in.Leaks(out) {
					return Escaped("the child read the secret")
				}
				return Blocked("the child: %v", err)
			}},
		{ID: "LCH-025", Name: "write after the launcher has looked", Guarantee: profiles.FSProtect, Severity: High, Needs: []Need{NeedNative},
			Expect: "every process is dead before the workspace is looked at", Key: "protect",
			Explain: "A daemon that keeps making .envrc files while the launcher ends.",
			Payload: func(in *Inside) Outcome {
				cmd := exec.Command(in.Program, helperVerb, "planter", in.Tag, in.Path("late", ".envrc"))
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				os.Mkdir(in.Path("late"), 0o755)
				must(cmd.Start())
				eventually(3*time.Second, func() bool { return exists(in.Path("late", ".envrc")) })
				return Blocked("a planter is at work")
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				time.Sleep(150 * time.Millisecond)
				return stands("{workspace}/late/.envrc")(out, o)
			}},
		{ID: "LCH-027", Name: "another run at the same time", Guarantee: profiles.ProcIsolated, Severity: High,
			Expect: "its processes, files and sockets are not to be reached", References: refs("easy-agent 23"), Key: "",
			Explain: "Two sandboxes in one workspace: one leaves a secret in its /tmp and listens on an abstract socket, the other looks.",
			Payload: func(in *Inside) Outcome {
				mine := in.Path("first-run")
				if !exists(mine) { // the first: leave traces, wait
					os.WriteFile("/tmp/"+in.Tag+"-first", []byte("x"), 0o644)
					cmd := in.Again("listen", "@"+in.Tag+"-between")
					must(cmd.Start())
					time.Sleep(100 * time.Millisecond)
					os.WriteFile(mine, nil, 0o644)
					eventually(4*time.Second, func() bool { return exists(in.Path("second-run")) })
					return Blocked("the first")
				}
				defer os.WriteFile(in.Path("second-run"), nil, 0o644)
				if exists("/tmp/" + in.Tag + "-first") {
					return Escaped("the other run's /tmp is in sight")
				}
				fd, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				err := unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + in.Tag + "-between"})
				return Attempt(err, "connect to the other run's socket")
			},
			Drive: func(d *Drive) Outcome {
				first, out := d.begin()
				defer d.sweep()
				if !eventually(6*time.Second, func() bool { return exists(d.Workspace + "/first-run") }) {
					first.Process.Kill()
					return Broken("the first run did not begin: %s", tail(d.wait(first, out)))
				}
				o := d.Run()
				os.WriteFile(d.Workspace+"/second-run", nil, 0o644)
				d.wait(first, out)
				return o
			}},
		{ID: "LCH-028", Name: "have the launcher's runtime talk", Guarantee: profiles.LaunchIntegrity, Severity: Low, Needs: []Need{NeedNative},
			Expect: "no listener, nothing of its memory on stderr", References: refs("GODEBUG"), Key: "",
			Explain: "GOTRACEBACK=crash, GODEBUG and a profile port in the caller's environment must not reach the payload.",
			Payload: func(in *Inside) Outcome {
				for _, name := range []string{"GODEBUG", "GOTRACEBACK", "GOCOVERDIR"} {
					if value := os.Getenv(name); value != "" {
						return Escaped("%s is %s", name, value)
					}
				}
				return Blocked("none is passed on")
			},
			Drive: func(d *Drive) Outcome {
				d.extra = []string{"GOTRACEBACK=crash", "GODEBUG=gctrace=0", "GOCOVERDIR=" + d.Canary}
				return d.Run()
			}},
		{ID: "LCH-029", Name: "call the launcher's inner verbs", Guarantee: profiles.LaunchIntegrity, Severity: High, Needs: []Need{NeedNative},
			Expect: "refused outside the launcher's own handshake", References: refs("runc: init"), Key: "",
			Explain: "Hidden verbs and made-up descriptors, on the copy of the launcher that the payload has.",
			Control: func(in *Inside) Outcome { return in.Read(in.Canary + "/secret") },
			Payload: func(in *Inside) Outcome {
				for _, args := range [][]string{{"__init"}, {"init"}, {"__helper"}, {"__inside"}, {"__proxy"}, {cageVerb, "/tmp"}} {
					cmd := exec.CommandContext(in.ctx, in.Program, args...)
					cmd.Env = append(os.Environ(), "PCCRUN_INIT=1", "_PCCRUN_FD=3", "LISTEN_FDS=1")
					cmd.Stdin = strings.NewReader(`{"ID":"FS-001","Control":true}`)
					out, _ := cmd.CombinedOutput()
					if in.Leaks(out) {
						return Escaped("%v gave the secret", args)
					}
				}
				return Any(in.Read(in.Canary+"/secret"), keepBlocked(createIn(in.Canary)))
			},
			Observe: hostToo},
		record("LCH-016", "text that ends a Seatbelt string", profiles.LaunchIntegrity, Critical, NeedMacOS, "A workspace whose name closes a quote in the generated profile."),
		{ID: "LCH-030", Name: "signals from inside to the launcher", Guarantee: profiles.ProcIsolated, Severity: High,
			Expect: "ESRCH or EPERM", Errnos: errnos("ESRCH EPERM"),
			Explain: "Every signal to the first process, to the process group and to the session's leader.",
			Control: func(in *Inside) Outcome { return Attempt(unix.Kill(in.HostPID, unix.SIGUSR1), "kill") },
			Payload: func(in *Inside) Outcome {
				report(in.Nonce, Blocked("the first process took this one with it"))
				time.Sleep(200 * time.Millisecond) // until it has passed that on
				for s := unix.SIGHUP; s < unix.SIGSYS; s++ {
					if s != unix.SIGURG && s != unix.SIGCHLD {
						unix.Kill(1, s)
					}
				}
				return Blocked("the first process is deaf to all of them")
			},
			Observe: waiterDecides},
	}...)
}
