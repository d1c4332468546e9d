//go:build !linux

package changes

import (
	"errors"
	"os"
)

// There are overlays on Linux only.

// Clock is not available on this system.
func Clock() int64 { return 0 }

// Begin is not available on this system.
func (u *Upper) Begin() error { return errors.ErrUnsupported }

// Apply is not available on this system.
func (u *Upper) Apply(Selection) (*Outcome, error) { return nil, errors.ErrUnsupported }

// Copy is not available on this system.
func (u *Upper) Copy(*os.Root) error { return errors.ErrUnsupported }

// Usage is not available on this system.
func Usage(*os.Root) int64 { return 0 }

func beginWith(_, _ *os.Root, _ *Record) error { return errors.ErrUnsupported }

// TakeBack is not available on this system.
func (u *Upper) TakeBack() error { return errors.ErrUnsupported }
