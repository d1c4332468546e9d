//go:build !launcher

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/netproxy/inspect"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/test/escape"
)

func escapeVerb(args []string) int { return escape.Main(args) }

// escapeHidden runs the verbs by which the escape suite and the inspection
// start this program again; false if args are none of them.
func escapeHidden(args []string) (code int, is bool) {
	believe()
	if slices.Equal(args, []string{wire.Verb}) {
		return inspect.Main(), true
	}
	return escape.Hidden(args)
}

// believe takes what the launcher tells this one by variables, and forgets
// them where it is not the launcher that started this: a project can set them
// (.envrc), and the launcher that they name is executed outside of any sandbox.
func believe() {
	path := os.Getenv(wholeVariable)
	_ = os.Unsetenv(wholeVariable)
	self, err := os.Readlink("/proc/self/exe")
	if err == nil && strings.HasPrefix(self, "/memfd:") {
		return
	}
	named, err := os.Lstat(path)
	running, selfErr := os.Stat("/proc/self/exe")
	if err == nil && selfErr == nil && os.SameFile(named, running) && strings.HasPrefix(filepath.Base(path), wholeFile) {
		_ = os.Remove(path) // no other file is touched
		return
	}
	_ = os.Unsetenv("PCCRUN_LAUNCHER")
}

// wholeProgram returns this program as a file.
func wholeProgram() (*os.File, error) { return os.Open("/proc/self/exe") }
