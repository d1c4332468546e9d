//go:build !linux

package workspace

import (
	"errors"
	"fmt"
)

// Scan is not available on this system.
func Scan(q Query) (*Found, error) {
	return nil, fmt.Errorf("scan workspace %s: %w", q.Root, errors.ErrUnsupported)
}

// guardInput is what a scan leaves for a look after the run.
type guardInput struct{}
