//go:build !linux

package programs

import "errors"

// CoverFor is for Linux, where a thread can be another user.
func CoverFor(int, int, string, []string) error { return errors.ErrUnsupported }
