//go:build unix

// Package macos runs a policy on this machine where that is a Mac: by sandbox-exec, under the
// profile that package seatbelt makes of the policy.
//
// The launcher starts one process beside the command, the supervisor: it leads the session of the
// command's terminal, follows the processes of the run, and ends what the command leaves, also when
// the launcher was killed. It does what the profile forbids, as a control, and starts sandbox-exec, which
// becomes pccrun inside: that tries the same again, and becomes the command only if each of it is
// refused. The network is the launcher's proxy on a port of the loopback, which serves who gives the
// run's token.
//
// It promises that no command runs outside of the profile, whatever fails; that [Provider.Plan] is
// pure, and the same on every system; and that what macOS cannot keep is an answer with a cause.
//
// Nothing of it ran on a Mac. What is macOS's alone stands in files that end in _darwin.go; all
// else is tested on Linux, with a program in sandbox-exec's place that reads the profile with
// package test/sbpl and keeps files and ports by Landlock.
package macos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// dirName is the directory below the state directory that holds one for each run, by its label.
const dirName = "macos"

// A Provider is this machine.
type Provider struct {
	host   providers.Host
	system system
}

// A system is what only macOS does.
type system struct {
	exec      string   // sandbox-exec
	stage     []string // pccrun with [Verb], as a command
	log       []string // prints what was denied, each as a line of JSON; the predicate follows
	processes func() ([]process, error)
	bears     func(pid int, variable string) bool // a process has it in its environment
	signals   [][2]int                            // numbers that differ: Linux's, this system's
}

// toNative returns this system's number of a signal, fromNative Linux's.
func (s *system) toNative(sig int) int   { return s.number(sig, 0) }
func (s *system) fromNative(sig int) int { return s.number(sig, 1) }

func (s *system) number(sig, from int) int {
	for _, pair := range s.signals {
		if pair[from] == sig {
			return pair[1-from]
		}
	}
	return sig
}

// A process is one of the system's.
type process struct {
	pid, parent, group int
	begun              int64 // any number that differs between two that had the same pid
	name               string
}

// Facts are what the machine says of itself.
type Facts struct {
	Version string // of macOS
	Nofile  uint64 // how many files a process may have open at most
}

// New returns this machine.
func New(host providers.Host) *Provider { return &Provider{host: host, system: thisSystem()} }

// Name is native's: the user asks for this machine.
func (p *Provider) Name() string { return providers.Native }

// dir is where what a run has lies.
func (p *Provider) dir(label string) string {
	return filepath.Join(p.host.StateDir, dirName, label)
}

// A resource of this machine is a run's directory, and the processes that bear its label.
func resource(label string) providers.Resource {
	return providers.Resource{Provider: providers.Native, ID: label, Labels: map[string]string{providers.LabelKey: label}}
}

// Find lists the runs that have a directory.
func (p *Provider) Find(_ context.Context, label string) (list []providers.Resource, err error) {
	entries, err := os.ReadDir(filepath.Join(p.host.StateDir, dirName))
	if err != nil {
		if os.IsNotExist(err) {
			err = nil
		}
		return nil, err
	}
	for _, e := range entries {
		if label == "" || e.Name() == label {
			list = append(list, resource(e.Name()))
		}
	}
	return list, nil
}

// Destroy ends what is left of a run, and removes its directory.
func (p *Provider) Destroy(ctx context.Context, r providers.Resource) error {
	label := r.Labels[providers.LabelKey]
	if !filepath.IsLocal(label) || filepath.Base(label) != label {
		return fmt.Errorf("resource %q: no run of this machine", label)
	}
	dir := p.dir(label)
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		return nil
	}
	t := tracker{system: &p.system, label: label}
	if _, err := t.end(); err != nil {
		return err
	}
	return state.RemovePath(dir)
}

// setenv returns env with a variable in place of those of its name.
func setenv(env []string, name, value string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, name+"=") })
	return append(env, name+"="+value)
}

// unsupported says what of a policy macOS has nothing for.
func unsupported(origin profiles.Origin, cause, hint string) error {
	return &profiles.Error{Origin: origin, Cause: cause, Hint: hint}
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Plan     = (*plan)(nil)
)
