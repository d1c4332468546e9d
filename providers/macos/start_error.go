//go:build unix

package macos

import (
	"fmt"
	"syscall"

	"github.com/pccrun/pccrun/providers"
)

// judge is what a report, or that there was none, says of the start.
func judge(r *report, status syscall.WaitStatus, command string) error {
	const (
		badProfile = 65 // of sandbox-exec: the text is none that it takes
		nested     = 71 // a sandbox is around already
	)
	switch {
	case r != nil && r.Errno != 0:
		return &providers.ExecError{Name: command, Err: syscall.Errno(r.Errno)}
	case r != nil && r.Fail != "":
		return &StartError{Cause: r.Fail}
	case status.Exited() && status.ExitStatus() == badProfile:
		return &StartError{Cause: "sandbox-exec does not take the profile", Advice: "pccrun spec --format seatbelt prints it; docs/macos.md says how to report that"}
	case status.Exited() && status.ExitStatus() == nested:
		return alreadyInside()
	}
	return &StartError{Cause: fmt.Sprintf("sandbox-exec ended before the command began (status %d)", status)}
}

// A StartError says why the command was not started. Nothing ran outside of the profile.
type StartError struct{ Cause, Advice string }

func (e *StartError) Error() string { return "macos: " + e.Cause }

// Hint says what mends it.
func (e *StartError) Hint() string { return e.Advice }

// alreadyInside refuses to run in another sandbox: macOS makes none in one that denies anything.
func alreadyInside() error {
	return &providers.UnusableError{
		Provider: providers.Native, Cause: "this process is in a sandbox already, and macOS makes none in it",
		Advice: "start pccrun from a terminal of your own, and not from an agent that has put itself into a sandbox",
	}
}
