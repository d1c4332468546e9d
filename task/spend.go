//go:build unix

package task

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/netproxy/meter"
	"github.com/pccrun/pccrun/task/agent"
)

// spendingFile is what all runs of a task count in, in the directory of its record: one that is continued goes on with it.
const spendingFile = "spending"

// money is what a task may cost, and what was counted of it. Methods of nil count nothing.
type money struct {
	file  *spending.File // of the task, or else the one that it shares
	paths []string       // of that, and of the one that it shares
	began agent.Usage    // of the task, when this began
	ended chan struct{}  // closed when the agent's stream says that all is spent

	mu   sync.Mutex
	used agent.Usage // since then
	over bool        // a request was refused, since the budget is spent

	stream *stream // nil: what it costs is counted at the network
}

// A stream is what an agent says of its costs, as it works: it counts where nobody can read its requests.
type stream struct {
	files  []*spending.File // of all paths
	prices *meter.Table
	said   agent.Usage  // of this run, as it is counted
	cost   spending.USD // of that
	works  bool         // the run goes on
}

// openMoney opens what a task counts in, if the order or an earlier one has a budget. An order's is for what comes from now on.
func openMoney(p *Placed) (*money, error) {
	path := filepath.Join(p.store.dir, p.task.Key, spendingFile)
	file, err := spending.Open(path)
	switch budget := p.order.Budget; {
	case err == nil && budget > 0:
		_, err = file.Extend(budget)
	case errors.Is(err, fs.ErrNotExist) && budget == 0 && p.order.Spending == "":
		return nil, nil
	case errors.Is(err, fs.ErrNotExist) && budget == 0:
		path = p.order.Spending
		file, err = spending.Open(path)
	case errors.Is(err, fs.ErrNotExist):
		file, err = spending.Create(path, budget)
	}
	if err != nil {
		return nil, fmt.Errorf("budget: %w", err)
	}
	m := &money{file: file, paths: []string{path}, began: p.task.Usage, ended: make(chan struct{})}
	if shared := p.order.Spending; shared != "" && shared != path {
		m.paths = append(m.paths, shared)
	}
	return m, nil
}

// togetherFile begins the names of what tasks count in that work at once; the lock beside it, by lockEnd, dies with its maker.
const (
	togetherFile = "." + spendingFile + "-"
	lockEnd      = ".lock"
)

// Together makes what tasks count in that work at once, with a limit for all, 0 for none. Whoever has made it calls end. What
// others left who were killed goes.
func (s Store) Together(workspace string, limit spending.USD) (file *spending.File, path string, end func(), err error) {
	all, err := state.Open(s.dir, workspace)
	if err != nil {
		return nil, "", nil, err
	}
	defer all.Close()
	making, err := state.WaitLock(context.Background(), all, togetherFile+lockEnd)
	if err != nil {
		return nil, "", nil, err
	}
	defer making.Release()
	dropTogether(all)
	path = filepath.Join(s.dir, togetherFile+rand.Text())
	held, err := state.TryLock(all, filepath.Base(path)+lockEnd)
	if err != nil {
		return nil, "", nil, err
	}
	if file, err = spending.Create(path, limit); err != nil {
		return nil, "", nil, errors.Join(err, held.Release())
	}
	return file, path, func() { _ = errors.Join(os.Remove(path), os.Remove(path+lockEnd), file.Close(), held.Release()) }, nil
}

// dropTogether removes what nobody holds any more.
func dropTogether(all *os.Root) {
	list, err := fs.ReadDir(all.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range list {
		name, is := strings.CutPrefix(e.Name(), togetherFile)
		if name, of := strings.CutSuffix(name, lockEnd); is && of && name != "" {
			if held, err := state.TryLock(all, e.Name()); err == nil {
				_ = errors.Join(all.Remove(togetherFile+name), all.Remove(e.Name()), held.Release())
			}
		} else if is && strings.HasSuffix(name, ".new") {
			_ = all.Remove(e.Name())
		}
	}
}

// budgetText is what is announced of a budget.
func budgetText(budget spending.USD) string {
	if budget == 0 {
		return ""
	}
	return ", " + budget.String() + " from now on"
}

// counting carries a phase out that may reach the agent's hosts. If nobody could count what it costs there, and the agent's own
// stream says it as it goes, that counts from then on.
func (w *Worked) counting(ph phase) (outcome, error) {
	m, bare := w.money, ph.flags
	if m != nil && m.stream != nil {
		m.stream.said, m.stream.cost, m.stream.works = agent.Usage{}, 0, true
		defer func() { m.stream.works = false }()
		return ph.runIn(w.Placed)
	}
	ph.flags = m.counted(bare)
	o, err := ph.runIn(w.Placed)
	if err != nil || m == nil || o.refused == nil || !w.order.Agent.UsageAsItGoes || !o.refused.Uncounted {
		return o, err
	}
	s := &stream{}
	if s.prices, err = meter.Load(w.order.Prices); err != nil {
		return o, err
	}
	for _, path := range m.paths {
		file, err := spending.Open(path)
		if err != nil {
			return o, fmt.Errorf("budget: %w", err)
		}
		s.files = append(s.files, file)
	}
	m.stream = s
	for _, file := range s.files {
		if now, err := file.Read(); err != nil {
			return o, fmt.Errorf("budget: %w", err)
		} else if now.Over() {
			m.over = true
			return outcome{stopped: true}, nil
		}
	}
	w.to.Line(o.refused.Cause + ": what " + w.order.Agent.Name + " says of its own costs as it works is counted, and nothing else")
	ph.flags = bare
	return w.counting(ph)
}

// end is closed when the agent's stream says that all is spent.
func (m *money) end() <-chan struct{} {
	if m == nil {
		return nil
	}
	return m.ended
}

// follow counts what an agent has said of its run so far, if nothing else can. What it says only grows.
func (m *money) follow(said agent.Usage, model string, to Reporter) {
	if m == nil || m.stream == nil {
		return
	}
	s := m.stream
	cost, note := spending.USD(math.Round(said.USD*1e6)), ""
	if cost == 0 {
		cost, note = s.prices.Price(spending.Anthropic, meter.Usage{Model: model, Input: said.Input, CacheRead: said.CacheRead, CacheWrite: said.CacheWrite, Output: said.Output})
	}
	more := cost - s.cost
	if more <= 0 {
		return
	}
	gained := said.Since(s.said)
	e := events.Spending{Model: model, Input: gained.Input, CacheRead: gained.CacheRead, CacheWrite: gained.CacheWrite, Output: gained.Output, USD: more.Dollars(), Note: note}
	s.said, s.cost = said, cost
	for i, file := range s.files {
		before, now, err := file.Add(more)
		if err != nil { // nobody counts any more
			to.Line("budget: " + err.Error())
		}
		if i == 0 || now.Over() {
			e.Before, e.Total, e.Limit = before.Spent.Dollars(), now.Spent.Dollars(), now.Limit.Dollars()
		}
		e.Over = e.Over || now.Over() || err != nil
	}
	over := e.Over
	e.Over = false
	m.event(e, to)
	if e.Over = over; over && s.works && !m.over { // else it has ended by itself
		m.event(e, to)
		close(m.ended)
	}
}

// counted are the flags of a run that may reach the agent's hosts.
func (m *money) counted(flags []string) []string {
	if m == nil {
		return flags
	}
	var files []string
	for _, path := range m.paths {
		files = append(files, "--spending", path)
	}
	return append(files, flags...)
}

// event takes in what an answer has cost, and prints when half of the budget is spent, five sixths, and all.
func (m *money) event(e events.Event, to Reporter) {
	s, is := e.(events.Spending)
	if m == nil || !is {
		return
	}
	usd := func(dollars float64) spending.USD { return spending.USD(dollars*1e6 + 0.5) }
	text := fmt.Sprintf("%s of %s spent", usd(s.Total), usd(s.Limit))
	m.mu.Lock()
	first := s.Over && !m.over
	m.over = m.over || s.Over
	if !s.Over {
		m.used = m.used.Plus(agent.Usage{Input: s.Input, CacheRead: s.CacheRead, CacheWrite: s.CacheWrite, Output: s.Output, USD: s.USD, Priced: true})
	}
	m.mu.Unlock()
	if first {
		if m.stream == nil {
			text += ": no further request goes out"
		}
		to.Line(text + "; the agent is interrupted")
	}
	for _, part := range [...]int{83, 50} {
		if mark := s.Limit * float64(part) / 100; !s.Over && s.Limit > 0 && s.Before < mark && s.Total >= mark {
			to.Line(fmt.Sprintf("%s (%d %%)", text, part))
			return
		}
	}
}

// cost puts what was counted in the place of what the agent says of this run and of the task.
func (m *money) cost(run, all *agent.Usage) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	*run, *all = m.used, m.began.Plus(m.used)
}

// spent reports whether the budget has ended the agent, and says so.
func (m *money) spent() (why string, over bool) {
	if m == nil {
		return "", false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	why = "its budget is spent"
	if now, err := m.file.Read(); err == nil && now.Over() {
		why += fmt.Sprintf(": %s of %s", now.Spent, now.Limit)
	}
	return why, m.over
}

// usedText says what a run of a task has used: by what was counted, else by the agent's own word.
func (m *money) usedText(run agent.Usage, by string) string {
	if m == nil {
		return usageText(run, by)
	}
	text := usageText(run, "")
	if now, err := m.file.Read(); err == nil && text != "" {
		where := "at the network"
		if m.stream != nil {
			where = "by " + by + "'s own word"
		}
		text += fmt.Sprintf(" (counted %s: %s of %s)", where, now.Spent, now.Limit)
	}
	return text
}
