// Package await is for tests: it waits for what is to happen.
//
// The promise: a test that waits by it fails for what did not happen, not for being slow. The
// one bound on every wait stands here, and is longer than a busy machine takes for anything
// that a test waits for.
package await

import (
	"testing"
	"time"
)

// Patience is the bound on every wait of a test: of a look that is repeated, a deadline on a
// pipe or a socket, a context, a program that is to end.
const Patience = 3 * time.Minute

// Until looks every millisecond whether holds does, and fails the test after Patience. what
// says, in the words of a failure, what was waited for: "the file is given back".
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain: %s", Patience, what)
		}
	}
}

// Receive returns what comes from c next, and fails the test after Patience, or if c is
// closed. what is that of [Until].
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v, open := <-c:
		if !open {
			t.Fatalf("the channel is closed: %s", what)
		}
		return v
	case <-time.After(Patience):
		t.Fatalf("waited %s in vain: %s", Patience, what)
		panic("not reached")
	}
}

// Closed returns when c is closed, or brought a value, and fails the test after Patience. what
// is that of [Until].
func Closed[T any](t testing.TB, what string, c <-chan T) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(Patience):
		t.Fatalf("waited %s in vain: %s", Patience, what)
	}
}

// Deadline is when a wait that begins now has taken Patience, for SetReadDeadline and its like.
func Deadline() time.Time { return time.Now().Add(Patience) }
