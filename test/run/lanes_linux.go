package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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

// next takes the package that an identity runs next.
func (l *lanes) next(who string) (p testPackage, ok bool) {
	if own := l.own[who]; len(own) > 0 {
		l.own[who] = own[1:]
		return own[0], true
	}
	if len(l.either) == 0 {
		return p, false
	}
	p, l.either = l.either[0], l.either[1:]
	return p, true
}

func slowest(a, b testPackage) int { return int(b.row.Took - a.row.Took) }

// grace is how long a process may outlive the tests that started it.
const grace = time.Minute

// runAll runs the packages: root's beside the user's. A user's package has no other of
// that user beside it, so that what the user leaves can be told from what others leave.
func (s *stage) runAll(ctx context.Context, identities []identity, o options, total *report) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := lay(s.packages, identities, o)
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
	next := func(who identity) (testPackage, bool) {
		mu.Lock()
		defer mu.Unlock()
		return l.next(who.name)
	}
	errs := make([]error, len(identities))
	var wait sync.WaitGroup
	for i, who := range identities {
		wait.Go(func() {
			for p, ok := next(who); ok && errs[i] == nil; p, ok = next(who) {
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
