package escape

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

func ttyProbes() []Probe {
	return []Probe{
		{ID: "TTY-001", Name: "type into the host's terminal", Guarantee: profiles.TTYIsolated, Severity: Critical, Setting: Caged | Terminal, Needs: []Need{NeedTIOCSTI},
			Expect: "EPERM, ENOTTY or EIO", Errnos: errnos("EPERM ENOTTY EIO EACCES ENXIO ENOENT"), References: refs("CVE-2017-5226"), Key: "",
			Explain: "TIOCSTI puts characters into the terminal's input: the shell outside executes them.",
			Payload: func(in *Inside) Outcome { return inject(in, unix.TIOCSTI) }, Drive: typed},
		{ID: "TTY-002", Name: "type into the host's terminal with high bits set", Guarantee: profiles.TTYIsolated, Severity: Critical, Setting: Caged | Terminal, Needs: []Need{NeedTIOCSTI},
			Expect: "EPERM, ENOTTY or EIO", Errnos: errnos("EPERM ENOTTY EIO EACCES ENXIO ENOENT"), References: refs("CVE-2019-10063"), Key: "",
			Explain: "The kernel reads 32 bits of the request: a filter that compares 64 lets TIOCSTI + 2^32 through.",
			Payload: func(in *Inside) Outcome { return inject(in, unix.TIOCSTI|1<<32) }, Drive: typed},
		{ID: "KS-030", Name: "requests on the terminal with high bits set", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged | Terminal, Needs: []Need{NeedTIOCSTI},
			Expect: "EPERM", Errnos: errnos("EPERM ENOTTY EIO EACCES"), References: refs("CVE-2019-10063"), Key: "syscalls",
			Explain: "The filter must see TIOCSTI as the kernel does, on the sandbox's own terminal too.",
			Payload: func(in *Inside) Outcome {
				c := byte('x')
				return Attempt(errOf(Call(unix.SYS_IOCTL, 0, unix.TIOCSTI|1<<32, uintptr(unsafe.Pointer(&c)))), "ioctl(0, TIOCSTI + 2^32)")
			}},
		{ID: "KS-036", Name: "paste and console requests", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged | Terminal,
			Expect: "EPERM", Errnos: errnos("EPERM ENOTTY EINVAL EIO EACCES"), References: refs("CVE-2023-1523", "CVE-2023-28100"), Key: "syscalls",
			Explain: "TIOCLINUX pastes on a console; TIOCSETD changes the line discipline, whose code has had holes.",
			Payload: func(in *Inside) Outcome {
				n := int32(0) // N_TTY: what it is already
				_, err := Call(unix.SYS_IOCTL, 0, unix.TIOCSETD, uintptr(unsafe.Pointer(&n)))
				sub := byte(3)
				_, paste := Call(unix.SYS_IOCTL, 0, 0x541c, uintptr(unsafe.Pointer(&sub)))
				return Any(Attempt(err, "TIOCSETD"), Attempt(paste, "TIOCLINUX"))
			}},
		{ID: "TTY-003", Name: "the host's terminals by name", Guarantee: profiles.TTYIsolated, Severity: High, Setting: Terminal,
			Expect: "a devpts of the sandbox's own", Errnos: errnos("ENOENT EACCES EIO ENXIO EPERM"), References: refs("CVE-2025-52565"), Key: "",
			Explain: "Opens the terminal that the launcher was started on by its number, and writes to it.",
			Payload: func(in *Inside) Outcome {
				if !in.hostTerminal() {
					return Blocked("%s is the sandbox's own, or absent", in.HostTTY)
				}
				f, err := os.OpenFile(in.HostTTY, os.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
				if err == nil {
					_, err = f.WriteString("wrote-to-" + in.Tag)
				}
				return Attempt(err, "write to %s", in.HostTTY)
			}},
		{ID: "TTY-004", Name: "set the host's clipboard", Guarantee: profiles.TTYOutput, Severity: Medium, Setting: Terminal,
			Expect: "OSC 52 is filtered unless the profile opts in", References: refs("terminal injection"), Key: "",
			Explain: "A sequence in the output replaces the clipboard: the user pastes what the payload chose.",
			Payload: prints("\x1b]52;c;Y2FuYXJ5\x07", "\x1b]52;p;Y2FuYXJ5\x1b\\", "\u009d52;c;Y2FuYXJ5\u009c"),
			Observe: cameOut("]52;", "52;c;Y2FuYXJ5")},
		{ID: "TTY-005", Name: "have the terminal answer as if the user typed", Guarantee: profiles.TTYOutput, Severity: Medium, Setting: Terminal,
			Expect: "title and DECRQSS reports are filtered", References: refs("CVE-2022-45063", "CVE-2003-0063"), Key: "",
			Explain: "The title, set by the payload, comes back as input: a newline in it runs a command.",
			Payload: prints("\x1b[21t", "\x1bP$q\"p\x1b\\", "\x1b[20t"),
			Observe: cameOut("\x1b[21t", "\x1bP$q")},
		record("TTY-006", "draw a false prompt", profiles.TTYOutput, Medium, "an approval prompt on the same terminal", "The launcher asks on a terminal that it has reset, or not at all.", "CVE-2023-28101"),
		record("TTY-007", "links that lie", profiles.TTYOutput, Low, "a profile that filters OSC 8", "Hyperlinks are passed on: they are shown, not followed."),
		{ID: "TTY-008", Name: "leave the terminal raw", Guarantee: profiles.TTYIsolated, Severity: Low, Setting: Terminal,
			Expect: "restored at exit", Key: "",
			Explain: "A terminal without echo in which Ctrl-C does nothing hides what is typed next.",
			Payload: func(in *Inside) Outcome {
				t, err := unix.IoctlGetTermios(0, unix.TCGETS)
				blockedBy(err, "standard input is no terminal")
				t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
				return Blocked("set raw: %v", unix.IoctlSetTermios(0, unix.TCSETS, t))
			},
			Drive: func(d *Drive) Outcome {
				d.keep = true
				o := d.Run()
				if d.slave == nil {
					return o
				}
				defer d.slave.Close()
				t, err := unix.IoctlGetTermios(int(d.slave.Fd()), unix.TCGETS)
				if o.Kind != Broke && err == nil && t.Lflag&unix.ECHO == 0 {
					return Escaped("the host's terminal does not echo after the run")
				}
				return o
			}},
		{ID: "TTY-009", Name: "the host's terminal as the controlling one", Guarantee: profiles.TTYIsolated, Severity: High, Setting: Terminal,
			Expect: "not the host's terminal", Key: "",
			Explain: "A process whose controlling terminal is the host's gets, and stops, the signals of the user's shell.",
			Payload: func(in *Inside) Outcome {
				var st unix.Stat_t
				data, err := os.ReadFile("/proc/self/stat")
				blockedBy(err)
				fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
				device, _ := strconv.Atoi(fields[4])
				if device == 0 {
					return Blocked("no controlling terminal")
				}
				if in.hostTerminal() && unix.Stat(in.HostTTY, &st) == nil && int(st.Rdev) == device {
					return Escaped("the controlling terminal is %s", in.HostTTY)
				}
				var tty unix.Stat_t
				if unix.Fstat(0, &tty) == nil && uint64(tty.Dev) == in.HostTTYDev {
					return Escaped("standard input is the host's terminal")
				}
				return Blocked("the controlling terminal is the sandbox's own")
			}},
		{ID: "TTY-010", Name: "swallow Ctrl-C", Guarantee: profiles.ProcNoSurvivors, Severity: Medium,
			Expect: "the second SIGINT ends the run", References: refs("kill(2)"), Key: "",
			Explain: "A command that ignores every signal is interrupted twice, as a user does who has lost patience. (On a terminal the keys are the command's own.)",
			Payload: func(in *Inside) Outcome {
				ignoreAll()
				must(os.WriteFile(in.Path("payload-runs"), nil, 0o644))
				time.Sleep(patience(payloadTime))
				return Blocked("slept")
			},
			Drive: func(d *Drive) Outcome {
				return d.whileItRuns(func(cmd *exec.Cmd, ended <-chan *Run) Outcome {
					for range 2 {
						cmd.Process.Signal(unix.SIGINT)
						time.Sleep(100 * time.Millisecond)
					}
					select {
					case run := <-ended:
						return Blocked("%v", run.State)
					case <-time.After(patience(2 * time.Second)):
						return Escaped("it runs on after two SIGINT")
					}
				})
			}},
		{ID: "TTY-011", Name: "the master of the host's terminal", Guarantee: profiles.TTYIsolated, Severity: High, Setting: Terminal | Leaky,
			Expect: "no descriptor of a master", Key: "",
			Explain: "Whoever holds the master reads what the user types and types for him.",
			Payload: func(in *Inside) Outcome {
				for fd := 0; fd < 64; fd++ {
					var n uint32
					if _, err := Call(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTN, uintptr(unsafe.Pointer(&n))); err == nil {
						if link, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); link == fmt.Sprintf("/dev/pts/%d", n) {
							continue // gVisor tells it of the other end too
						}
						return Escaped("descriptor %d is the master of pts/%d", fd, n)
					}
				}
				if in.Control {
					for fd := 3; fd < 7; fd++ {
						if unix.Fstat(fd, &unix.Stat_t{}) == nil {
							return Escaped("descriptors are inherited: a master would be")
						}
					}
				}
				return Blocked("no master is open")
			}},
		{ID: "TTY-012", Name: "stop the user's shell by its process group", Guarantee: profiles.TTYIsolated, Severity: Medium, Setting: Caged | Terminal,
			Expect: "EPERM or ENOTTY", Errnos: errnos("EPERM ENOTTY EIO EACCES EINVAL ENXIO ESRCH"), Key: "",
			Explain: "TIOCSCTTY steals a terminal from another session; vhangup ends it.",
			Control: func(*Inside) Outcome {
				return Attempt(unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp()), "set the foreground group")
			},
			Payload: func(in *Inside) Outcome {
				if !in.hostTerminal() {
					return Blocked("%s is the sandbox's own, or absent", in.HostTTY)
				}
				f, err := os.OpenFile(in.HostTTY, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
				blockedBy(err, "open")
				return Attempt(errOf(Call(unix.SYS_IOCTL, f.Fd(), unix.TIOCSCTTY, 1)), "steal %s", in.HostTTY)
			}},
	}
}

// hostTerminal says whether the name of the host's terminal leads to it here:
// every devpts instance has a device number of its own.
func (in *Inside) hostTerminal() bool {
	var st unix.Stat_t
	return unix.Stat(in.HostTTY, &st) == nil && uint64(st.Dev) == in.HostTTYDev
}

// inject types into every terminal that can be reached.
func inject(in *Inside, request uintptr) Outcome {
	var all []Outcome
	fds := []int{0, 1, 2}
	for _, path := range []string{"/dev/tty", in.HostTTY} {
		if fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			fds = append(fds, fd)
		}
	}
	for _, fd := range fds {
		var err error
		for _, c := range []byte("canary\n") {
			if _, err = Call(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&c))); err != nil {
				break
			}
		}
		all = append(all, Attempt(err, "TIOCSTI on descriptor %d", fd))
	}
	time.Sleep(100 * time.Millisecond) // the host looks
	return Any(all...)
}

// typed looks, while the payload runs, whether a line stands in the input of
// the host's terminal. What is typed into a terminal of the sandbox's own is
// echoed there, and harms nobody.
func typed(d *Drive) Outcome {
	d.keep = true
	cmd, out := d.begin()
	defer d.sweep()
	slave := d.slave
	waiting := 0
	ended := make(chan *Run, 1)
	go func() { ended <- d.wait(cmd, out) }()
	for {
		select {
		case run := <-ended:
			slave.Close()
			if waiting > 0 {
				return Escaped("%d characters stand in the input of the host's terminal", waiting)
			}
			return keepBlocked(d.judge(run))
		case <-time.After(5 * time.Millisecond):
			if n, err := unix.IoctlGetInt(int(slave.Fd()), unix.TIOCINQ); err == nil {
				waiting = max(waiting, n)
			}
		}
	}
}

func prints(sequences ...string) func(*Inside) Outcome {
	return func(in *Inside) Outcome {
		for _, s := range sequences {
			os.Stdout.WriteString(s)
		}
		time.Sleep(20 * time.Millisecond)
		return Blocked("printed")
	}
}

func cameOut(marks ...string) func(*Outside, Outcome) Outcome {
	return func(out *Outside, o Outcome) Outcome {
		for _, mark := range marks {
			if bytes.Contains(out.Output, []byte(mark)) {
				return Escaped("%q came out", mark)
			}
		}
		return o
	}
}
