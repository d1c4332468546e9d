package netproxy

import (
	"context"
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
	open      int           // requests whose answers were not counted yet
	dearest   spending.USD  // of the answers so far
	counted   chan struct{} // closed when one more is; nil: nobody waits for it
	over      bool          // it was reported
	unwritten error         // an answer is in no file
}

// A Spend is what one answer has cost, or, with Over, why a request was not sent.
type Spend struct {
	wire.Spent
	Before spending.State // of the first file
	Now    spending.State
	Over   bool // a limit is reached, and a request was refused for it
}

// Meters reports whether a host is that of an API.
func (s *Spending) Meters(host string) bool {
	return spending.Metered(host) || slices.Contains(s.Hosts, host)
}

// leastReserve is what a request is taken to cost at least while its answer is not counted, and mostReserve bounds that.
const (
	leastReserve = 250_000
	mostReserve  = 1_000_000_000
)

// judge holds a request against the budget that the rules allow: a may become a refusal, or say how its answer is counted. While
// what is left may not last for what is under way and one more, it waits.
func (s *Spending) judge(ctx context.Context, a *wire.Answer, q wire.Question) {
	if s == nil || a.Verdict.Action == rules.Deny {
		return
	}
	api, why := spending.Judge(q.Method, q.Path)
	switch known := s.Meters(a.Verdict.Host); {
	case !known && (api == spending.None || q.Websocket || !spending.Shaped(q.Path)): // as far as anybody knows it goes to no API
		return
	case known && q.Websocket: // by which clients take the other way at once
		a.Status, a.Detail = 426, "with a budget: a websocket does not say what it costs"
		return
	case known && q.Rewrites != "":
		deny(a, "the field "+q.Rewrites+" may make another request of it")
		return
	case why != "":
		deny(a, why)
		return
	case api == spending.None:
		return
	}
	for wait := s.admit(a, api); wait != nil; wait = s.admit(a, api) {
		select {
		case <-wait:
		case <-ctx.Done():
			a.Status, a.Detail = 503, "the request is over"
			return
		}
	}
}

func deny(a *wire.Answer, detail string) {
	v := &a.Verdict
	v.Action, v.Reason, v.Rule, v.AllowWith, v.Detail = rules.Deny, rules.Budget, "", "", "with a budget: "+detail
	a.Detail = v.Detail
}

// admit lets a request go out, or refuses it; or it returns what is closed when an answer was counted, after which it is asked
// again.
func (s *Spending) admit(a *wire.Answer, api spending.API) (wait <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unwritten != nil { // the files hold less than was spent
		deny(a, "what was spent cannot be written: "+s.unwritten.Error())
		return nil
	}
	reserved := spending.USD(s.open+1) * min(max(s.dearest, leastReserve), mostReserve)
	for _, file := range s.Files {
		state, err := file.Read()
		switch left := state.Left(time.Now()); {
		case err != nil:
			deny(a, "what was spent cannot be read: "+err.Error())
		case state.Over():
			a.Status = 402
			deny(a, fmt.Sprintf("%s of %s spent: no further request goes out", state.Spent, state.Limit))
			s.refused(state)
		case left > 0:
			a.Status, a.RetryAfter = 429, int((left+time.Second-1)/time.Second)
			a.Detail = "the API wants no requests for " + left.Round(time.Second).String()
		case s.open > 0 && state.Limit > 0 && reserved > state.Limit-state.Spent:
			if s.counted == nil {
				s.counted = make(chan struct{})
			}
			return s.counted
		default:
			continue
		}
		return nil
	}
	a.Meter = string(api)
	s.open++
	return nil
}

// refused reports once that a limit is reached.
func (s *Spending) refused(state spending.State) {
	if !s.over {
		s.over = true
		s.event(Spend{Before: state, Now: state, Over: true})
	}
}

// Count adds what an answer has cost to each file.
func (s *Spending) Count(spent wire.Spent) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open > 0 {
		s.open--
	} else { // nobody asked: it is not the process as it should be, and what it says counts all the same
		spent.Note = "an answer to no request"
	}
	s.add(spent)
}

// add adds, and has those who wait asked again.
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
		report.Note, s.unwritten = failed.Error(), failed
	}
	s.dearest = max(s.dearest, spending.USD(spent.USD))
	if s.counted != nil {
		close(s.counted)
		s.counted = nil
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
	defer s.mu.Unlock()
	for ; s.open > 0; s.open-- {
		s.add(wire.Spent{USD: lostUSD, Note: "the process that reads answers has ended: one counts " + spending.USD(lostUSD).String()})
	}
}

func (s *Spending) event(report Spend) {
	if s.Event != nil {
		s.Event(Event{Kind: Spent, Time: time.Now(), Spend: &report})
	}
}
