//go:build !unix

package spending

import (
	"errors"
	"time"
)

// A File is what several processes count together: not here.
type File struct{}

// Create needs Unix.
func Create(string, USD) (*File, error) { return nil, errors.ErrUnsupported }

// Unnamed needs Unix.
func Unnamed(string, USD) (*File, error) { return nil, errors.ErrUnsupported }

// Open needs Unix.
func Open(string) (*File, error) { return nil, errors.ErrUnsupported }

// Close has nothing to close.
func (*File) Close() error { return nil }

// Read needs Unix.
func (*File) Read() (State, error) { return State{}, errors.ErrUnsupported }

// Add needs Unix.
func (*File) Add(USD) (before, now State, err error) { return before, now, errors.ErrUnsupported }

// Hold needs Unix.
func (*File) Hold(time.Time) error { return errors.ErrUnsupported }

// Extend needs Unix.
func (*File) Extend(USD) (now State, err error) { return now, errors.ErrUnsupported }
