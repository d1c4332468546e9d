package spending

import "time"

// A State is what a file holds.
type State struct {
	Limit USD // 0: there is none, and the sum is counted all the same
	Spent USD
	Until time.Time // the API wants no request before; zero or past: it takes them
}

// A Budget is what a run counts in, and by what.
type Budget struct {
	Files  []*File // the first is the run's own, or its parent's
	Prices string  // the user's own table, as package meter reads it; "" for none
}

// An UncountedError is why a run is refused whose requests nobody could count.
type UncountedError struct{ Err error }

func (e *UncountedError) Error() string { return "budget: " + e.Err.Error() }

// Unwrap returns what lets a request go out uncounted.
func (e *UncountedError) Unwrap() error { return e.Err }

// Over reports whether the limit is reached: no further request may go out.
func (s State) Over() bool { return s.Limit > 0 && s.Spent >= s.Limit }

// Left is how long the API wants no request: not at all where that is longer than any hold, since the clock was set back.
func (s State) Left(now time.Time) time.Duration {
	if left := s.Until.Sub(now); left <= MaxHold {
		return max(left, 0)
	}
	return 0
}

// MaxHold bounds how long one answer of an API can hold requests up.
const MaxHold = time.Hour
