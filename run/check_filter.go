package run

import (
	"runtime"

	"github.com/pccrun/pccrun/seccomp"
)

// CheckFilter says what is wrong with an OCI seccomp profile, nil for nothing.
func CheckFilter(text []byte) error {
	_, err := seccomp.CompileOCI(text, runtime.GOARCH)
	return err
}
