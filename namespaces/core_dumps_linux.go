package namespaces

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
)

// corePattern says what the host does with a process that crashes, core(5).
const corePattern = "/proc/sys/kernel/core_pattern"

// coreHandler returns what of the host would be fed by a crash inside, in
// words; "" if nothing would.
//
// The kernel runs a handler behind a pipe whatever the limit of core dumps is,
// but for exactly 1, which it keeps against handlers that crash themselves. A
// hard limit of 0 cannot be raised to that without the host's privilege, and
// no limit counts for a socket (fs/coredump.c, Linux 6.16).
func coreHandler(pattern string, hard uint64) string {
	pattern = strings.TrimSuffix(pattern, "\n")
	switch {
	case strings.HasPrefix(pattern, "|") && hard == 0, strings.HasPrefix(pattern, "@"):
		return pattern
	}
	return ""
}

// CoreHandler is [coreHandler] of this process's kernel and limit.
func CoreHandler() string {
	var core unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &core)
	return coreHandler(readCorePattern(corePattern), core.Max)
}

// readCorePattern returns the host's pattern, "" where the kernel writes no
// core dumps. What cannot be read is taken for the worst.
func readCorePattern(path string) string {
	text, err := procfs.Short(path)
	switch {
	case err == nil:
		return string(text)
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat("/proc/sys/kernel"); err == nil {
			return ""
		}
	}
	return "@ (unknown: " + err.Error() + ")"
}
