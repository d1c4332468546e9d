package netproxy

import (
	"sync"
	"time"
)

// A name below a wildcard is resolved when a connection to it is tried, and tells
// whoever answers for the domain's names whatever it spells. So there are no more than
// this many that were not resolved before, in a minute: a megabyte takes half an hour
// so, where it took seconds. Which of those that are known a program asks for again
// tells less.
const (
	maxWild      = 256
	maxKnown     = 4096 // that are remembered
	tooManyNames = "more than 256 new names under wildcards in a minute"
)

// wild counts the names that only a wildcard allows.
type wild struct {
	mu    sync.Mutex
	known map[string]struct{}
	since time.Time
	count int
}

// take says whether a name may be resolved: it was before, or there is room for
// another one in this minute.
func (w *wild) take(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.known[name]; ok {
		return true
	}
	if now := time.Now(); now.Sub(w.since) > time.Minute {
		w.since, w.count = now, 0
	}
	if w.count == maxWild {
		return false
	}
	w.count++
	if w.known == nil {
		w.known = map[string]struct{}{}
	}
	if len(w.known) < maxKnown {
		w.known[name] = struct{}{}
	}
	return true
}
