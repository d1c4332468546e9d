package profiles

import (
	"errors"
	"fmt"
	"strings"
)

// An Error is one mistake in a file or a flag. [Resolve] may return several,
// joined: see [Mistakes].
type Error struct {
	Origin Origin
	Cause  string
	Hint   string // one thing that mends it, or ""
	cause  error  // what [errors.Is] finds
}

func (e *Error) Unwrap() error { return e.cause }

// Error returns "FILE:LINE: key: cause".
func (e *Error) Error() string {
	if s := e.Origin.String(); s != "" {
		return s + ": " + e.Cause
	}
	return e.Cause
}

// Mistakes returns the errors that err joins a line each, or err alone: an error
// that names two causes in one sentence is one mistake.
func Mistakes(err error) []error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	parts := joined.Unwrap()
	lines := make([]string, len(parts))
	for i, part := range parts {
		lines[i] = part.Error()
	}
	if joined.(error).Error() != strings.Join(lines, "\n") {
		return []error{err}
	}
	return parts
}

// maxMistakes is how many mistakes are collected before the rest is cut off.
const maxMistakes = 20

// mistakes collects errors, so that one run names all of them.
type mistakes struct{ errs []error }

func (m *mistakes) add(err error) {
	if err == nil {
		return
	}
	switch {
	case len(m.errs) < maxMistakes:
		m.errs = append(m.errs, err)
	case len(m.errs) == maxMistakes:
		m.errs = append(m.errs, errors.New("and more mistakes"))
	}
}

func (m *mistakes) at(o Origin, hint, format string, args ...any) {
	m.add(&Error{Origin: o, Cause: fmt.Sprintf(format, args...), Hint: hint})
}

func (m *mistakes) err() error { return errors.Join(m.errs...) }

// Nearest returns the word of words that is closest to word, "" if none is
// close: at most a third of its letters and one differ, and no more than half.
func Nearest(word string, words []string) string {
	best, least := "", min(len(word)/3+1, len(word)/2)+1
	for _, w := range words {
		if d := distance(word, w, least); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is the number of insertions, deletions and substitutions that make
// a out of b, or limit+1 if it is more than limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit || len(a) > 64 {
		return limit + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return min(row[len(b)], limit+1)
}

// Hint returns what mends a mistake, "" if nothing is known.
func Hint(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Hint
	}
	var other interface{ Hint() string }
	if errors.As(err, &other) {
		return other.Hint()
	}
	return ""
}

// OriginOf returns where a mistake stands, as far as it is known.
func OriginOf(err error) Origin {
	var e *Error
	if errors.As(err, &e) {
		return e.Origin
	}
	return Origin{}
}
