package providers

import (
	"context"
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

// The provider of this machine works with the very files that pccrun has before it. Package run takes its plan
// through stages, of which each is a value that the one before returns, and does its own work between them. What a
// stage learns it returns:
//
//	LocalPlan.Bind    → Bound       what the command will work on is open, as far as only root can open it
//	Bound.Clone       → LocalRun    pid 1 is cloned, and sets the sandbox up
//	LocalRun.Connect                the way out is made: how far the answers hold is known
//	LocalRun.Go                     the command runs
//	LocalRun.Attend                 what goes on beside it has begun
//	LocalRun.Follow                 nothing of the command runs any more
//	LocalRun.Drain                  all that it printed is where it belongs
//	LocalRun.Result                 nothing of the run is left
//
// Each is called once. A stage that fails is followed by Close of the last value that there was.

// LocalProvider is a [Provider] that asks this machine what a policy's plan has to know.
type LocalProvider interface {
	Provider
	// ExamineFor stands in for Examine. By now all of the host is known.
	ExamineFor(policy *profiles.Policy, survey *Survey, command Command, host Host) (Facts, error)
	// Close takes away what is left of a run, when its session has ended, or of one that was
	// prepared and did not begin.
	Close()
}

// LocalPlan is a [Plan] whose command works on this machine's files.
type LocalPlan interface {
	Plan
	// JudgeDescriptors refuses descriptors that are handed in and would lead out.
	JudgeDescriptors() error
	// Guarded says what the command may write.
	Guarded() *survey.Guarded
	// ShowsDenials reports whether the command has a file in which it reads of refusals.
	ShowsDenials() bool
	// HomeNeeds are the names that must stand in the persistent home.
	HomeNeeds() []homes.Need
	// Layers are what the overlays lie on.
	Layers() []changes.Layer
	// Bind makes what a run needs of its own. The plan stays as it is, and can be bound again when that run is closed.
	// The command takes the descriptors 0, 1 and 2 of this process as they are.
	Bind(Stdio, Observer) (Bound, error)
}

// Bound is a plan with what one run has of its own.
type Bound interface {
	// Guarded says what the command may write, as root with descriptors of it.
	Guarded() *survey.Guarded
	// Lower opens what an overlay lies on.
	Lower(layer int) (*os.Root, error)
	// Clone gives root up, and clones pid 1, if that was not done while the policy was read.
	Clone() (LocalRun, error)
	Close() error
}

// LocalRun is a run on this machine from the clone of its pid 1 on.
type LocalRun interface {
	// Process is its pid 1, and the control groups of its own.
	Process() (pid int, groups []string)

	// Connect returns the plan's answers with what this start has made of them. An error may be a [MissingError].
	Connect() ([]profiles.Answer, error)
	// Go lets the command run. With an error nothing of it has.
	Go() error
	// Attend returns what of that which goes on beside the command is not as it should be. With an error the run is to be
	// closed: the command may have run.
	Attend() ([]events.Warning, error)
	// Follow passes signals on, and kills the run when ctx is done. Alone says that the command ended by itself.
	Follow(ctx context.Context, signals <-chan int) (alone bool)
	// Drain waits for whoever still reads, for as long as patience says, 0 for as long as it takes. What is private to the
	// run still stands then.
	Drain(patience time.Duration) error
	// Result returns what is only to be written down as well.
	Result() (Result, []events.Event, error)
	Close() error

	// Denials is the file that tells the command of refusals; nil for none. From Attend on.
	Denials() *os.File
	// Configs are the private copies of git's configurations that the command has.
	Configs(session string) *workspace.PrivateConfigs
	// Stubs say how directories under protected names go on working inside.
	Stubs() *workspace.Stubs

	// Refused are the pinned files that somebody wanted to change. Between Drain and Result.
	Refused() []workspace.Refusal
	// Lost is what was made in private directories. OpenLost opens the directory that
	// holds one of them, in which it has the name. Between Drain and Result.
	Lost() ([]quarantine.Lost, error)
	OpenLost(path string) (dir int, name string, err error)

	// Hidden is which services of the machine the command has asked for, and what one that has failed names and could not
	// see. After Result.
	Hidden(failed bool) []events.Hidden
	// Unreadable are the hidden files that git would have to read for the command, if it takes them.
	Unreadable() []string
}
