//go:build !unix

package state

import (
	"context"
	"errors"
	"os"
)

func isNotExist(err error) bool { return errors.Is(err, os.ErrNotExist) }
func isLink(string) bool        { return false }

// Durability says what a write survives.
type Durability bool

const (
	Fast    Durability = false
	Durable Durability = true
)

// A Lock cannot be had here.
type Lock struct{}

func (*Lock) Names(*os.Root, string) bool                  { return false }
func (*Lock) Release() error                               { return errors.ErrUnsupported }
func Open(string, string) (*os.Root, error)                { return nil, errors.ErrUnsupported }
func OpenExisting(string, string) (*os.Root, error)        { return nil, errors.ErrUnsupported }
func WriteFile(*os.Root, string, []byte, Durability) error { return errors.ErrUnsupported }
func ReadFile(*os.Root, string, int64) ([]byte, error)     { return nil, errors.ErrUnsupported }
func OpenFile(*os.Root, string) (*os.File, error)          { return nil, errors.ErrUnsupported }
func TryLock(*os.Root, string) (*Lock, error)              { return nil, errors.ErrUnsupported }
func WaitLock(context.Context, *os.Root, string) (*Lock, error) {
	return nil, errors.ErrUnsupported
}
func Locked(*os.Root, string) (bool, error) { return false, errors.ErrUnsupported }
