//go:build !linux

package run

import (
	"errors"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

var errNoExec = errors.New("exec and stats of a running session are not built for this system")

// attached is for Linux: no other process reaches a run here.
type attached struct{}

func (attached) endAttached() {}

// Usage is not built.
func Usage(sessions.Home, sessions.Entry) (r providers.Result, err error) { return r, errNoExec }

// Exec is not built.
func Exec(sessions.Home, sessions.Entry, []string) (int, error) { return 0, errNoExec }

// Inside is for Linux: no provider runs pccrun on another system.
func Inside(Program, string) int { return 125 }

// KeepsAgentDir is for Linux, which has layers.
func KeepsAgentDir(*profiles.Policy, string) bool { return false }
