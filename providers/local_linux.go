package providers

import (
	"os"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/changes"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A provider of this machine works with the very files that pccrun has before it, so it and
// package run meet more often than [Provider] has it. What they say then stands here: each type
// is beside one of the others, and a provider that is somewhere else knows none of them.

// LocalProvider is a [Provider] that asks this machine what a policy's plan has to know.
type LocalProvider interface {
	Provider
	// ExamineFor stands in for Examine. By now all of the host is known.
	ExamineFor(policy *profiles.Policy, survey *Survey, command Command, host Host) (Facts, error)
	// Close takes away what is left of a run, when its session has ended, or of one that was
	// prepared and did not begin.
	Close()
}

// LocalPlan is a [Plan] whose command works on this machine's files. Its Run takes the
// descriptors 0, 1 and 2 of this process as they are, calls the methods of a [LocalObserver],
// and can be called again after an error that came before Opened, or before the command ran.
type LocalPlan interface {
	Plan
	// Bare reports whether Run makes nothing before Opened that would be left.
	Bare() bool
	// Judge refuses descriptors that are handed in and would lead out.
	Judge() error
	// Guarded says what the command may write.
	Guarded() *survey.Guarded
	// Tells reports whether the command has a file that tells it of refusals.
	Tells() bool
	// Needs are the names that must stand in the persistent home.
	Needs() []homes.Need
	// Layers are what the overlays lie on; Lower opens one, when Run has opened it.
	Layers() []changes.Layer
	Lower(layer int) (*os.Root, error)
	// Hidden is which services of the machine the command has asked for, and what one that has failed names and could not see.
	Hidden(failed bool) []events.Hidden
	// Unreadable are the hidden files that git would have to read for the command, if it takes them.
	Unreadable() []string
}

// LocalObserver is an [Observer] of a run on this machine. Its methods are called in their
// order, by one goroutine.
type LocalObserver interface {
	Observer
	// Note has an event written down, and nothing said.
	Note(events.Event)

	// Opened is called when all is open that the command will work on, as far as only root can
	// open it. An error ends the launch. Created follows, with the number of pid 1.
	Opened(*survey.Guarded) error
	// Settled is called when the place stands: with what the start made of the plan's answers.
	Settled([]profiles.Answer)
	// Running stands in for Started. An error ends the run.
	Running(Local) error
	// Ended is called when the command is gone, and says how long whoever still reads is waited
	// for, 0 for as long as it takes. Alone says that it ended by itself.
	Ended(alone bool) (patience time.Duration)
	// Gone is called when all that was printed is where it belongs. What is private to the run
	// still stands.
	Gone()
}

// Local is a run on this machine that goes on.
type Local interface {
	// Process is its pid 1, and the control groups of its own.
	Process() (pid int, groups []string)
	// Denials is the file that tells the command of refusals; nil for none.
	Denials() *os.File
	// Configs are the private copies of git's configurations that the command has.
	Configs(session string) *workspace.Configs
	// Stubs say how directories under protected names go on working inside.
	Stubs() *workspace.Stubs
	// Refused are the pinned files that somebody wanted to change. For Gone.
	Refused() []workspace.Refusal
	// Lost is what was made in private directories. For Gone. OpenLost opens the directory that
	// holds one of them, in which it has the name.
	Lost() ([]quarantine.Lost, error)
	OpenLost(path string) (dir int, name string, err error)
}
