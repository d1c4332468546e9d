package run

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A launch needs some descriptors and threads of its own, and root to signal its
// threads, all at once, to give its power up. Where the caller's limits leave less,
// getrlimit(2), the Go runtime ends the process with a trace, or waits for ever.
// Limits so low that it does so before the first line here, of address space and
// data above all, are beyond reach: docs/integration.md says how that looks.
var needs = [...]struct {
	resource int
	least    uint64
	root     bool // it is root that needs it
	name     string
	flag     string // of ulimit
}{
	{unix.RLIMIT_NOFILE, 64, false, "open files", "-n"},
	{unix.RLIMIT_NPROC, 32, false, "processes and threads of the user", "-u"},
	{unix.RLIMIT_SIGPENDING, 64, true, "pending signals", "-i"},
}

// starved says which limit of the caller's leaves too little for a launch, and what
// mends it; "" for none.
func starved() (text, hint string) {
	for _, n := range needs {
		var limit unix.Rlimit
		if n.root && os.Getuid() != 0 || unix.Getrlimit(n.resource, &limit) != nil || limit.Cur >= n.least {
			continue
		}
		return fmt.Sprintf("the limit of %s is %d, and a launch needs %d", n.name, limit.Cur, n.least), fmt.Sprintf("ulimit %s %d", n.flag, max(n.least, 1024))
	}
	return "", ""
}
