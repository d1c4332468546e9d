// Package claude fetches the real Claude Code, for tests that put it into a
// sandbox. The npm client brings it, from wherever that is set up to look.
package claude

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for claude code: %w", err)
	}
	dir := filepath.Join(cache, "pccrun-test", "claude-"+Version)
	program := filepath.Join(dir, "node_modules", "@anthropic-ai", "claude-code-"+platform(), "claude")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	// Into a directory beside it first: a download that breaks leaves no half.
	part, err := os.MkdirTemp(filepath.Dir(dir), "part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	// The package's own scripts only link the program into place.
	npm := exec.CommandContext(ctx, "npm", "install", "--prefix", part, "--no-save", "--no-package-lock",
		"--ignore-scripts", "--no-audit", "--no-fund", "@anthropic-ai/claude-code@"+Version)
	npm.Dir = part
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install claude code %s: %w\n%s", Version, err, out)
	}
	if err := os.Rename(part, dir); err != nil {
		if _, there := os.Stat(program); there != nil {
			return "", err
		}
	}
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
