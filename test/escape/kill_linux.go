package escape

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
)

// killProbes kill the launcher, and look what is left.
func killProbes() []Probe {
	const (
		moments = "SIGKILL after 0 to 30 ms, forty times: before, while and after the sandbox is set up."
		steps   = "A tracer stops the launcher, or what it has cloned, at one system call after the other, kills the launcher there and lets the rest go on. At thirty of them; LCH-082 takes all."
	)
	kill := func(id, name, explain string, drive func(*Drive) Outcome) Probe {
		return Probe{
			ID: id, Name: name, Guarantee: profiles.ProcNoSurvivors, Severity: High,
			Expect: "no process, mount or file in the workspace is left", References: refs("bwrap: cleanup", "runc: cleanup"), Key: "", Explain: explain,
			Payload: func(in *Inside) Outcome {
				startDaemon(in)
				time.Sleep(payloadTime)
				return Blocked("slept")
			},
			Drive: drive,
		}
	}
	calls := func(p Probe) Probe {
		p.ByCalls = true
		return p
	}
	long := func(p Probe) Probe {
		p.Long = true
		return p
	}
	return []Probe{
		kill("LCH-026", "kill the launcher at random moments", moments, func(d *Drive) Outcome { return killedAtRandom(d, 40) }),
		long(kill("LCH-081", "kill the launcher at random moments, thousands of times", "As LCH-026, two thousand times.", func(d *Drive) Outcome { return killedAtRandom(d, 2000) })),
		calls(kill("LCH-031", "kill the launcher at the steps of its set-up", steps, func(d *Drive) Outcome { return killedAtCalls(d, 30) })),
		long(calls(kill("LCH-082", "kill the launcher at every step of its set-up", "As LCH-031, at every system call.", func(d *Drive) Outcome { return killedAtCalls(d, 100_000) }))),
	}
}

// killedAtRandom kills the launcher at random moments and looks what is left.
func killedAtRandom(d *Drive, times int) Outcome {
	defer d.sweep()
	before := leftovers()
	if d.job.Control {
		times = 1
	}
	for n := range times {
		cmd, out := d.begin()
		pause, end := time.Duration(rand.IntN(30_000))*time.Microsecond, 10*time.Second // which what ends does not need
		if d.job.Provider != "" {                                                       // an engine takes its time
			pause *= 40
		}
		if d.job.Control { // without a daemon nothing could be left
			pause, end = 0, time.Second
			eventually(8*time.Second, func() bool { return size(d.Workspace+"/heart") > 1 })
		}
		time.Sleep(pause)
		cmd.Process.Kill()
		d.wait(cmd, out)
		var left []int
		if !eventually(end, func() bool { left = d.Survivors(); return len(left) == 0 }) {
			return Escaped("killed after %v, at try %d: processes are left: %s", pause, n, described(left))
		}
	}
	if more := newIn(leftovers(), before); len(more) > 0 {
		return Escaped("left behind: %s", strings.Join(more[:min(5, len(more))], ", "))
	}
	return Blocked("killed %d times, nothing is left", times)
}
