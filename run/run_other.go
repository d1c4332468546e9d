//go:build !unix

package run

import (
	"runtime"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/workspace"
)

// Run says that nothing can run here.
func Run(profiles.Request, Program) int {
	return messages.Fail("provider native: not built for " + runtime.GOOS + " yet")
}

// Inquire says that no provider can be used from here.
func Inquire(program Program, k providers.Kind) ([]profiles.Answer, error) {
	return nil, &providers.UnusableError{Provider: k.Name, Cause: "not built for " + runtime.GOOS + " yet"}
}

// CheckKilled does nothing: where nothing runs natively, there is no unfinished-run record.
func CheckKilled(Program) {}

func AskGit(string) workspace.AskGit { return nil }

// EndQuietly is for the time of a launch: nothing can run here.
func EndQuietly() {}

// LeaveSignals is for the time of a launch too.
func LeaveSignals() {}
