// Package asmac builds pccrun as a Mac builds it, for Linux, so that what a Mac's pccrun does around
// the sandbox can be tried where there is no Mac.
package asmac

import (
	"context"
	"encoding/json"
	"fmt"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// asOnMac are the packages of which a Mac builds other files than Linux does: what is to be tried
// here is built of the Mac's, with the provider for tests in the place of sandbox-exec.
var asOnMac = []string{
	"cmd/pccrun", "run", "run/ask", "run/askgit", "run/attach", "run/explain", "run/leftovers", "run/review", "run/undecided", "internal/survey", "namespaces", "providers", "providers/docker", "providers/doctor", "providers/filesync", "providers/inside", "test/escape", "workspace", "workspace/changes", "workspace/quarantine",
}

// Build builds the program, of the sources below a directory.
func Build(ctx context.Context, top, program string) error {
	dir, err := os.MkdirTemp("", "pccrun-as-on-mac-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	mac, here := build.Default, build.Default
	mac.GOOS, mac.CgoEnabled, here.CgoEnabled = "darwin", false, false
	replace := map[string]string{}
	for _, pkg := range asOnMac {
		names, err := filepath.Glob(filepath.Join(top, pkg, "*.go"))
		if err != nil {
			return err
		}
		for _, file := range names {
			at, name := filepath.Split(file)
			of, err := mac.MatchFile(at, name)
			if err != nil {
				return err
			}
			built, err := here.MatchFile(at, name)
			if err != nil {
				return err
			}
			switch name { // of the probes: they are tried by their own tests
			case "escape_other.go":
				of = true
			case "macos_darwin.go", "macos_linux.go":
				of = built
			}
			asksGit := name == "askgit_unix.go" // which has no sandbox here either
			switch {
			case strings.HasSuffix(name, "_test.go") || of == built && !asksGit:
			case built && !asksGit:
				replace[file] = "" // it is Linux's alone
			default:
				replace[file] = "" // of a file that both build
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				copied := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "_")+"_"+name)
				if err := os.WriteFile(copied, []byte(forLinux(name, string(text))), 0o600); err != nil {
					return err
				}
				replace[filepath.Join(at, "as_on_mac_"+strings.TrimSuffix(strings.TrimSuffix(name, ".go"), "_darwin")+"_.go")] = copied
			}
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	named := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(named, overlay, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-overlay", named, "-o", program, "./cmd/pccrun")
	cmd.Dir, cmd.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build pccrun as a Mac does: %w\n%s", err, out)
	}
	return nil
}

// forLinux takes out of a file what says that it is for a Mac.
func forLinux(name, text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "//go:build ") {
			kept = append(kept, line)
		}
	}
	text = strings.Join(kept, "")
	switch name {
	case "look_other.go":
		return strings.ReplaceAll(text, `runtime.GOOS != "darwin"`, `runtime.GOOS != "linux"`)
	case "askgit_unix.go":
		return strings.ReplaceAll(text, `"run", "-q",`, `"run", "-q", "--allow-missing", "res.time,"+os.Getenv("MISSING"),`)
	case "machine_darwin.go":
		return `package main

import (
	"path/filepath"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/test/bare"
)

func thisMachine(_ *profiles.Request, host providers.Host) (providers.Provider, error) {
	return &bare.Provider{As: providers.Native, Dir: filepath.Join(host.StateDir, "bare")}, nil
}

func machineStage([]string) (int, bool) { return 0, false }
`
	}
	return text
}
