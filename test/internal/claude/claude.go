// Package claude fetches the real Claude Code, for tests that put it into a
// sandbox. The npm client brings it, from wherever that is set up to look.
package claude

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/pccrun/pccrun/test/internal/npm"
)

// Version is the one that the tests know how to talk to.
const Version = "2.1.330"

// Fetch returns the path of Claude Code's own program, which it downloads
// into the user's cache the first time: about 370 MB. $PCCRUN_TEST_CLAUDE
// names one that is there already.
func Fetch(ctx context.Context) (string, error) {
	if path := os.Getenv("PCCRUN_TEST_CLAUDE"); path != "" {
		return path, nil
	}
	// The package's own scripts only link the program into place.
	dir, err := npm.Fetch(ctx, "claude-"+Version, "@anthropic-ai/claude-code@"+Version)
	if err != nil {
		return "", fmt.Errorf("claude code %s: %w", Version, err)
	}
	program := filepath.Join(dir, "node_modules", "@anthropic-ai", "claude-code-"+platform(), "claude")
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("claude code %s for %s: %w", Version, platform(), err)
	}
	return program, nil
}

// platform is what npm calls this machine.
func platform() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return runtime.GOOS + "-" + arch
}
