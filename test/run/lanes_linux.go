package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// Lanes are the lists from which the identities take packages, the slowest first,
// so that none works long after the other.
type lanes struct {
	own    map[string][]testPackage // by identity
	either []testPackage            // whoever is free runs it
}

// lay puts each package into the lanes of those who run tests of it.
func lay(packages []testPackage, identities []identity, o options) lanes {
	l := lanes{own: map[string][]testPackage{}}
	for _, p := range slices.SortedStableFunc(slices.Values(packages), slowest) {
		if p.row.Who == verdicts.Once && !o.long && len(identities) > 1 {
			l.either = append(l.either, p)
			continue
		}
		for _, who := range identities {
			if _, has := p.tests(who, o); has {
				l.own[who.name] = append(l.own[who.name], p)
			}
		}
	}
	return l
}

// A worker runs one package at a time, as the first of its identities that has one left.
type worker []identity

// next takes the package that a worker runs next, and as whom.
func (l *lanes) next(w worker) (who identity, p testPackage, ok bool) {
	for _, who := range w {
		if own := l.own[who.name]; len(own) > 0 {
			l.own[who.name] = own[1:]
			return who, own[0], true
		}
	}
	if len(l.either) == 0 {
		return who, p, false
	}
	p, l.either = l.either[0], l.either[1:]
	return w[0], p, true
}

func slowest(a, b testPackage) int { return int(b.row.Took - a.row.Took) }

// grace is how long a process may outlive the tests that started it.
const grace = await.Patience

// runAll runs the packages, one by each worker at a time. No two workers are the same made user: what
// one leaves can be told from what the others leave.
func (s *stage) runAll(ctx context.Context, workers []worker, o options, total *report) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := lay(s.packages, identities(workers), o)
	var mu sync.Mutex
	one := func(who identity, p testPackage) error {
		before := who.belongings(public)
		r, err := s.run(ctx, who, p, o)
		var running []string
		if who.made != nil {
			running = who.made.End(grace)
		}
		left, leftErr := who.tidy(public, before)
		if err := errors.Join(err, leftErr); err != nil {
			return err
		}
		for _, process := range running {
			r.failures = append(r.failures, fmt.Sprintf("%s (%s): leaves running %s", p.path, who.name, process))
		}
		for _, path := range left {
			r.failures = append(r.failures, fmt.Sprintf("%s (%s): leaves %s", p.path, who.name, path))
		}
		mu.Lock()
		defer mu.Unlock()
		r.print(who, p, o.verbose)
		total.add(&r)
		total.lanes = append(total.lanes, lane{who.name, p.row, r.took})
		return nil
	}
	next := func(w worker) (identity, testPackage, bool) {
		mu.Lock()
		defer mu.Unlock()
		return l.next(w)
	}
	errs := make([]error, len(workers))
	var wait sync.WaitGroup
	for i, w := range workers {
		wait.Go(func() {
			for who, p, ok := next(w); ok && errs[i] == nil; who, p, ok = next(w) {
				errs[i] = one(who, p)
			}
			if errs[i] != nil {
				cancel()
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
