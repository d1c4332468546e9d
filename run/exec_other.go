//go:build !linux

package run

import (
	"errors"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/providers"
)

var errNoExec = errors.New("exec and stats of a running session are not built for this system")

// inquiries is nobody who asks a launcher.
type inquiries struct{}

func (inquiries) hear() {}
func (inquiries) deaf() {}

// Usage is not built.
func Usage(sessions.Home, sessions.Entry) (r providers.Result, err error) { return r, errNoExec }

// Exec is not built.
func Exec(sessions.Home, sessions.Entry, []string) (int, error) { return 0, errNoExec }
