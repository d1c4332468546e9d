package netproxy

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// Spending counts what the requests to model APIs cost, and lets none go out when a limit is reached. Its methods may be
// called from many goroutines, and of nil: that counts nothing.
type Spending struct {
	Files []*spending.File // which all count; what is reported is of the first
	Hosts []string         // of APIs, beside those that everybody knows
	Event func(Event)      // as in [Config]

	mu        sync.Mutex
	open      int   // requests whose answers were not counted yet
	over      bool  // it was reported
	unwritten error // an answer is in no file
}

// A Spend is what one answer has cost, or, with Over, why a request was not sent.
type Spend struct {
	wire.Spent
	Before spending.State // of the first file
	Now    spending.State
	Over   bool // a limit is reached, and a request was refused for it
}

// unmetered is why a request is refused that a budget cannot count.
const unmetered rules.Reason = "budget"

// Meters reports whether a host is that of an API.
func (s *Spending) Meters(host string) bool {
	return spending.Metered(host) || slices.Contains(s.Hosts, host)
}

// judge holds a request against the budget that the rules allow: a may become a refusal, or say how its answer is counted.
func (s *Spending) judge(a *wire.Answer, q wire.Question) {
	if s == nil || a.Verdict.Action == rules.Deny || !s.Meters(a.Verdict.Host) {
		return
	}
	deny := func(detail string) {
		v := &a.Verdict
		v.Action, v.Reason, v.Rule, v.AllowWith, v.Detail = rules.Deny, unmetered, "", "", "with a budget: "+detail
		a.Detail = v.Detail
	}
	api, why := spending.Judge(q.Method, q.Path)
	switch {
	case q.Websocket: // by which clients take the other way at once
		a.Status, a.Detail = 426, "with a budget: a websocket does not say what it costs"
		return
	case q.Rewrites != "":
		deny("the field " + q.Rewrites + " may make another request of it")
		return
	case why != "":
		deny(why)
		return
	case api == spending.None:
		return
	}
	s.mu.Lock()
	unwritten := s.unwritten
	s.mu.Unlock()
	if unwritten != nil { // the files hold less than was spent
		deny("what was spent cannot be written: " + unwritten.Error())
		return
	}
	for _, file := range s.Files {
		state, err := file.Read()
		switch left := state.Left(time.Now()); {
		case err != nil:
			deny("what was spent cannot be read: " + err.Error())
		case state.Over():
			a.Status = 402
			deny(fmt.Sprintf("%s of %s spent: no further request goes out", state.Spent, state.Limit))
			s.refused(state)
		case left > 0:
			a.Status, a.RetryAfter = 429, int((left+time.Second-1)/time.Second)
			a.Detail = "the API wants no requests for " + left.Round(time.Second).String()
		default:
			continue
		}
		return
	}
	a.Meter = string(api)
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
}

// refused reports once that a limit is reached.
func (s *Spending) refused(state spending.State) {
	s.mu.Lock()
	first := !s.over
	s.over = true
	s.mu.Unlock()
	if first {
		s.event(Spend{Before: state, Now: state, Over: true})
	}
}

// Count adds what an answer has cost to each file.
func (s *Spending) Count(spent wire.Spent) {
	if s == nil {
		return
	}
	s.mu.Lock()
	known := s.open > 0
	if known {
		s.open--
	}
	s.mu.Unlock()
	if !known { // nobody asked: it is not the process as it should be, and what it says counts all the same
		spent.Note = "an answer to no request"
	}
	s.add(spent)
}

func (s *Spending) add(spent wire.Spent) {
	report := Spend{Spent: spent}
	var failed error
	for i, file := range s.Files {
		if spent.RetryAfter > 0 {
			failed = errors.Join(failed, file.Hold(time.Now().Add(time.Duration(spent.RetryAfter)*time.Second)))
		}
		before, now, err := file.Add(spending.USD(spent.USD))
		if failed = errors.Join(failed, err); i == 0 {
			report.Before, report.Now = before, now
		}
	}
	if failed != nil {
		report.Note = failed.Error()
		s.mu.Lock()
		s.unwritten = failed
		s.mu.Unlock()
	}
	if spent != (wire.Spent{}) || failed != nil {
		s.event(report)
	}
}

// lostUSD is what an answer counts that nobody could read to its end, since the process that reads it has ended.
const lostUSD = 1_000_000

// Lost counts the answers that nobody will report any more.
func (s *Spending) Lost() {
	if s == nil {
		return
	}
	s.mu.Lock()
	n := s.open
	s.open = 0
	s.mu.Unlock()
	for range n {
		s.add(wire.Spent{USD: lostUSD, Note: "the process that reads answers has ended: one counts " + spending.USD(lostUSD).String()})
	}
}

func (s *Spending) event(report Spend) {
	if s.Event != nil {
		s.Event(Event{Kind: Spent, Time: time.Now(), Spend: &report})
	}
}
