//go:build !linux

package run

import (
	"runtime"

	"github.com/pccrun/pccrun/internal/messages"
)

// Inside says that a sandbox elsewhere runs Linux, and this is another system.
func Inside(Program, string) int {
	return messages.Fail("inside: needs Linux, this is " + runtime.GOOS)
}
