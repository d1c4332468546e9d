//go:build unix && !linux

package run

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/survey"
)

// What of the flow is Linux's has nothing to do here: no launcher has files open for its command,
// nothing is set aside by watching, and so nothing is owed to a workspace.

type onMachine struct{}

func who() (uid, gid int) { return os.Getuid(), os.Getgid() }

func (f *flow) isLocal() bool                     { return false }
func (f *flow) hasty() bool                       { return false }
func (f *flow) found(*survey.Survey)              {}
func (f *flow) furnish() error                    { return nil }
func (f *flow) close()                            {}
func (f *flow) open() error                       { return nil }
func (f *flow) localStdio(*providers.Stdio) error { return nil }
func (f *flow) withheld()                         {}
func (f *flow) sayHidden(int, *providers.Result)  {}
func (f *flow) giveBack()                         {}
func (f *flow) homeDir() *survey.Home             { return nil }

func (f *flow) examine(*providers.Survey, providers.Command) (providers.Facts, error) { return f.ask() }

// openHome refuses a home that is there again in the next run.
func (f *flow) openHome() error {
	if f.req.DryRun || f.policy.FreshHome || f.policy.Decide(f.policy.Home).Access != profiles.Persist {
		return nil
	}
	return &profiles.Error{Cause: "persistent homes are not built for this system yet", Hint: "--home private"}
}

type guarded struct{ failed bool }

func (f *flow) owe() error                { return nil }
func (f *flow) oweAlso(string) error      { return nil }
func (f *flow) guard(any) error           { return nil }
func (f *flow) paid()                     {}
func (f *flow) unguarded()                {}
func (f *flow) lookBack() []events.Change { return nil }

// Settle finds nothing that is owed.
func Settle(sessions.Home, Program) error { return nil }

// A seat needs pseudo-terminals of this machine, which is not built here.
type seat struct{}

func (s *seat) close() {}

func (f *flow) takeTerminal(*providers.Stdio) error {
	return errors.New("a terminal for the command is not built for this system yet")
}

func starved() (text, hint string) { return "", "" }

func stopSelf() { _ = unix.Kill(os.Getpid(), unix.SIGSTOP) }

func pending(unix.Signal) bool { return false }

// The directories of an agent's own are layers, which Linux alone has.
func (f *flow) makeAgentDirs()   {}
func (f *flow) removeAgentDirs() {}
