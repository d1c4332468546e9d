// Package agent knows the coding agents that a task can use: how each is started without questions, and what its
// stream of JSON lines says. It starts nothing, and reads no file.
//
// The exit status of an agent decides nothing: Claude Code and Gemini end with 0 after an interrupt, and Claude Code
// ends with 0 when all of its tools were denied. What counts is the last record of the stream, an [End].
package agent

import (
	"fmt"
	"strings"
	"time"
)

// A Start is what an agent is started with.
type Start struct {
	Prompt       string
	Model        string   // "" for the agent's own choice
	Conversation string   // its id, a UUID; for an agent that names its conversations itself it is "" at a first start
	Resume       bool     // go on with Conversation
	Args         []string // the user's own, which [Agent.Refuses] did not refuse
}

// An Agent is a coding agent's command line.
type Agent struct {
	Name string // of the program, and of its profile: claude, codex, gemini, opencode

	// Unattended is the agent's own flag for asking no questions, as it is printed.
	Unattended string
	// Environment is set inside: no update of itself, and no refusal to run as root where the sandbox is around it.
	Environment []string // NAME=VALUE
	// OwnIDs says that the agent takes the id of a new conversation from [Start]. The others name theirs in the stream.
	OwnIDs bool
	// Conversations are the directories of its home in which its conversations are, and no login is; nil where there is none such.
	Conversations []string
	// UsageAsItGoes says that the stream tells tokens and cost while the agent works, so that a budget can be kept by it.
	UsageAsItGoes bool

	command func(Start) []string
	install installer
	refuses []refusal
	line    func(*follower, []byte)
}

// agents are all, in the order in which one is chosen.
var agents = []*Agent{&claude, &codex, &gemini, &opencode}

// Names returns the agents that there are, in the order in which one is chosen.
func Names() []string {
	names := make([]string, len(agents))
	for i := range agents {
		names[i] = agents[i].Name
	}
	return names
}

// Named returns the agent of that name.
func Named(name string) (*Agent, bool) {
	for i := range agents {
		if agents[i].Name == name {
			return agents[i], true
		}
	}
	return nil, false
}

// Command returns the command line, its first word the agent's name.
func (a *Agent) Command(s Start) []string { return a.command(s) }

// A refusal is an argument of the agent's own that would leave the shape of a task.
type refusal struct {
	flags   []string
	instead string // what pccrun has for it
}

// Refuses returns an error if the user's own arguments for the agent change what a task is made of: its work tree, its
// conversation, its stream, its permissions, or where it runs. The error names the argument and what to use instead.
func (a *Agent) Refuses(args []string) error {
	for _, arg := range args {
		if arg == "--" {
			return fmt.Errorf("argument -- of %s: what follows would be read as a prompt; give the prompt before pccrun's own --", a.Name)
		}
		name, _, _ := strings.Cut(arg, "=")
		for _, r := range a.refuses {
			for _, flag := range r.flags {
				short := len(flag) == 2 && strings.HasPrefix(arg, flag) // -wNAME is -w NAME
				if name == flag || short {
					return fmt.Errorf("argument %s of %s: a task does not take it; %s", flag, a.Name, r.instead)
				}
			}
		}
	}
	return nil
}

// A Kind is what a step does.
type Kind string

// The kinds of steps, as they are printed.
const (
	Read      Kind = "read"  // reads or searches files
	Edit      Kind = "edit"  // writes files
	Run       Kind = "run"   // runs a command
	Fetch     Kind = "fetch" // asks the network by a tool of the agent's
	Says      Kind = "says"  // says something
	OtherTool Kind = "tool"  // any other tool
	Retry     Kind = "retry" // waits, and asks its API again
	Warn      Kind = "warn"  // reports trouble that does not end it
)

// A Step is one thing that an agent did. Its text is the agent's, so whoever prints it escapes it.
type Step struct {
	Kind   Kind
	What   string        // the files, the command, or the text; at most 4 KiB
	Result string        // in a few words: "exit 1", "+6 −2"; "" if the stream does not say
	Failed bool          // the tool failed
	Denied bool          // the agent's own rules refused the tool
	Wait   time.Duration // of Retry: how long
	Status int           // of Retry: the API's HTTP status, or 0
}

// Usage is what the model's API counted. Input is without what came from a cache.
type Usage struct {
	Input, CacheRead, CacheWrite, Output int64
	USD                                  float64 // the agent's own reckoning
	Priced                               bool    // whether the agent said USD
}

// Plus is what both are together.
func (u Usage) Plus(more Usage) Usage {
	return Usage{u.Input + more.Input, u.CacheRead + more.CacheRead, u.CacheWrite + more.CacheWrite, u.Output + more.Output, u.USD + more.USD, u.Priced || more.Priced}
}

// Since is what has come to an earlier usage.
func (u Usage) Since(was Usage) Usage {
	return Usage{u.Input - was.Input, u.CacheRead - was.CacheRead, u.CacheWrite - was.CacheWrite, u.Output - was.Output, u.USD - was.USD, u.Priced}
}

// An End is what the stream has said when it is at its end.
type End struct {
	Final        bool   // a final record came: the agent ended by itself
	Success      bool   // and said that all is well
	Reason       string // why not, in the agent's own word: error_max_budget_usd, "turn failed: …"
	Message      string // the last message of the agent, at most 64 KiB
	Conversation string // its id, "" if the stream did not say it
	Model        string
	Version      string   // of the agent, "" if the stream did not say it
	Usage        Usage    // of the whole conversation if Whole, else of this run
	Whole        bool     // Usage counts the earlier runs of the conversation too
	Denied       []string // the uses of tools that the agent's own rules refused: "Bash: rm -r build"
	Garbage      int      // lines that were not JSON, or too long
	LastCommand  *Step    // the last step that ran a command
}
