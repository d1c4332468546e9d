//go:build !linux && !darwin

package terminal

import (
	"context"
	"errors"
	"time"
)

// Relay is for Linux.
type Relay struct{}

func Start(Options) (*Relay, error)    { return nil, errors.ErrUnsupported }
func (*Relay) Foreground() error       { return errors.ErrUnsupported }
func (*Relay) Suspend() error          { return errors.ErrUnsupported }
func (*Relay) Wait(time.Duration)      {}
func (*Relay) HungUp() <-chan struct{} { return nil }
func (*Relay) Close(time.Duration)     {}
func (*Relay) Active() bool            { return false }

// Ask is for Linux.
func (*Relay) Ask(context.Context, string, string) (byte, error) { return 0, errors.ErrUnsupported }

// IsTerminal reports whether the descriptor is a terminal.
func IsTerminal(int) bool { return false }
