package seccomp

import (
	"errors"
	"fmt"
)

// CompileOCI returns the filter for a seccomp profile: the JSON of an OCI
// runtime configuration's linux.seccomp, or Docker's form of it. arch is a Go
// architecture, amd64 or arm64.
func CompileOCI(profile []byte, arch string) ([]byte, error) {
	return nil, fmt.Errorf("compile seccomp profile for %s: %w", arch, errors.ErrUnsupported)
}
