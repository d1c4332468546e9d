//go:build !linux

package survey

import (
	"errors"
	"runtime"

	"github.com/pccrun/pccrun/profiles"
)

// Look reads from the host what a plan of this policy needs to know.
func Look(policy *profiles.Policy, o Options) (*Survey, error) {
	if runtime.GOOS != "darwin" {
		return nil, errors.New("a survey needs Linux or macOS, this is " + runtime.GOOS)
	}
	return LayoutOf(policy, o)
}
