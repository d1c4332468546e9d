//go:build unix

package task

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/shell"
)

// A Notifier is a program of the user's that is executed outside of any sandbox, in the root directory, when a task ends or has
// little time left. It gets one JSON object on standard input, and no word of it on its command line. The zero value is none.
type Notifier struct {
	program *programs.Program
	args    []string
	Bell    io.Writer // a terminal that is rung, nil for none
}

// notifyTime bounds how long the program may take.
const notifyTime = 30 * time.Second

// noWords are what a shell would read otherwise than [shell.Words]: no shell reads the command.
var noWords = regexp.MustCompile("[\"$`*?<>|&;(){}!#\\n\\t]|\\[")

// FindNotifier returns the notifier that a command line means, in words as sh(1) splits them. Its program is one that no run could
// write.
func FindNotifier(command string, finder *programs.Finder) (n Notifier, err error) {
	words, ok := shell.Words(command)
	if bare := regexp.MustCompile(`'[^']*'`).ReplaceAllString(command, ""); !ok || len(words) == 0 || noWords.MatchString(bare) {
		return n, hint.Errorf("write a script of your own, outside of every repository, and name it", "notify %q: want a program and its arguments: no shell reads them", command)
	}
	if n.program, err = finder.Find(words[0], nil); err != nil {
		return n, err
	}
	n.args = words[1:]
	return n, nil
}

// A notice is what the program gets.
type notice struct {
	V          int     `json:"v"`
	Event      string  `json:"event"` // end, or time: little of it is left
	Status     int     `json:"status"`
	Name       string  `json:"name"`
	State      string  `json:"state"`
	Why        string  `json:"why"`
	Agent      string  `json:"agent"`
	Repository string  `json:"repository"`
	Worktree   string  `json:"worktree"`
	Branch     string  `json:"branch"`
	Fetched    string  `json:"fetched"`
	Files      int     `json:"files"`
	SpentMS    int64   `json:"spent_ms"`
	USD        float64 `json:"usd"`
	Message    string  `json:"message"`
}

// messageRunes bounds what a notice has of a text.
const messageRunes = 1000

// harmless is a text on one line, without what acts on a terminal or changes the direction of writing: programs that show
// notices hardly look.
func harmless(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if runes := []rune(text); len(runes) > messageRunes {
		text = string(runes[:messageRunes]) + "…"
	}
	return text
}

// Notify says that a task has ended: with a status, or with an error.
func (p *Placed) Notify(status int, err error) {
	why := p.task.Why
	if err != nil {
		status, why = statusRefused, messages.InWords(err)
	}
	p.order.Notifier.tell(noticeOf(&p.task.Record, "end", status, why))
}

// noticeOf is what there is to say of a task.
func noticeOf(t *Record, event string, status int, why string) notice {
	return notice{
		V: messages.SchemaVersion, Event: event, Status: status, Name: harmless(t.Name), State: string(t.State), Why: harmless(why), Agent: t.Agent, Repository: harmless(t.Repository),
		Worktree: harmless(t.Worktree), Branch: harmless(t.Branch), Fetched: t.Fetched, Files: t.Changes.Files, SpentMS: t.Spent.Milliseconds(), USD: t.Usage.USD,
		Message: harmless(t.Message),
	}
}

// tell rings, and executes the program with what happened.
func (n *Notifier) tell(of notice) {
	if n.Bell != nil {
		_, _ = io.WriteString(n.Bell, "\a")
	}
	if n.program == nil {
		return
	}
	ctx, end := context.WithTimeout(context.Background(), notifyTime)
	defer end()
	cmd := n.program.Command(ctx, n.args...)
	cmd.Stdin = bytes.NewReader(append(events.Marshal(of), '\n'))
	if err := cmd.Run(); err != nil {
		messages.Say("notify: " + n.program.Path + ": " + cmp.Or(context.Cause(ctx), err).Error())
	}
}
