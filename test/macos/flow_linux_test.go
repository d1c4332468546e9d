package main

import (
	"encoding/json"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// asOnMac are the packages of which a Mac builds other files than Linux does: what is to be tried
// here is built of the Mac's, with the provider for tests in the place of sandbox-exec.
var asOnMac = []string{
	"cmd/pccrun", "run", "survey", "namespaces", "providers", "providers/docker", "providers/doctor", "providers/filesync", "providers/inside", "test/escape", "workspace", "workspace/changes", "workspace/quarantine",
}

var builtIn string

// flowOfMac builds pccrun as a Mac builds it, for Linux.
var flowOfMac = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "pccrun-as-on-mac-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	top, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	mac, here := build.Default, build.Default
	mac.GOOS, mac.CgoEnabled, here.CgoEnabled = "darwin", false, false
	replace := map[string]string{}
	for _, pkg := range asOnMac {
		names, err := filepath.Glob(filepath.Join(top, pkg, "*.go"))
		if err != nil {
			return "", err
		}
		for _, file := range names {
			at, name := filepath.Split(file)
			of, err := mac.MatchFile(at, name)
			if err != nil {
				return "", err
			}
			built, err := here.MatchFile(at, name)
			if err != nil {
				return "", err
			}
			switch name { // of the probes: they are tried by their own tests
			case "escape_other.go":
				of = true
			case "macos_darwin.go", "macos_linux.go", "calls_darwin.go", "calls_linux.go":
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
					return "", err
				}
				copied := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "_")+"_"+name)
				if err := os.WriteFile(copied, []byte(forLinux(name, string(text))), 0o600); err != nil {
					return "", err
				}
				replace[filepath.Join(at, "as_on_mac_"+strings.TrimSuffix(strings.TrimSuffix(name, ".go"), "_darwin")+"_.go")] = copied
			}
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "pccrun")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/pccrun")
	cmd.Dir, cmd.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &buildError{err, string(out)}
	}
	return program, nil
})

type buildError struct {
	err error
	out string
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + e.out }

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

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(builtIn)
	os.Exit(code)
}

// TestSteps does of the one command what needs no Mac.
func TestSteps(t *testing.T) {
	program, err := flowOfMac()
	require.NoError(t, err)
	dir := t.TempDir()
	sandboxExec = filepath.Join(dir, "sandbox-exec")
	script := "#!/bin/sh\n[ \"$1\" = -p ] && [ \"$3\" = -D ] || exit 64\ncase $2 in '(version 1)'*) exit 0; esac\nexit 65\n"
	require.NoError(t, os.WriteFile(sandboxExec, []byte(script), 0o755))
	var out strings.Builder
	names := profiles.Builtin()
	for _, name := range names {
		compiles(&out, program, name)
	}
	require.Equal(t, len(names), strings.Count(out.String(), "\nyes\n"), out.String())
	out.Reset()
	compiles(&out, program, "none")
	require.Contains(t, out.String(), "== no profile: ")
	require.NoError(t, os.WriteFile(sandboxExec, []byte("#!/bin/sh\necho unbound variable: x >&2\nexit 65\n"), 0o755))
	compiles(&out, program, "claude")
	require.Contains(t, out.String(), "NO: exit status 65: unbound variable: x")
	out.Reset()
	require.True(t, step(&out, "a step", program, "version"))
	require.False(t, step(&out, "another", program, "no-such-verb"))
	require.Contains(t, out.String(), "== a step: ")
	for _, pkg := range tested {
		files, err := filepath.Glob("../../" + pkg + "/*_test.go")
		require.NoError(t, err)
		require.NotEmpty(t, files, pkg)
	}
}

// TestFlow goes through what a Mac's pccrun does around the sandbox.
func TestFlow(t *testing.T) {
	program, err := flowOfMac()
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{Dir: "testdata", Setup: func(e *testscript.Env) error {
		e.Setenv("HOME", e.WorkDir+"/home")
		e.Setenv("XDG_STATE_HOME", e.WorkDir+"/home/state")
		e.Setenv("PATH", filepath.Dir(program)+":"+os.Getenv("PATH"))
		return os.Mkdir(e.WorkDir+"/home", 0o755)
	}})
}
