//go:build !linux

package filesync

import (
	"context"
	"fmt"
	"io"
	"runtime"
)

// ExtractParts is not available on this system.
func ExtractParts(context.Context, string, func() (io.Reader, error), Down) (*Extracted, error) {
	return nil, fmt.Errorf("extract: not built for %s yet", runtime.GOOS)
}
