package escape

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// lifeProbes outlive what they should not: the run, the launcher, its limits.
func lifeProbes() []Probe {
	return []Probe{
		{ID: "NS-018", Name: "a daemon outlives the run", Guarantee: profiles.ProcNoSurvivors, Severity: High, Needs: nil,
			Expect: "dead when the launcher has ended", References: refs("srt: background tests"),
			Explain: "A process that detaches itself goes on working after the user believes that all is over.",
			Payload: func(in *Inside) Outcome { return startDaemon(in) },
			Observe: heartStopped},
		{ID: "NS-019", Name: "a daemon outlives a launcher that is killed", Guarantee: profiles.ProcNoSurvivors, Severity: High,
			Expect:  "dead within a second of the launcher's death",
			Explain: "SIGKILL of the launcher is how an impatient user or an orchestrator ends a run.",
			Payload: func(in *Inside) Outcome {
				o := startDaemon(in)
				report(in.Nonce, o)
				time.Sleep(payloadTime)
				return o
			},
			Drive: func(d *Drive) Outcome {
				cmd, out := d.begin()
				defer d.sweep()
				if !eventually(8*time.Second, func() bool { return size(d.Workspace+"/heart") > 2 }) {
					syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
					run := d.wait(cmd, out)
					return Broken("no heartbeat: %s", tail(run))
				}
				cmd.Process.Kill()
				d.wait(cmd, out)
				eventually(time.Second, func() bool { return len(d.Survivors()) == 0 })
				return stillBeating(d)
			}},
		{ID: "NS-020", Name: "clear the death signal", Guarantee: profiles.ProcNoSurvivors, Severity: High,
			Expect:  "killed all the same: by the pid namespace",
			Explain: "A launcher that trusts in PR_SET_PDEATHSIG alone is left by a payload that clears it.",
			Payload: func(in *Inside) Outcome {
				unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
				unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
				return startDaemon(in)
			},
			Observe: heartStopped},
		{ID: "NS-021", Name: "orphans are reaped", Guarantee: profiles.ProcIsolated, Severity: Medium, Needs: []Need{NeedNative},
			Expect: "no zombies stay", Explain: "A first process that does not reap lets zombies fill the limit of processes.",
			Payload: func(in *Inside) Outcome {
				if in.Control {
					cmd := exec.Command(in.Program, helperVerb, "nothing", in.Tag)
					must(cmd.Start())
					pid := strconv.Itoa(cmd.Process.Pid)
					eventually(5*time.Second, func() bool { return strings.HasPrefix(statusLine(pid, "State"), "Z") })
				} else {
					for range 40 {
						in.Again("orphan").Run()
					}
				}
				zombies := 0
				eventually(time.Second, func() bool {
					zombies = 0
					for _, pid := range processes() {
						if strings.HasPrefix(statusLine(pid, "State"), "Z") {
							zombies++
						}
					}
					return zombies == 0
				})
				if zombies > 0 {
					return Escaped("%d zombies", zombies)
				}
				return Blocked("40 orphans, no zombie")
			}},
		{ID: "NS-022", Name: "kill the sandbox's helpers, then reach out", Guarantee: profiles.NetAllowlist, Severity: High, Setting: Caged,
			Expect: "no egress: nothing that polices it can be killed from inside", References: refs("srt: relay test"),
			Explain: "Ends every process but itself, and tries the network again.",
			Payload: func(in *Inside) Outcome {
				for _, pid := range processes() {
					if n, _ := strconv.Atoi(pid); n != os.Getpid() && n != os.Getppid() && n > 1 && n != in.HostPID {
						unix.Kill(n, unix.SIGKILL)
					}
				}
				return Any(in.Dial("tcp", in.Peers["evil.test"]+":80"), in.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", in.TCP4)))
			}},
		{ID: "NS-023", Name: "stop the launcher's clock", Guarantee: profiles.ResTime, Severity: Medium, Needs: []Need{NeedNative},
			Expect: "the time limit ends the run all the same", Flags: []string{"--timeout", "1s"}, Key: "resources.timeout",
			Explain: "Signals that stop are sent to every process and group in sight, then the payload sleeps on.",
			Payload: func(in *Inside) Outcome {
				report(in.Nonce, Blocked("asleep"))
				if !in.Control {
					time.Sleep(200 * time.Millisecond) // until it is passed on
					unix.Kill(os.Getppid(), unix.SIGSTOP)
					unix.Kill(1, unix.SIGSTOP)
					unix.Kill(1, unix.SIGTTOU)
				}
				time.Sleep(patience(3 * time.Second))
				return Escaped("slept for 3 s under a limit of 1 s")
			}},
	}
}

func startDaemon(in *Inside) Outcome {
	cmd := exec.Command(in.Program, helperVerb, "heart", in.Tag, in.Path("heart"), "daemon")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Broken("start a daemon: %v", err)
	}
	if !eventually(3*time.Second, func() bool { return size(in.Path("heart")) > 1 }) {
		return Broken("no heartbeat")
	}
	return Blocked("a daemon beats")
}

func heartStopped(out *Outside, o Outcome) Outcome {
	if o.Kind == Broke {
		return o
	}
	time.Sleep(100 * time.Millisecond)
	return stillBeating(out.Drive)
}

func stillBeating(d *Drive) Outcome {
	before := size(d.Workspace + "/heart")
	time.Sleep(300 * time.Millisecond)
	if after := size(d.Workspace + "/heart"); after > before {
		return Escaped("the daemon beats on: %d, then %d", before, after)
	}
	if pids := d.Survivors(); len(pids) > 0 {
		return Escaped("processes are left: %v", pids)
	}
	return Blocked("the heart has stopped after %d beats", before)
}

func size(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}
