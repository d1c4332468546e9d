//go:build unix && !linux

package run

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/providers"
)

// What of the flow is Linux's has nothing to do here: no launcher has files open for its command, and
// nothing is quarantined by watching.

type onMachine struct {
	layout *survey.Layout
	home   *homes.Home // nil: it is not persistent
}

func who() (uid, gid int) { return os.Getuid(), os.Getgid() }

func (f *flow) listen()                           {} // no exec: see exec_linux.go
func (f *request) native() bool                   { return false }
func (f *prepared) isLocal() bool                 { return false }
func (f *prepared) showsDenials() bool            { return false }
func (f *prepared) prepareHere() error            { return nil }
func (f *request) close()                         {}
func (f *flow) open() error                       { return nil }
func (f *flow) localStdio(*providers.Stdio) error { return nil }
func (f *flow) withheld()                         {}
func (f *prepared) sayUndecided()                 {}
func (f *flow) removeStubs()                      {}
func (f *flow) sayHidden(*providers.Result)       {}

// found takes a survey in.
func (f *prepared) found(s *survey.Survey) { f.layout = s.Layout }

// carryOut carries the plan out.
func (f *flow) carryOut(ctx context.Context, stdio providers.Stdio) (providers.Result, error) {
	return f.plan.(providers.Runner).Run(ctx, stdio, observer{f})
}

func (f *prepared) examine(*providers.Survey, providers.Command) (providers.Facts, error) {
	return f.ask()
}

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

func (f *flow) guard(any) error { return nil }
func (f *flow) leaveRecord()    {}

// giveBack ends the use of the home: a renewed login stays in it.
func (f *flow) giveBack() {
	if f.home != nil {
		f.home.Close()
	}
}

// takeTerminal names the user's terminal, of which the provider of this machine gives the command one
// of its own.
func (f *flow) takeTerminal(s *providers.Stdio) error {
	if f.Name != providers.Native {
		return f.relayTerminal(s)
	}
	f.terminal = new(relayedTerminal)
	s.In, s.Out, s.Err = os.Stdin, os.Stdout, os.Stderr
	s.Terminal, _ = userTerminal(f.req.Host.Getenv("TERM"))
	s.Terminal.Relay = func(o terminal.Options) (*terminal.Relay, error) {
		o.Terminal = int(os.Stdout.Fd())
		return f.relay(o)
	}
	return nil
}

func starved() (text, hint string) { return "", "" }

// stopSelf stops this process, and returns when it goes on. Another thread may be the one to meet the
// signal: this one would go on meanwhile, and have the command go on.
func stopSelf() {
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	time.Sleep(settled)
}

func pending(unix.Signal) bool { return false }

// The directories of an agent's own are layers, which Linux alone has.
func (f *prepared) makeAgentDirs()   {}
func (f *prepared) removeAgentDirs() {}

func (f *prepared) agentLayers(*homes.Home) (map[string]string, error) { return nil, nil }
