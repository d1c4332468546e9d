package escape

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

func itoa(n int) string { return strconv.Itoa(n) }

func resProbes() []Probe {
	return []Probe{
		{ID: "RES-001", Name: "more memory than granted", Guarantee: profiles.ResMemory, Severity: High, Needs: []Need{NeedNative},
			Flags: []string{"--memory", "96m"}, Expect: "ended inside, the launcher lives", References: refs("runc: cgroups tests"), Key: "resources.memory",
			Explain: "One process touches 192 MiB under a limit of 96.",
			Payload: func(in *Inside) Outcome {
				report(in.Nonce, Blocked("began to touch memory"))
				return hog(192 << 20)
			}},
		{ID: "RES-002", Name: "a fork bomb", Guarantee: profiles.ResPids, Severity: High, Needs: []Need{NeedNative},
			Flags: []string{"--pids", "64"}, Expect: "EAGAIN at the limit", Key: "resources.pids", Errnos: errnos("EAGAIN"),
			Explain: "120 processes at a time under a limit of 64.",
			Payload: func(in *Inside) Outcome {
				var cmds []*exec.Cmd
				defer func() {
					for _, cmd := range cmds {
						cmd.Process.Kill()
						cmd.Wait()
					}
				}()
				sleep, ok := in.Tool("sleep")
				if !ok {
					return Needing("sleep")
				}
				for n := range 120 {
					cmd := exec.Command(sleep, "5")
					if err := cmd.Start(); err != nil {
						if n < 8 {
							return Broken("only %d processes: %v", n, err)
						}
						return Blocked("process %d: %v", n, cause(err))
					}
					cmds = append(cmds, cmd)
				}
				return Escaped("120 processes at a time")
			}},
		{ID: "RES-003", Name: "memory by many processes", Guarantee: profiles.ResMemory, Severity: High, Needs: []Need{NeedNative},
			Flags: []string{"--memory", "128m"}, Expect: "the sum is bounded", Key: "resources.memory",
			Explain: "Four processes touch 64 MiB each under a limit of 128 for all together: a limit per process is none.",
			Payload: func(in *Inside) Outcome {
				report(in.Nonce, Blocked("began to touch memory"))
				var cmds []*exec.Cmd
				for range 4 {
					cmd := in.Again("hog", "67108864")
					blockedBy(cmd.Start(), "start")
					cmds = append(cmds, cmd)
				}
				alive := 0
				for _, cmd := range cmds {
					if cmd.Wait() == nil {
						alive++
					}
				}
				if alive == 4 {
					return Escaped("4 processes with 64 MiB each lived")
				}
				return Blocked("%d of 4 lived", alive)
			}},
		{ID: "RES-004", Name: "a file that grows without end", Guarantee: profiles.ResDisk, Severity: Medium, Needs: []Need{NeedNative},
			Flags: []string{"--disk", "32m"}, Expect: "ENOSPC or EDQUOT", Errnos: errnos("ENOSPC EDQUOT EFBIG ENOMEM"), Key: "resources.disk",
			Explain: "64 MiB into /tmp under a limit of 32.",
			Payload: func(in *Inside) Outcome { return fill("/tmp/"+in.Tag, 64) }},
		{ID: "RES-005", Name: "fill private file systems one after another", Guarantee: profiles.ResDisk, Severity: High, Needs: []Need{NeedNative},
			Gap:   "each private directory may take the whole",
			Flags: []string{"--disk", "48m"}, Expect: "the sum is bounded", Errnos: errnos("ENOSPC EDQUOT EFBIG ENOMEM"), Key: "resources.disk",
			Explain: "40 MiB each into /tmp, /var/tmp, /dev/shm and the private home under a limit of 48 for all.",
			Payload: func(in *Inside) Outcome {
				total, last := 0, Outcome{}
				for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", in.Home} {
					path := dir + "/" + in.Tag
					last = fill(path, 40)
					defer os.Remove(path)
					if last.Kind == DidEscape {
						total += 40
					}
				}
				if total > 80 {
					return Escaped("%d MiB in all", total)
				}
				last.Kind = DidBlock
				return last
			}},
		{ID: "RES-006", Name: "descriptors without end", Guarantee: profiles.ResFiles, Severity: Medium,
			Expect: "RLIMIT_NOFILE has a hard bound of at most a million", Key: "resources.files", Needs: []Need{NeedResource}, Setting: Caged,
			Explain: "Raises the hard limit, which takes CAP_SYS_RESOURCE.",
			Payload: func(in *Inside) Outcome {
				var l unix.Rlimit
				unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
				return Attempt(unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: l.Cur, Max: l.Max + 1}, nil), "raise RLIMIT_NOFILE beyond %d", l.Max)
			}},
		{ID: "RES-007", Name: "feed the host's handler of core dumps", Guarantee: profiles.PrivNone, Severity: Medium, Setting: Caged,
			Expect: "RLIMIT_CORE is 1, hard, and cannot be lowered, though setrlimit says so", Errnos: errnos("EPERM EINVAL"), References: refs("core(5)"), Key: "syscalls",
			Explain: "With a pipe as the pattern the kernel runs the handler as the host's root, for any limit but 1.",
			Payload: func(in *Inside) Outcome {
				var l unix.Rlimit
				unix.Getrlimit(unix.RLIMIT_CORE, &l)
				if l.Max > 1 || l.Cur != 1 {
					return Escaped("RLIMIT_CORE is %d of %d", l.Cur, l.Max)
				}
				var was unix.Rlimit
				lower := unix.Rlimit{Cur: 0, Max: l.Max}
				first, second := unix.Setrlimit(unix.RLIMIT_CORE, &lower), unix.Prlimit(0, unix.RLIMIT_CORE, &lower, nil)
				third := unix.Prlimit(0, unix.RLIMIT_CORE, &lower, &was)
				var now unix.Rlimit
				must(unix.Getrlimit(unix.RLIMIT_CORE, &now), "getrlimit")
				if now.Cur != 1 {
					return Escaped("lower RLIMIT_CORE from 1 to %d", now.Cur)
				}
				return Blocked("lower RLIMIT_CORE from 1 to 0, which stays (%v, %v, %v)", first, second, third)
			}},
		{ID: "RES-008", Name: "more processor time than granted", Guarantee: profiles.ResCPU, Severity: Medium, Needs: []Need{NeedNative},
			Flags: []string{"--cpus", "0.1"}, Expect: "at most a tenth of a processor", References: refs("cpu.max"), Key: "resources.cpus",
			Explain: "Two busy loops for a second; what they got is measured.",
			Payload: func(in *Inside) Outcome {
				share := burn(2, 1200*time.Millisecond)
				// a supervisor that gets no time itself is late
				if share > 0.18*slowness() {
					return Escaped("%.2f processors", share)
				}
				if in.Control {
					return Needing(fmt.Sprintf("an idle processor: the control got %.2f", share))
				}
				return Blocked("%.2f processors", share)
			}},
		{ID: "RES-020", Name: "more processors than granted", Guarantee: profiles.ResCPU, Severity: Medium, Needs: []Need{NeedNative},
			Flags: []string{"--cpus", "1"}, Expect: "at most one processor", References: refs("cpu.max", "sched_setaffinity(2)"), Key: "resources.cpus",
			Explain: "Two busy loops for half a second, four times, unless there is only one processor to run on.",
			Payload: func(in *Inside) Outcome {
				var set unix.CPUSet
				must(unix.SchedGetaffinity(0, &set), "sched_getaffinity")
				switch n := set.Count(); {
				case n < 2 && in.Control:
					return Needing("a second processor")
				case n < 2:
					return Blocked("1 processor to run on")
				case in.Control: // how much of them is free at the moment does not matter
					return Escaped("%d processors to run on", n)
				}
				for range 4 { // others may want them too, for a while
					if share := burn(2, 500*time.Millisecond); share > 1.3 && more(2) > 1.3 {
						return Escaped("%.2f processors", share)
					}
				}
				return Blocked("no more than one processor's time")
			}},
		{ID: "RES-009", Name: "raise one's own limits", Guarantee: profiles.ResFiles, Severity: Medium, Setting: Caged, Needs: []Need{NeedResource},
			Expect: "EPERM", Errnos: errnos("EPERM"), References: refs("prlimit(2)"), Key: "resources",
			Explain: "Every limit that has a hard bound is raised by one.",
			Payload: func(in *Inside) Outcome {
				unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, nil)
				if in.Control {
					unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 1000, Max: 1000})
				}
				return each([]int{unix.RLIMIT_NOFILE, unix.RLIMIT_NPROC, unix.RLIMIT_FSIZE, unix.RLIMIT_AS, unix.RLIMIT_MEMLOCK}, func(r int) Outcome {
					var l unix.Rlimit
					if err := unix.Getrlimit(r, &l); err != nil || l.Max == unix.RLIM_INFINITY {
						return Broken("limit %d has no bound: %v", r, err)
					}
					return Attempt(unix.Prlimit(0, r, &unix.Rlimit{Cur: l.Cur, Max: l.Max + 1}, nil), "raise limit %d beyond %d", r, l.Max)
				})
			}},
		{ID: "RES-010", Name: "work on past the time limit", Guarantee: profiles.ResTime, Severity: High, Needs: []Need{NeedNative},
			Flags: []string{"--timeout", "1s"}, Expect: "ended, status 124", Key: "resources.timeout",
			Explain: "The payload ignores every signal that can be ignored.",
			Control: func(*Inside) Outcome { return Escaped("nothing ends it") },
			Payload: func(in *Inside) Outcome {
				report(in.Nonce, Blocked("asleep"))
				ignoreAll()
				time.Sleep(payloadTime - 500*time.Millisecond)
				return Escaped("slept for 7.5 s under a limit of 1 s")
			}},
		{ID: "RES-011", Name: "a flood of output", Guarantee: profiles.LaunchIntegrity, Severity: Medium, Needs: []Need{NeedNative},
			Expect: "passed on; the launcher's memory stays bounded", Key: "",
			Explain: "Eight MiB of output; a launcher that collects them grows without bound.",
			Control: func(*Inside) Outcome { return Escaped("a flood without a launcher is a flood") },
			Payload: func(in *Inside) Outcome {
				junk := bytes.Repeat([]byte("canary canary canary canary canary canary canary canary canary.\n"), 1024)
				for range 128 {
					os.Stdout.Write(junk)
				}
				return Blocked("8 MiB were written")
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				if out.job.Control {
					return o
				}
				usage, ok := out.State.SysUsage().(*syscall.Rusage)
				if ok && usage.Maxrss > 96<<10 {
					return Escaped("the launcher's memory grew to %d KiB", usage.Maxrss)
				}
				if out.Total < 8<<20 {
					return Blocked("%s; %d bytes arrived", o.Detail, out.Total)
				}
				return o
			}},
		{ID: "RES-012", Name: "memory by files in memory", Guarantee: profiles.ResMemory, Severity: Medium, Needs: []Need{NeedNative},
			Flags: []string{"--memory", "96m", "--disk", "1g"}, Expect: "counts against the memory granted", Key: "resources.memory",
			Explain: "192 MiB into /dev/shm and a memfd under a limit of 96.",
			Payload: func(in *Inside) Outcome {
				report(in.Nonce, Blocked("began to write"))
				o := fill("/dev/shm/"+in.Tag, 96)
				defer os.Remove("/dev/shm/" + in.Tag)
				if o.Kind != DidEscape {
					return o
				}
				fd, err := unix.MemfdCreate("canary", unix.MFD_CLOEXEC)
				blockedBy(err, "memfd_create")
				memfd := os.NewFile(uintptr(fd), "memfd")
				defer memfd.Close()
				if o = fillFile(memfd, 96); o.Kind != DidEscape {
					return o
				}
				return held("%s", o.Detail)
			}},
		{ID: "RES-013", Name: "a tree that is deeper than a path is long", Guarantee: profiles.LaunchIntegrity, Severity: Medium, Needs: []Need{NeedNative},
			Expect: "the run ends in time, the tree can be removed", Key: "",
			Explain: "400 directories with long names, one in the other: a scan at exit must not be led astray.",
			Control: func(*Inside) Outcome { return Escaped("a deep tree without a scan is only deep") },
			Payload: func(in *Inside) Outcome {
				name := strings.Repeat("d", 200)
				must(os.Chdir(in.Workspace))
				for range 400 {
					must(os.Mkdir(name, 0o755), "mkdir")
					must(os.Chdir(name), "chdir")
				}
				return Blocked("400 directories deep")
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				if out.Late {
					return Escaped("the launcher took %v to end", out.Took)
				}
				return o
			}},
		record("RES-014", "a sparse file of a terabyte", profiles.SyncDown, Medium, NeedRemote, "A download counts apparent and real size."),
		{ID: "RES-015", Name: "use up what the user's account has in common", Guarantee: profiles.ResFiles, Severity: Medium,
			Gap:    "are counted with the user",
			Expect: "the host can still make an inotify instance, and a timer", References: refs("inotify(7)", "timer_create(2)"), Key: "",
			Explain: "inotify instances are counted per user of the host: 128 of them leave editors blind. So are signals that wait, of which each timer takes one.",
			Payload: func(in *Inside) Outcome {
				n := 0
				for n < 200 {
					if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
						break
					}
					n++
				}
				timers := 0
				for timers < 1<<18 && makeTimer() == nil {
					timers++
				}
				report(in.Nonce, Blocked("%d instances, %d timers", n, timers))
				in.untilSeen()
				return Blocked("%d instances, %d timers", n, timers)
			},
			Drive: func(d *Drive) Outcome {
				cmd, out := d.begin()
				defer d.sweep()
				var starved error
				if eventually(6*time.Second, func() bool { return exists(d.Workspace + "/exhausted") }) {
					fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
					if starved = err; err == nil {
						unix.Close(fd)
						starved = makeTimer()
					}
				}
				d.seen()
				o := d.judge(d.wait(cmd, out))
				if o.Kind == DidBlock && starved != nil {
					return Escaped("an inotify instance or a timer of the host's own: %v", starved)
				}
				return o
			}},
		{ID: "RES-016", Name: "terminals without end", Guarantee: profiles.ResFiles, Severity: Low,
			Expect: "bounded, and not the host's", Key: "",
			Explain: "pseudo-terminals are counted for the whole machine; a new devpts has a bound of its own.",
			Payload: func(in *Inside) Outcome {
				before := countTerminals()
				var open []int
				for range 64 {
					fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
					if err != nil {
						break
					}
					open = append(open, fd)
				}
				report(in.Nonce, Blocked("%d terminals, %d before", len(open), before))
				in.untilSeen()
				return Blocked("%d terminals", len(open))
			},
			Drive: func(d *Drive) Outcome {
				before := countTerminals()
				cmd, out := d.begin()
				defer d.sweep()
				most := 0
				eventually(6*time.Second, func() bool {
					most = max(most, countTerminals()-before)
					return exists(d.Workspace + "/exhausted")
				})
				most = max(most, countTerminals()-before)
				d.seen()
				o := d.judge(d.wait(cmd, out))
				if o.Kind == DidBlock && most >= 40 {
					return Escaped("%d terminals appeared in the host's /dev/pts", most)
				}
				return o
			}},
		{ID: "RES-017", Name: "many runs leave nothing", Guarantee: profiles.LaunchIntegrity, Severity: Medium, Needs: []Need{NeedNative},
			Expect: "no mount, process or file more than after the first, in the home neither", References: refs("runc: cleanup"), Key: "",
			Explain: "Twenty runs, one after the other; the host is counted after the first, which may make what all of them use, and after the last.",
			Payload: func(in *Inside) Outcome {
				if in.Control {
					os.WriteFile("/tmp/"+leftByControl+in.Tag+itoa(os.Getpid()), nil, 0o644)
				}
				return Blocked("ran")
			},
			Drive: func(d *Drive) Outcome {
				var before, home map[string]bool
				for n := range 20 {
					if o := d.Run(); o.Kind != DidBlock {
						return o
					}
					if n == 0 {
						before, home = leftovers(), d.homeFiles()
					}
				}
				time.Sleep(50 * time.Millisecond)
				more := append(newIn(leftovers(), before), newIn(d.homeFiles(), home)...)
				// The next run removes the record of one of root's; the sessions' directory is made by the first run that lasts.
				more = slices.DeleteFunc(more, func(name string) bool {
					return strings.Contains(name, "/owed/") || strings.HasSuffix(name, "/pccrun/sessions")
				})
				if len(more) > 0 {
					return Escaped("left behind: %s", strings.Join(more[:min(5, len(more))], ", "))
				}
				return Blocked("20 runs, nothing is left")
			}},
		{ID: "RES-018", Name: "have the host's processes die first", Guarantee: profiles.ResMemory, Severity: Medium, Setting: Caged, Needs: []Need{NeedResource},
			Expect: "EACCES", Errnos: errnos("EACCES EPERM EROFS"), References: refs("proc_pid_oom_score_adj(5)"), Key: "resources.memory",
			Explain: "A score of -1000 makes the kernel end others when memory runs out.",
			Payload: func(in *Inside) Outcome {
				return Attempt(os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0), "oom_score_adj -1000")
			}},
		{ID: "RES-019", Name: "lock memory", Guarantee: profiles.ResMemory, Severity: Low, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM or ENOMEM beyond the limit", Errnos: errnos("EPERM ENOMEM EAGAIN"), References: refs("mlock(2)"), Key: "resources.memory",
			Explain: "Locked memory cannot be reclaimed, whatever the host needs.",
			Payload: func(in *Inside) Outcome {
				unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 0, Max: 0}, nil)
				mem, err := unix.Mmap(-1, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
				blockedBy(err, "mmap")
				return Attempt(unix.Mlock(mem), "mlock of 16 MiB beyond a limit of none")
			}},
	}
}

//go:noinline
func spin(x uint64) uint64 { return x }

// untilSeen tells the host that the payload holds what it could get, and holds it
// until the host has looked.
func (in *Inside) untilSeen() {
	os.WriteFile(in.Path("exhausted"), nil, 0o644)
	eventually(4*time.Second, func() bool { return exists(in.Path("host-has-looked")) })
}

func (d *Drive) seen() { os.WriteFile(d.Workspace+"/host-has-looked", nil, 0o644) }
