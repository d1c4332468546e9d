//go:build !linux

package remote

import "errors"

// inPlace is not supported: sandboxes are Linux.
func inPlace(string, input, []string) (any, error) { return nil, errors.ErrUnsupported }
