//go:build !linux

package run

import (
	"runtime"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
)

// Run says that nothing can run here.
func Run(profiles.Request, Program) int {
	return messages.Fail("provider native: not built for " + runtime.GOOS + " yet")
}
