// Package npm fetches real programs and libraries, for tests that put them
// into a sandbox. The npm client brings them, from wherever that is set up to
// look.
package npm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Clients are the programs and libraries of test/egress, in the versions that
// it knows how to talk to: about 650 MB. The node is one whose own fetch knows of
// proxies, which that of Debian does not.
var Clients = []string{"@openai/codex@0.169.0", "@google/gemini-cli@0.61.0", "undici@7.16.0", "ws@8.18.3", "@grpc/grpc-js@1.14.0", node + "@24.21.0"}

// node is the package of node's program for this machine.
const node = "node-" + runtime.GOOS + "-" + arch

// Node returns a node that has what the clients of clouds want, of [Clients]: that of Debian is too old.
func Node(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs node")
	}
	dir, err := FetchClients(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "node_modules", node, "bin", "node")
}

// Yarns are the two yarns that people have.
var Yarns = []string{"yarn@1.22.22", "@yarnpkg/cli-dist@4.18.1"}

// FetchClients returns the directory with the node_modules that hold
// [Clients]. $PCCRUN_TEST_CLIENTS names one that is there already.
func FetchClients(ctx context.Context) (string, error) {
	if dir := os.Getenv("PCCRUN_TEST_CLIENTS"); dir != "" {
		return dir, nil
	}
	return Fetch(ctx, "clients-2", Clients...)
}

// opencode is the version that test/agent knows how to talk to: about 360 MB.
const opencode = "1.18.33"

// FetchOpencode returns the path of opencode's own program. $PCCRUN_TEST_OPENCODE names one that
// is there already.
func FetchOpencode(ctx context.Context) (string, error) {
	if path := os.Getenv("PCCRUN_TEST_OPENCODE"); path != "" {
		return path, nil
	}
	dir, err := Fetch(ctx, "opencode-"+opencode, "opencode-ai@"+opencode)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "node_modules", "opencode-"+runtime.GOOS+"-"+arch, "bin", "opencode")
	_, err = os.Stat(path)
	return path, err
}

// FetchAgents returns the programs of the agents that test/agent only starts, by their names: about 800 MB.
func FetchAgents(ctx context.Context) (map[string]string, error) {
	machine := runtime.GOOS + "-" + arch
	dir, err := Fetch(ctx, "agents-1", "@github/copilot-"+machine+"@1.0.102", "@qwen-code/qwen-code@0.15.10", "@ampcode/cli-"+machine+"@0.0.1790142911-g7618fb", "@cline/cli-"+machine+"@3.0.65")
	if err != nil {
		return nil, err
	}
	programs := map[string]string{
		"copilot": "@github/copilot-" + machine + "/copilot", "qwen": "@qwen-code/qwen-code/cli.js", "amp": "@ampcode/cli-" + machine + "/amp", "cline": "@cline/cli-" + machine + "/bin/cline",
	}
	for name, path := range programs {
		programs[name] = filepath.Join(dir, "node_modules", path)
		if err := os.Chmod(programs[name], 0o755); err != nil {
			return nil, err
		}
	}
	return programs, nil
}

// Fetch installs packages into a directory of that name in the user's cache,
// if they are not there yet, and returns its path. The name has to change with
// the list. No script of a package runs.
func Fetch(ctx context.Context, name string, packages ...string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for npm packages: %w", err)
	}
	dir := filepath.Join(cache, "pccrun-test", name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return "", fmt.Errorf("npm is missing, which brings %q: apt-get install npm, or what your system calls it", packages)
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
	client := exec.CommandContext(ctx, "npm", append([]string{"install", "--prefix", part, "--no-save", "--no-package-lock",
		"--ignore-scripts", "--no-audit", "--no-fund"}, packages...)...)
	client.Dir = part
	if out, err := client.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install %q: %w\n%s", packages, err, out)
	}
	if err := os.Rename(part, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			return "", err
		}
	}
	return dir, os.Chmod(dir, 0o755)
}

// E2B is E2B's own client, which test/internal/e2b is tried with.
const E2B = "e2b@2.51.0"

// Daytona is Daytona's own client, which test/internal/daytona is tried with.
const Daytona = "@daytona/sdk@0.216.0"

// Cloudflare is a client of Cloudflare's bridge, which test/internal/cloudflare is tried with: Cloudflare has none of its own, and
// made the bridge for this one.
const Cloudflare = "@openai/agents-extensions@0.18.0"

// CloudflareBridge is the bridge itself.
const CloudflareBridge = "@cloudflare/sandbox@0.12.10"

// Sprites is the own client of Fly's Sprites, which test/internal/sprites is tried with.
const Sprites = "@fly/sprites@0.1.0"

// Vercel is Vercel's own client, which test/internal/vercel is tried with.
const Vercel = "@vercel/sandbox@3.5.0"
