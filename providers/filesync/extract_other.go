//go:build !linux

package filesync

import (
	"context"
	"fmt"
	"io"
	"runtime"
)

// Extract is not available on this system.
func Extract(context.Context, string, io.Reader, Down) (*Extracted, error) {
	return nil, fmt.Errorf("extract: not built for %s yet", runtime.GOOS)
}
