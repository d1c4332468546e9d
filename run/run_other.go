//go:build !unix

package run

import (
	"context"
	"errors"
	"io"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/workspace"
)

// Run says that nothing can run here.
func Run(profiles.Request, Program) int {
	return messages.Fail(providers.StartsNone("run"), providers.Elsewhere)
}

// Inquire says that no provider can be used from here.
func Inquire(program Program, k providers.Kind) ([]profiles.Answer, error) {
	return nil, errors.New(providers.StartsNone("provider " + k.Name))
}

// CheckKilled does nothing: where nothing runs natively, there is no unfinished-run record.
func CheckKilled(Program) {}

func AskGit(string) workspace.AskGit { return nil }

// RunGit runs no git: it would have no sandbox.
func RunGit(string) func(ctx context.Context, show, args []string, prepare func(dir string) error, in io.Reader, out io.Writer) error {
	return func(context.Context, []string, []string, func(string) error, io.Reader, io.Writer) error {
		return errors.New(providers.StartsNone("git"))
	}
}

// EndQuietly is for the time of a launch: nothing can run here.
func EndQuietly() {}

// LeaveSignals is for the time of a launch too.
func LeaveSignals() {}
