//go:build !thin

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/netproxy/inspect"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/providers/doctor"
	"github.com/pccrun/pccrun/test/escape"
)

const escapeUsage = escape.Usage

func escapeVerb(args []string) int { return escape.Main(args) }

// escapeHidden runs the verbs by which the escape suite, the doctor and the
// inspection start this program again; false if args are none of them.
func escapeHidden(args []string) (code int, is bool) {
	removeWhole()
	switch {
	case slices.Equal(args, []string{wire.Verb}):
		return inspect.Main(), true
	case len(args) > 0 && args[0] == doctor.InsideVerb:
		return doctor.Inside(args[1:]), true
	}
	return escape.Hidden(args)
}

// removeWhole removes the file that this program was started from, if the thin
// one made it for that. Anybody can set a variable: no other file is touched.
func removeWhole() {
	path := os.Getenv(wholeVariable)
	if path == "" {
		return
	}
	_ = os.Unsetenv(wholeVariable)
	named, err := os.Lstat(path)
	self, selfErr := os.Stat("/proc/self/exe")
	if err == nil && selfErr == nil && os.SameFile(named, self) && strings.HasPrefix(filepath.Base(path), wholeFile) {
		_ = os.Remove(path)
	}
}

// wholeProgram returns this program as a file.
func wholeProgram() (*os.File, error) { return os.Open("/proc/self/exe") }
