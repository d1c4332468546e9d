//go:build unix && !linux

package run

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/providers"
)

// What of the flow is Linux's has nothing to do here: no launcher has files open for its command, and
// nothing is quarantined by watching.

type onMachine struct{ layout *survey.Layout }

type ranHere struct{}

type madeDirs struct{}

func who() (uid, gid int) { return os.Getuid(), os.Getgid() }

func (f *flow) listen()                           {} // no exec: see exec_linux.go
func (q *request) native() bool                   { return false }
func (p *planned) isLocal() bool                  { return false }
func (l *planner) prepareHere(*planned) error     { return nil }
func closePlace(providers.Provider)               {}
func openHere(*flow) error                        { return nil }
func (f *flow) localStdio(*providers.Stdio) error { return nil }
func (e *ended) withheld()                        {}
func (p *prepared) sayUndecided()                 {}
func (g *guarded) removeStubs()                   {}
func (e *ended) sayHidden()                       {}

// found takes a survey in.
func (l *planner) found(p *planned, s *survey.Survey) { p.layout = s.Layout }

// carryOut carries the plan out.
func (f *flow) carryOut(ctx context.Context, stdio providers.Stdio) (providers.Result, progress, error) {
	return f.carryOutElsewhere(ctx, stdio)
}

func (l *planner) examine(*providers.Survey, providers.Command) (providers.Facts, error) {
	return l.ask()
}

// denialsSink is for Linux: nowhere else a command reads of refusals.
func (f *flow) denialsSink() []events.Sink { return nil }

// linuxNumber is a signal's number on Linux, by which providers know it.
func linuxNumber(sig unix.Signal) int {
	switch sig {
	case unix.SIGUSR1:
		return 10
	case unix.SIGUSR2:
		return 12
	case unix.SIGCONT:
		return 18
	case unix.SIGSTOP:
		return 19
	case unix.SIGTSTP:
		return 20
	}
	return int(sig)
}

func (g *guarded) watch(any) error { return nil }
func (g *guarded) leaveRecord()    {}

// giveBack ends the use of the home: a renewed login stays in it.
func (m *home) giveBack(bool) {
	if m.kept != nil {
		m.kept.Close()
	}
}

// takeTerminal names the user's terminal, of which the provider of this machine gives the command one
// of its own.
func (o *output) takeTerminal(s *providers.Stdio) error {
	if o.Name != providers.Native {
		return o.relayTerminal(s)
	}
	o.terminal = new(relayedTerminal)
	s.In, s.Out, s.Err = os.Stdin, os.Stdout, os.Stderr
	s.Terminal, _ = userTerminal(o.req.Host.Getenv("TERM"))
	s.Terminal.Relay = func(options terminal.Options) (*terminal.Relay, error) {
		options.Terminal = int(os.Stdout.Fd())
		return o.relay(options)
	}
	return nil
}

func starved() (text, hint string) { return "", "" }

func hurry() {}

// stopSelf stops this process, and returns when it goes on. Another thread may be the one to meet the
// signal: this one would go on meanwhile, and have the command go on.
func stopSelf() {
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	time.Sleep(stopDelay)
}

func pending(unix.Signal) bool { return false }

// The directories of an agent's own are layers, which Linux alone has.
func (l *planner) makeAgentDirs()   {}
func (l *planner) removeAgentDirs() {}

func (m *home) agentLayers(*homes.Home) (map[string]string, error) { return nil, nil }
