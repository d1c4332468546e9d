package quarantine

import (
	"errors"
	"os"
)

// Restore is [Finding.PutBack].
func (c Finding) Restore(session *os.Root) error { return c.PutBack(session) }

// Left is nil, and Complete has nothing to add: no configuration is quarantined in part.
func (c Finding) Left(*os.Root) []byte    { return nil }
func (c Finding) Complete(*os.Root) error { return nil }

// A Lost is what was in a private directory: macOS has none.
type Lost struct {
	Path  string
	Dir   bool
	Files int
	Size  int64
	More  bool
	Kept  string
}

// ReadLost returns none.
func ReadLost(*os.Root) ([]Lost, error) { return nil, nil }

// SaveLost finds none.
func SaveLost(*os.Root, []Lost, string, string) (string, error) {
	return "", errors.New("the session has no unsaved files")
}
