//go:build unix

package macos

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/providers"
)

// judge is what a report, or that there was none, says of the start. Nothing ran outside of the profile.
func judge(r *report, status syscall.WaitStatus, command string) error {
	const (
		badProfile = 65 // of sandbox-exec: the text is none that it takes
		nested     = 71 // a sandbox is around already
	)
	switch {
	case r != nil && r.Errno != 0:
		return &providers.ExecError{Name: command, Err: syscall.Errno(r.Errno)}
	case r != nil && r.Fail != "":
		return errors.New("macos: " + r.Fail)
	case status.Exited() && status.ExitStatus() == badProfile:
		return hint.Errorf("pccrun spec --format seatbelt prints it; docs/macos.md says how to report that", "macos: sandbox-exec does not take the profile")
	case status.Exited() && status.ExitStatus() == nested:
		return alreadyInside()
	}
	return fmt.Errorf("macos: sandbox-exec ended before the command began (status %d)", status)
}

// alreadyInside refuses to run in another sandbox: macOS makes none in one that denies anything.
func alreadyInside() error {
	return &providers.UnusableError{
		Provider: providers.Native, Cause: "this process is already in a sandbox, and macOS does not nest them",
		Advice: "start pccrun from your own terminal, not from a sandboxed agent",
	}
}
