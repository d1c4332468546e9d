// Package providers says what a place is in which a command can run under a
// policy: this machine, a container engine, a cloud.
//
// It promises that a provider is one interface, that what it takes and returns
// belongs to no operating system, and that a policy's requirements are held
// against every provider's answers by the same function ([Check]). It knows no
// provider: package run has the list.
package providers

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
)

// A Provider is a place where commands run.
type Provider interface {
	// Name is what --provider and the records of sessions call it: "docker".
	Name() string

	// Examine asks the engine or the cloud what it is and can do. It starts
	// nothing. An error says that the provider cannot be used now, and why.
	Examine(ctx context.Context) (Facts, error)

	// Plan decides a run. It reads nothing but its arguments and changes nothing:
	// equal arguments give equal plans. What the answers miss is no error of it: package
	// run holds them against the policy, with [Check].
	Plan(policy *profiles.Policy, survey *Survey, facts Facts, command Command) (Plan, error)

	// Find lists what stands at the provider under a label (see [Command.Label]),
	// or under any label of pccrun's where that is "".
	Find(ctx context.Context, label string) ([]Resource, error)

	// Destroy ends and removes a resource with all that runs in it. One that is
	// gone already is no error.
	Destroy(ctx context.Context, r Resource) error
}

// Facts are what [Provider.Examine] has learned. Only the provider that made
// them looks into them.
type Facts any

// A Plan is a run that is decided and has not begun. Nobody changes it.
type Plan interface {
	// Answers says of each guarantee how far the run keeps it.
	Answers() []profiles.Answer

	// Warnings are what the user should hear before the command starts.
	Warnings() []string

	// Describe returns a value that says all of the plan: --dry-run prints it as
	// JSON, tests compare it. It holds no secret.
	Describe() any
}

// A Runner is a [Plan] that carries itself out. That of this machine is carried out in stages.
type Runner interface {
	Plan

	// Run carries the plan out, once, and returns when the command has ended and
	// what the provider made for it is gone. An error says that the command did
	// not start, or that its end is not known. When ctx is done the run is killed.
	Run(ctx context.Context, io Stdio, o Observer) (Result, error)
}

// An Executor is a [Plan] that can start other commands in its run.
type Executor interface {
	Plan

	// Exec runs another command with the rights, limits, environment and directory of the run's
	// own, and returns when it has ended; files are what its name stands for on this machine.
	// Any goroutine may call it once the command runs. When ctx is done, or the run has ended,
	// the command is killed. In, Out and Err are pipes, which it closes; of the rest of io only
	// Terminal and Signals count, and with a terminal there is no Err.
	Exec(ctx context.Context, argv, files []string, io Stdio) (Result, error)
}

// A Meter is a [Plan] that says what its run uses while it goes on.
type Meter interface {
	Plan
	Usage(ctx context.Context) (Result, error)
}

// Command is what is to run.
type Command struct {
	Argv []string
	Env  []string // all that the policy passes and sets, NAME=VALUE
	Dir  string   // where it starts, a directory that the policy shows

	// Label is a random word that the session's record holds before anything is
	// made: what the provider makes bears it under [LabelKey], so that it is found
	// after a crash. "" for a plan that is only looked at.
	Label string

	// Keep is how long a sandbox at a cloud stands afterwards, for the next run that has one
	// kept. 0: it is destroyed.
	Keep time.Duration

	Ask bool // [Observer.Ask] is asked about a host that no rule speaks of

	Install *Install // what a place elsewhere may lack; nil: nothing

	Conversation *Conversation // what of the persistent home goes to a place elsewhere, and comes back; nil: nothing
}

// A Conversation is what an agent goes on with: directories of its home in which no login is. Regular files of them go along and
// come back.
type Conversation struct {
	Home string   // the persistent home, of this machine
	Dirs []string // relative to it
}

// An Install is a program that a place elsewhere may lack, and how it comes to be there before the command starts.
type Install struct {
	Name   string
	Script string   // of sh: its last argument is a directory, which is made. What it puts into .local/bin there is in the PATH
	Args   []string // the first of its arguments
	Allow  []string // the hosts that it, alone, may reach
}

// StartDir is where a command starts: the current directory, the workspace where the policy does
// not show that.
func StartDir(policy *profiles.Policy) string {
	if policy.Decide(policy.WorkDir).Access < profiles.Read {
		return policy.Workspace
	}
	return policy.WorkDir
}

// LabelKey is the key of the label that each resource bears.
const LabelKey = "pccrun.session"

// Place is a path at which access changes, with what stands there.
type Place = survey.Place

// Survey is what only this machine knows, read once, the same for every provider.
type Survey struct {
	UID, GID int               // whose files these are; a command must not run as 0
	Places   []Place           // outermost first; what no place speaks of is as the directory it is in
	Command  []string          // files of this machine that the command's name stands for, the first that starts wins
	Env      []string          // what belongs to what the policy shows, NAME=VALUE; below [Command.Env]
	Notes    []string          // what the user should hear
	Seeds    map[string]string // what a home begins with that is gone at exit, by path; of a place elsewhere, what it may get. Secrets
	Machine  any               // what only the provider of this machine reads
}

// Host is what a provider is made with: what it may take from this process.
type Host struct {
	Environ  []string // of the user: where engines are, keys of clouds, proxies
	StateDir string   // where pccrun keeps its runs: never shown inside
	Launcher string   // the file of the launcher for Linux, to be mounted or uploaded

	Programs *programs.Finder // of this machine, for what is executed here outside of any sandbox

	// Git runs git in a sandbox that shows a directory of its own, and, read-only, what is in show. prepare is given the
	// directory before git starts.
	Git func(ctx context.Context, show, args []string, prepare func(dir string) error, in io.Reader, out io.Writer) error

	Whole func() (*os.File, error) // a file with all verbs of this program

	// LinuxProgram opens what works at a place elsewhere, for Linux on a processor, as Go names it: as it is, or by gzip.
	LinuxProgram func(arch string) (io.ReadCloser, error)

	Budget *spending.Budget // what the requests to model APIs count against; nil: nothing is counted

	Ask func(ctx context.Context, host string, port uint16) Permission // what a place elsewhere has in place of a terminal
}

// Stdio is what the command reads and prints.
type Stdio struct {
	In       io.Reader // nil: closed
	Out, Err io.Writer

	Terminal *Terminal  // nil: In, Out and Err are no terminal. Else the command gets one of its own, which prints to Out
	Changes  *os.Root   // the session's directory, where a provider that copies leaves what comes back as package changes keeps it
	Signals  <-chan int // for the command, by Linux's numbers; nil: none come

	// Progress is told how many bytes of how many have gone up or come down, from any goroutine, and
	// "" when no more do; nil: nobody looks.
	Progress func(what string, done, total int64)

	// For a provider of this machine, which takes the descriptors 0, 1 and 2 of this process.
	Log     io.Writer // what the command prints is written there too
	Session Session
}

// Session is what a provider of this machine gets of a run's session.
type Session struct {
	Path     string       // of its directory, which who was root removes if nothing is in it
	HomeSize func() int64 // of the persistent home, in bytes; nil: there is none
}

// Terminal is the user's.
type Terminal struct {
	Name    string                     // what TERM says
	Size    func() (columns, rows int) // now
	Resized <-chan struct{}

	// Relay joins the user's terminal to a pseudo-terminal that the provider has made on this
	// machine, in place of In and Out.
	Relay func(terminal.Options) (*terminal.Relay, error)
}

// Observer takes what happens in a run, from any goroutine. It waits for nobody,
// Created and Ask excepted.
type Observer interface {
	// Created is called as soon as a resource is there, before the command starts:
	// the session's record has it when the call returns.
	Created(Resource)
	// Started is called when the command runs.
	Started()
	Decision(events.NetDecision)
	Closed(events.NetClosed)
	Denial(events.Denial)
	Change(events.Changed)
	Warning(events.Warning)
	Spent(events.Spending)

	// Ask asks the user about a host that no rule speaks of.
	Ask(ctx context.Context, host string, port uint16) Permission
}

// Permission is the answer to [Observer.Ask].
type Permission = netproxy.Permission

// Resource names what a provider made for a session.
type Resource = sessions.Resource

// Copy says which files of a copy elsewhere are written to a directory of this machine.
type Copy struct {
	Dir     string   // empty, or not there
	All     bool     // unchanged and ignored files too
	Filter  []string // patterns of gitignore, of which one selects a path; none: all
	Running bool     // the run goes on
}

// Result is how a run ended. What nobody counted is 0.
type Result struct {
	Code     int  // the command's exit status, where Signal is 0
	Signal   int  // that ended it, by Linux's number
	TimedOut bool // the policy's wall time was up
	OOM      bool // memory ran out, and something was killed for it
	DiskFull bool // more of the disk was used than is allowed
	Killed   bool // the whole was ended from outside before the command could end

	Price        float64 // what the place costs for the time, in US dollars; 0 where it costs nothing, or nobody knows
	Wall         time.Duration
	User, System time.Duration // processor time of all that ran
	Memory       int64         // bytes, the peak of all together
	Kills        int64         // processes that were killed because memory ran out
	Processes    int64         // and threads, the most at a time
	Read         int64         // bytes from storage
	Written      int64         // bytes to storage
	IOBy         string        // what counted them: "cgroup v2", "rusage"

	Room *Room // of a place that counts all that runs there; nil for others

	Spent     []string // limits that the command came up against, and lived on: "disk", "pids", "filesize"
	Survivors []string // what ran on when the command was gone, by name, and was killed
}

// A Room is what a place has, and what of its disk is used.
type Room struct {
	CPUs           float64
	Memory         int64 // bytes
	Disk, DiskUsed int64 // bytes of the file system that has the workspace's copy
}

// Outlived reports whether memory ran out, and the command itself lived on: a
// control group kills the process that wanted too much, and not the agent that
// started it.
func (r *Result) Outlived() bool { return r.Kills > 0 && !r.Killed && r.Signal != sigkill }

// sigkill is Linux's number of SIGKILL.
const sigkill = 9

// An ExecError is what a run returns where the place stands and the command cannot be
// executed in it: pccrun then exits as a shell does, with 127 where Err is an
// [io/fs.ErrNotExist], else with 126.
type ExecError struct {
	Name   string // the command's
	Err    error
	Advice string // what mends it, if that is known
}

func (e *ExecError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ExecError) Unwrap() error { return e.Err }

// Hint says what mends it.
func (e *ExecError) Hint() string { return e.Advice }
