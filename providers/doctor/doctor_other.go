//go:build !linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/providers"
)

// ErrNotRoot says that a fix needs root.
var ErrNotRoot = errors.New("needs root")

// Examine tries what macOS can do; where no provider runs, it says so.
func Examine(ctx context.Context, o Options) (r *Report, err error) {
	if runtime.GOOS != "darwin" {
		return &Report{Providers: []Provider{{Name: "native", Refused: providers.StartsNone("native") + ": " + providers.Elsewhere}}}, nil
	}
	x := &examiner{Options: o}
	defer func() { err = errors.Join(err, x.close()) }()
	if err := x.prepare(); err != nil {
		return nil, err
	}
	return &Report{Providers: []Provider{x.examineNative(ctx)}}, nil
}

// Apply has nothing to apply here.
func (*Fix) Apply(context.Context, *programs.Finder) error {
	return fmt.Errorf("doctor: %w", errors.ErrUnsupported)
}
