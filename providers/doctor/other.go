//go:build !linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// InsideVerb is the hidden verb of a trial's other side, on Linux.
const InsideVerb = "__doctor"

// ErrNotRoot says that a fix needs root.
var ErrNotRoot = errors.New("needs root")

// Options say what is examined.
type Options struct {
	Launcher string
	Environ  []string
}

// Inside is a trial's other side, on Linux.
func Inside([]string) int { return 125 }

// Examine says that no provider runs here.
func Examine(context.Context, Options) (*Report, error) {
	cause := "native runs on Linux only, not yet on " + runtime.GOOS
	return &Report{Providers: []Provider{{Name: "native", Refused: cause}}}, nil
}

// Apply has nothing to apply here.
func (*Fix) Apply(context.Context) error { return fmt.Errorf("doctor: %w", errors.ErrUnsupported) }
