package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/internal/asmac"
)

var builtIn string

// flowOfMac returns pccrun as a Mac builds it: $PCCRUN_TEST_MAC, or else one that is built here.
var flowOfMac = sync.OnceValues(func() (path string, err error) {
	if path := os.Getenv("PCCRUN_TEST_MAC"); path != "" {
		return path, nil
	}
	if builtIn, err = os.MkdirTemp("", "pccrun-as-on-mac-"); err != nil {
		return "", err
	}
	top, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	path = filepath.Join(builtIn, "pccrun")
	return path, asmac.Build(context.Background(), top, path)
})

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
