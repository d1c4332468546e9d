package run

import (
	"fmt"
	"strings"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/native"
)

// attempts turns what a command tried of files into denials, where the policy
// wants to hear of it (`"report": "attempts"`). A command that tries the same
// thing for ever, or ever new things, is told of no more than the bounds.
type attempts struct {
	launch *launch
	told   map[native.Attempt]int
}

const (
	maxAttempts = 256 // different ones
	maxRepeats  = 16  // of each
)

func (a *attempts) begin(l *launch) {
	if l.policy.Attempts || l.policy.ProtectStrict {
		*a = attempts{launch: l, told: map[native.Attempt]int{}}
		l.run.Attempted = a.tell
	}
}

// tell is called from one goroutine.
func (a *attempts) tell(t native.Attempt) {
	n := a.told[t]
	if n == maxRepeats || n == 0 && len(a.told) == maxAttempts {
		return
	}
	a.told[t] = n + 1
	a.launch.log.Emit(events.Denial{Guarantee: string(t.Guarantee), What: "write " + t.Path, Rule: t.Rule, Hint: t.Hint})
	a.launch.log.Start()
}

// end tells which secrets of the home were looked for.
func (a *attempts) end(end *native.End) {
	if a.launch == nil || end == nil {
		return
	}
	p := a.launch.policy
	for _, path := range end.Looked {
		rule := p.Decide(path).Rule
		a.launch.log.Emit(events.Denial{
			Guarantee: string(profiles.FSHide), What: "read " + path, Rule: rule.Access.String() + " " + rule.Text() + " (" + rule.Origin.String() + ")", Hint: "--read " + shell.Quote(path),
		})
	}
}

// maxWithheld bounds the variables that are named at exit.
const maxWithheld = 10

// withheld names the variables that look like secrets and were not passed.
// Whether the command looked for them nobody can tell: it reads its memory.
func (a *attempts) withheld(end *native.End) {
	if a.launch == nil || end == nil || !a.launch.policy.Attempts {
		return
	}
	names := a.launch.policy.Withheld(a.launch.req.Host.Environ)
	if len(names) == 0 {
		return
	}
	more := ""
	if n := len(names) - maxWithheld; n > 0 {
		names, more = names[:maxWithheld], fmt.Sprintf(" and %d more", n)
	}
	text := "withheld from the environment: " + strings.Join(names, ", ") + more
	a.launch.log.Emit(events.Warning{Text: text, Hint: "--env NAME passes one"})
	if !a.launch.req.Quiet {
		messages.Say(text)
	}
}
