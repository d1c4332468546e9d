// Package run is the one flow of a run, for every provider: policy, survey, plan, session,
// start, what happens meanwhile, the look at what was left, and the exit status. It also
// looks after runs whose launchers were killed.
//
// It promises that what it says and returns is the same wherever the command runs, and that
// what has to be checked when it is over is written down before the command starts.
package run

import (
	"context"
	"fmt"
	"os"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// Program is what a run takes from the program that it is a part of.
type Program struct {
	Version string
	Whole   func() (*os.File, error) // a file with all verbs of the program

	// Become replaces this process by the program that has all providers, and returns only
	// if that fails; nil where this one has them.
	Become func() int

	// Provider makes a provider, nil for one that is not built. A nil function has none.
	Provider func(name string, req *profiles.Request, host providers.Host) (providers.Provider, error)

	Started func(*sessions.Session) // called when the command of a run runs; may be nil

	ask func(ctx context.Context, host string, port uint16) providers.Permission // see [providers.Host]
}

// The reasons for which the directory of a session is kept.
const (
	KeepChanges = "changes" // there are findings to review
	KeepLost    = "lost"    // what private directories held
	KeepUpper   = "upper"   // overlays changed something

	// KeepUnfetched is for a session whose provider has files that could not be fetched, or sent some that were refused.
	KeepUnfetched = "unfetched"
)

// UnsafeHint mends a state directory that is refused, and is said of no other.
const UnsafeHint = "XDG_STATE_HOME=DIR names a directory that only you can write"

// Sessions finds the sessions of the user.
func Sessions() (sessions.Home, error) {
	dirs, err := Dirs()
	return sessions.In(dirs.State), err
}

// Dirs finds the caller's own directories where there is no policy.
func Dirs() (state.Dirs, error) {
	host := profiles.ThisHost()
	home, _, err := host.HomeDir()
	if err != nil {
		return state.Dirs{}, err
	}
	return state.Find(host.Getenv, home)
}

// Programs finds what pccrun itself executes on this machine, for its user.
func Programs(host *profiles.Host, stateDir string) *programs.Finder {
	return &programs.Finder{Home: host.Home, Records: programs.Records(host.Home, stateDir), NoTrust: !programs.HasHome(host.Home), Environ: host.Environ, Note: messages.Say}
}

// PathsChanged is one count for the end of a run and for diff: of files and directories.
func PathsChanged(n int) string {
	if n == 1 {
		return "1 path changed"
	}
	return fmt.Sprintf("%d paths changed", n)
}
