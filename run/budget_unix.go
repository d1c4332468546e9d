//go:build unix

package run

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
)

// PricesFile is the user's own table of prices, in the directory of settings.
const PricesFile = "prices.jsonc"

// pricesSize bounds it.
const pricesSize = 64 << 10

// openBudget opens what a run counts in: a file of its own for --budget, and those of whoever started it with others.
func openBudget(r *resolved) (*spending.Budget, error) {
	if r.req.Budget == "" && len(r.req.Spending) == 0 {
		return nil, nil
	}
	b := &spending.Budget{}
	var err error
	if b.Prices, err = Prices(r.req.Host.Getenv, r.policy); err != nil {
		return nil, err
	}
	if r.req.DryRun {
		return b, nil
	}
	if r.req.Budget != "" {
		limit, err := spending.ParseUSD(r.req.Budget)
		if err != nil {
			return nil, err
		}
		root, err := state.Open(r.dirs.State, r.policy.Workspace)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		file, err := spending.Unnamed(r.dirs.State, limit)
		if err != nil {
			return nil, err
		}
		b.Files = append(b.Files, file)
	}
	for _, path := range r.req.Spending {
		file, err := openSpending(r.policy, path)
		if err != nil {
			return nil, &profiles.Error{Cause: "flag --spending: " + err.Error()}
		}
		b.Files = append(b.Files, file)
	}
	return b, nil
}

// Prices are the user's own, as package meter reads them; "" for none.
func Prices(getenv func(string) string, policy *profiles.Policy) (string, error) {
	dirs, err := state.Find(getenv, policy.Home)
	if err != nil {
		return "", err
	}
	root, err := state.OpenExisting(dirs.Config, policy.Workspace)
	if err == nil {
		defer root.Close()
		var text []byte
		if text, err = state.ReadFile(root, PricesFile, pricesSize); err == nil {
			text, err = profiles.JSON(PricesFile, string(text))
			return string(text), err
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return "", err
}

// openSpending opens a file that others count in, where the command cannot write it.
func openSpending(policy *profiles.Policy, path string) (*spending.File, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, err
	}
	if policy.Changes(path) {
		return nil, fmt.Errorf("%s: the command could write it", path)
	}
	return spending.Open(path)
}

// spent is what a run has heard of its budget.
type spent struct {
	mu    sync.Mutex
	notes map[string]bool
	over  atomic.Pointer[string] // how much of how much, once a request was refused for it
}

// maxNotes bounds what is printed of guesses, and interruptTime is how long a command has to end after an interrupt.
const (
	maxNotes      = 8
	interruptTime = 10 * time.Second
)

// Spent takes what an answer has cost. When a request was refused for want of money the command is ended.
func (o observer) Spent(e events.Spending) {
	o.tell(e)
	usd := func(dollars float64) spending.USD { return spending.USD(dollars*1e6 + 0.5) }
	text := usd(e.Total).String() + " of " + usd(e.Limit).String()
	if e.Note != "" && o.spent.fresh(e.Note) {
		o.warn(events.Warning{Text: "cost: " + e.Note}, "cost: "+e.Note)
	}
	if e.Over {
		if o.spent.over.CompareAndSwap(nil, &text) {
			o.endSpent()
		}
		return
	}
	for _, part := range [...]float64{0.83, 0.5} {
		if mark := e.Limit * part; e.Limit > 0 && e.Before < mark && e.Total >= mark {
			if !o.req.Quiet {
				sayNow(o.caught, text+" spent")
			}
			return
		}
	}
}

// fresh reports whether a note is new, and there is room for it.
func (s *spent) fresh(note string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notes[note] || len(s.notes) == maxNotes {
		return false
	}
	if s.notes == nil {
		s.notes = map[string]bool{}
	}
	s.notes[note] = true
	return true
}

// endSpent ends the command as a limit of time does: it is interrupted, and killed where it does not end.
func (f *flow) endSpent() {
	select {
	case f.signals <- linuxNumber(unix.SIGINT):
	default:
	}
	time.AfterFunc(interruptTime, f.cancel)
}
