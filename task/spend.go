//go:build unix

package task

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/task/agent"
)

// spendingFile is what all runs of a task count in, in the directory of its record: one that is continued goes on with it.
const spendingFile = "spending"

// money is what a task may cost. The zero value counts nothing.
type money struct {
	file  *spending.File
	path  string
	began agent.Usage // of the task, when this began

	// The lock of what is seen guards these.
	used agent.Usage // since then, as it was counted
	over bool        // a request was refused, since the budget is spent
}

// budgetText is what is announced of a budget.
func budgetText(budget spending.USD) string {
	if budget == 0 {
		return ""
	}
	return ", " + budget.String() + " from now on"
}

// openMoney opens what the task counts in, if the order or an earlier one has a budget. An order's is for what comes from now on.
func (w *Worked) openMoney() error {
	path := filepath.Join(w.store.dir, w.task.Key, spendingFile)
	file, err := spending.Open(path)
	switch {
	case err == nil && w.order.Budget > 0:
		_, err = file.Extend(w.order.Budget)
	case errors.Is(err, fs.ErrNotExist) && w.order.Budget == 0:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		file, err = spending.Create(path, w.order.Budget)
	}
	if err != nil {
		return fmt.Errorf("budget: %w", err)
	}
	w.money = money{file: file, path: path, began: w.task.Usage}
	return nil
}

// spends are the flags of a run that the agent's hosts and logins are in.
func (w *Worked) spends(flags []string) []string {
	if w.money.file == nil {
		return flags
	}
	return append([]string{"--spending", w.money.path}, flags...)
}

// spent takes in what an answer has cost.
func (w *Worked) spent(e events.Spending) {
	usd := func(dollars float64) spending.USD { return spending.USD(dollars*1e6 + 0.5) }
	text := fmt.Sprintf("%s of %s spent", usd(e.Total), usd(e.Limit))
	if e.Over {
		w.seen.mu.Lock()
		first := !w.money.over
		w.money.over = true
		w.seen.mu.Unlock()
		if first {
			w.to.Line(text + ": no further request goes out; the agent is interrupted")
		}
		return
	}
	w.seen.mu.Lock()
	add(&w.money.used, agent.Usage{Input: e.Input, CacheRead: e.CacheRead, CacheWrite: e.CacheWrite, Output: e.Output, USD: e.USD, Priced: true})
	w.seen.mu.Unlock()
	for _, part := range [...]int{83, 50} {
		if mark := e.Limit * float64(part) / 100; e.Limit > 0 && e.Before < mark && e.Total >= mark {
			w.to.Line(fmt.Sprintf("%s (%d %%)", text, part))
			return
		}
	}
}

// cost puts what was counted at the network in the place of what the agent says.
func (w *Worked) cost() {
	if w.money.file == nil {
		return
	}
	w.seen.mu.Lock()
	w.usage = w.money.used
	w.seen.mu.Unlock()
	w.task.Usage = w.money.began
	add(&w.task.Usage, w.usage)
}

// moneyOver reports whether the budget has ended the agent, and the verdict that this is.
func (w *Worked) moneyOver() (verdict, bool) {
	w.seen.mu.Lock()
	over := w.money.over
	w.seen.mu.Unlock()
	if !over {
		return verdict{}, false
	}
	why := "its budget is spent"
	if state, err := w.money.file.Read(); err == nil && state.Over() {
		why += fmt.Sprintf(": %s of %s", state.Spent, state.Limit)
	}
	return verdict{Stopped, statusTimedOut, why}, true
}

// usedText says what a task has used in this run of it.
func (w *Worked) usedText() string {
	if w.money.file == nil {
		return usageText(w.usage, w.task.Agent)
	}
	w.cost()
	text := usageText(w.usage, "")
	if state, err := w.money.file.Read(); err == nil && text != "" {
		text += fmt.Sprintf(" (counted at the network: %s of %s)", state.Spent, state.Limit)
	}
	return text
}
