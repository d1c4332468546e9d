//go:build !linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/pccrun/pccrun/internal/programs"
)

// InsideVerb is the hidden verb of a trial's other side, on Linux.
const InsideVerb = "__doctor"

// ErrNotRoot says that a fix needs root.
var ErrNotRoot = errors.New("needs root")

// Inside is a trial's other side, on Linux.
func Inside([]string) int { return 125 }

// Examine launches a command that does nothing; where no provider runs, it says so.
func Examine(ctx context.Context, o Options) (*Report, error) {
	if runtime.GOOS == "darwin" {
		return byLaunches(ctx, o, "/usr/bin/true")
	}
	cause := "native runs on Linux and macOS, not yet on " + runtime.GOOS
	return &Report{Providers: []Provider{{Name: "native", Refused: cause}}}, nil
}

// Apply has nothing to apply here.
func (*Fix) Apply(context.Context, *programs.Finder) error {
	return fmt.Errorf("doctor: %w", errors.ErrUnsupported)
}
