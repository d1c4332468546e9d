package dockerd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// gvisor is the version of gVisor that tests use: of its branch "go", which the go
// command can build.
const gvisor = "v0.0.0-20260905035102-160fafc42237"

// Runsc is gVisor's program that [BuildRunsc] has built, or "". Debian's of 2022 is none: it starts
// nothing with a network on Linux 6.18, and says of files that they were made at another time.
func Runsc() (string, error) {
	file, err := built()
	if err != nil || !exists(file) {
		return "", err
	}
	return file, nil
}

// built is where BuildRunsc puts it, in the user's cache.
func built() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for runsc: %w", err)
	}
	return filepath.Join(cache, "pccrun-test", "runsc-"+gvisor, "runsc"), nil
}

// BuildRunsc builds gVisor's runsc from its module, unless it is there; that takes
// minutes. Without cgo: a program with libraries does not find them in the root that it
// gives itself.
func BuildRunsc(ctx context.Context) error {
	file, err := built()
	if err != nil || exists(file) {
		return err
	}
	build := exec.CommandContext(ctx, "go", "install", "-ldflags=-s -w", "gvisor.dev/gvisor/runsc@"+gvisor)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+filepath.Dir(file), "GOFLAGS=-mod=mod", "GOCOVERDIR=")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build runsc: %w\n%s", err, out)
	}
	return nil
}
