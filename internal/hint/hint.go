// Package hint is for errors that know what mends them: whoever prints one prints the hint below it.
package hint

import "fmt"

// An Error has a hint, and the text of what it wraps.
type Error struct {
	Err error
	Fix string // one thing to do
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns what [fmt.Errorf] made.
func (e *Error) Unwrap() error { return e.Err }

// Hint says what mends it.
func (e *Error) Hint() string { return e.Fix }

// Errorf is [fmt.Errorf] with a hint.
func Errorf(hint, format string, args ...any) error { return &Error{fmt.Errorf(format, args...), hint} }
