//go:build unix

package many

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/task"
	"github.com/pccrun/pccrun/task/agent"
)

// States of a task, beside those that a record has.
const (
	Waiting  task.State = "waiting"   // for a place
	Refused  task.State = "refused"   // pccrun has not begun it, or could not go on
	NotBegun task.State = "not begun" // the others were ended before
)

// A Status is what is known of a task.
type Status struct {
	Task
	State task.State
	Began time.Time // zero until then
	Took  time.Duration
	Last  string // what it did last: the agent's words
	Why   string // it has not succeeded
	Hint  string
	Result
}

// Over reports whether nothing more comes.
func (s *Status) Over() bool { return s.State != Waiting && s.State != task.Working }

// A Result is what a task's last line says of it.
type Result struct {
	Status     int      `json:"status"`
	Repository string   `json:"repository"`
	Worktree   string   `json:"worktree"`
	Branch     string   `json:"branch"`
	Base       string   `json:"base"`
	Fetched    string   `json:"fetched"`
	Commits    int      `json:"commits"`
	Files      int      `json:"files"`
	Added      int      `json:"added"`
	Removed    int      `json:"removed"`
	Usage      Usage    `json:"usage"`
	Denials    []string `json:"denials"`
	Findings   []string `json:"findings"`
}

// Usage is what the agent has used, as far as it is said.
type Usage struct {
	Input  int64   `json:"input"`
	Output int64   `json:"output"`
	USD    float64 `json:"usd"`
	Priced bool    `json:"priced"` // whether usd says something
}

// A State is what is known of all tasks at a moment.
type State struct {
	Plan  Plan
	Tasks []Status
	Began time.Time
	Took  time.Duration // of all, when they are over
	Hold  time.Time     // the API wants no request before, as far as anybody says
	Spent spending.State
}

// spent takes in what all have spent together.
func (s *State) spent(now spending.State) {
	if s.Spent = now; now.Until.After(s.Hold) {
		s.Hold = now.Until
	}
}

// count is how many tasks are in a state.
func (s *State) count(state task.State) (n int) {
	for i := range s.Tasks {
		if s.Tasks[i].State == state {
			n++
		}
	}
	return n
}

// costText is what the tasks have cost, "" if nobody has said so: as it was counted, or by the agents' own word.
func (s *State) costText() string {
	if s.Spent.Limit > 0 {
		return fmt.Sprintf(", %s of %s", s.Spent.Spent, s.Spent.Limit)
	}
	usd, priced := 0.0, false
	for i := range s.Tasks {
		usd, priced = usd+s.Tasks[i].Usage.USD, priced || s.Tasks[i].Usage.Priced
	}
	if !priced {
		return ""
	}
	return fmt.Sprintf(", $%.2f", usd)
}

// A line is what a task has printed: see cmd/pccrun/help/json.txt.
type line struct {
	Type   string
	Kind   agent.Kind
	What   string
	WaitMS int64 `json:"wait_ms"`
	Status int   // of a retry the API's, of a result the task's
	State  task.State
	Why    string
	Errors []struct{ Text, Hint string }
}

// longestHold bounds how long the word of one agent keeps other tasks from beginning.
const longestHold = time.Hour

// read takes in a line that a task has printed.
func (s *State) read(i int, text []byte, now time.Time) {
	var l line
	t := &s.Tasks[i]
	if json.Unmarshal(text, &l) != nil {
		return // how it ends says what is wrong
	}
	switch l.Type {
	case "step":
		t.Last = string(l.Kind) + " " + l.What
		if until := now.Add(time.Duration(min(l.WaitMS, longestHold.Milliseconds())) * time.Millisecond); l.Kind == agent.Retry && limits(l.Status) && until.After(s.Hold) {
			s.Hold = until
		}
	case "denied":
		t.Last = "denied " + l.What
	case "result":
		if json.Unmarshal(text, &t.Result) == nil {
			t.State, t.Why = l.State, l.Why
		}
	case "refused":
		t.State, t.Result.Status = Refused, refused
		for _, e := range l.Errors {
			t.Why, t.Hint = e.Text, e.Hint
		}
	}
}

// refused is the exit status of a task that was not begun, or could not go on.
const refused = 125

// limits reports whether an API's status says that requests come too fast, or that it has too much to do: RFC 6585, and 529
// of Anthropic's.
func limits(status int) bool { return status == 429 || status == 529 }

// end takes in that a task's process has ended.
func (s *State) end(i int, e End, now time.Time) {
	t := &s.Tasks[i]
	t.Took = now.Sub(t.Began)
	if t.State == task.Working { // its process has not said
		t.State, t.Why, t.Result.Status = task.Failed, e.Said, e.Status
		if t.Why == "" {
			t.Why = fmt.Sprintf("its process ended without a result (%s)", e.How)
		}
	}
}
