package run

import (
	"runtime"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/seccomp"
)

// RuntimeDir is a directory of the sandbox's own, where names of the host's can be shown.
const RuntimeDir = survey.RuntimeDir

// OwnPath says what the command finds at a path of /dev, /proc or /sys, where no rule covers
// it: see [namespaces.Own].
func OwnPath(path string, nested bool) (tree string, read, write bool) {
	return namespaces.Own(path, nested)
}

// CheckFilter says what is wrong with an OCI seccomp profile, nil for nothing.
func CheckFilter(text []byte) error {
	_, err := seccomp.CompileOCI(text, runtime.GOARCH)
	return err
}
