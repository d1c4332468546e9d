//go:build !linux

package survey

import (
	"errors"
	"runtime"

	"github.com/pccrun/pccrun/profiles"
)

// Look is not there on this system.
func Look(*profiles.Policy, Options) (*Survey, error) {
	return nil, errors.New("a survey needs Linux, this is " + runtime.GOOS)
}
