package inside

import (
	"encoding/json"
	"strconv"

	"github.com/pccrun/pccrun/profiles"
)

// At a place that a provider made elsewhere the same program is the whole of pccrun: it runs
// the policy as on any machine (the native provider), beside the provider's own daemon, and
// decides there on connections, by the policy that came over the stream. So nothing of what
// the command loads goes by way of the user's line, and nothing that is cut there breaks it.
//
//	Attach   what the provider executes, over and over: it carries the line
//	Serve    started by the first of them, outlives them: the spool, and what the launcher talks to
//	Launch   a run of the native provider: the trial, then the command
//	Reach    what the trial executes as the command would be
const (
	Attach  = "--attach" // DIR [FILES]
	Serving = "--serve"  // DIR
	Launch  = "--launch"
	Reach   = "--reach" // ADDRESS…
)

// OfConversation is the source of the rules for directories of the home that the launcher has filled, and fetches.
const OfConversation = "conversation"

// FileEnd is how a file of a line ends that came whole, where a provider gives a program no input: what it would read
// comes as files in the directory FILES, by numbers that begin at 0 ([FileName]).
const FileEnd = "\n.\n"

// FileName is the name of one.
func FileName(n int) string { return "in-" + strconv.Itoa(n) }

// What the launcher's descriptors are at a place elsewhere, beside the command's own three.
const (
	LaunchFD  = 3 // a [Remote] comes, JSON; with [Remote.Ask] each [Question] goes out, and its [Answer] comes
	EventsFD  = 4 // its events
	SaidFD    = 5 // what it says itself
	StartedFD = 6 // one byte when the command runs
)

// Remote is what a place elsewhere is asked to run. It holds secrets: it is printed nowhere.
type Remote struct {
	Policy  *profiles.Policy // as it is to be kept there
	Argv    []Text
	Dir     string
	Environ []Text          // what the policy's variables are taken from
	Secrets []Text          // what it injects, NAME=VALUE: stand-ins until the trial has shown that they are kept from the command
	Seeds   map[string]Text // what the home begins with, by path
	Stdin   bool
	Screen

	Ask bool // the user is asked about hosts that no rule speaks of

	Daemons []uint16 // ports of the provider's own, which the command must not reach
	Sockets []string // likewise, Unix sockets
}

// Question asks whether a host may be reached.
type Question struct {
	Number int
	Host   string
	Port   uint16
}

// Answer is the [netproxy.Permission] that is given to a question.
type Answer struct {
	Number     int
	Permission uint8
}

// Trial is what a place elsewhere lets pccrun keep.
type Trial struct {
	Answers []profiles.Answer `json:",omitempty"`
	Daemons []string          `json:",omitempty"` // addresses at which a daemon of the provider's answers
	Reached []string          `json:",omitempty"` // of these, those that answer the command too
	Refused *Refusal          `json:",omitempty"` // the command would not be started
	Root    bool              // pccrun is root there, and so another user than the command
	Given   bool              `json:",omitempty"` // root's copy is the command's user's from here on, which changes the times of its files
	Bare    string            `json:",omitempty"` // why no namespace can be made there; "" where they surround the command
}

// Refusal says why a command is not started at a place elsewhere.
type Refusal struct {
	Code      int
	Guarantee string `json:",omitempty"`
	Text      string
	Hint      string `json:",omitempty"`
}

// Done says how a command at a place elsewhere ended.
type Done struct {
	Ended
	OOM           bool
	Memory        int64
	Processes     int64
	Read, Written int64
	IOBy          string
	Refused       *Refusal `json:",omitempty"` // it did not start
}

// Event is one of the run's, as package events writes them.
type Event = json.RawMessage
