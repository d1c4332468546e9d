//go:build !linux && !darwin

package homes

import (
	"errors"
	"os"
	"time"

	"github.com/pccrun/pccrun/profiles"
)

// List finds no homes: there are none here yet.
func List(string) ([]Entry, error)    { return nil, nil }
func Measure(string, ...*Entry) error { return errors.ErrUnsupported }

// Remove is not supported here.
func Remove(string, string) error { return errors.ErrUnsupported }

// Export is not supported here.
func Export(string, string, string, string, []string) ([]string, error) {
	return nil, errors.ErrUnsupported
}

// FilesBelow is not supported here.
func FilesBelow(*os.Root) ([]FileBelow, error) { return nil, errors.ErrUnsupported }

// Replace is not supported here.
func Replace(string, string, *os.Root, func(string) string) error { return errors.ErrUnsupported }

// Collect finds no homes.
func Collect(string, Limits, time.Time) ([]Entry, error) { return nil, nil }

// A Server is one that a settings file of an agent's sends it to.
type Server struct{ File, URL string }

// Servers returns none: there is no home here.
func Servers(*profiles.Policy) []Server { return nil }
