//go:build !unix

package events

import (
	"errors"
	"fmt"
)

// Target returns the sink for the value of `--events`.
func Target(value, _ string) (Sink, error) {
	return Sink{}, fmt.Errorf("--events %s: %w", Clean(value), errors.ErrUnsupported)
}
