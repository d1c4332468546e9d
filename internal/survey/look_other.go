//go:build !linux

package survey

import (
	"errors"
	"runtime"

	"github.com/pccrun/pccrun/profiles"
)

// coveredFold is of Linux's file systems.
func coveredFold(string) bool { return false }

// Look reads from the host what a plan of this policy needs to know.
func Look(policy *profiles.Policy, o Options) (*Survey, error) {
	if runtime.GOOS != "darwin" {
		return nil, errors.New("a survey needs Linux or macOS, this is " + runtime.GOOS)
	}
	return LayoutOf(policy, o)
}
