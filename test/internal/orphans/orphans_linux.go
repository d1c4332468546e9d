// Package orphans finds what outlives the programs that a test starts, whatever its name or session.
package orphans

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Adopt makes this process the parent of whatever its descendants leave.
func Adopt() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// End waits for the children of this process to end, none of which anything else may wait for, and kills
// those that still run after a time. It returns the command lines of these.
func End(patience time.Duration) (left []string) {
	killed := map[string]bool{}
	for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		for pid := 1; pid > 0; {
			pid, _ = unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil)
		}
		var running []string
		files, _ := filepath.Glob("/proc/self/task/*/children")
		for _, file := range files {
			text, _ := os.ReadFile(file)
			running = append(running, strings.Fields(string(text))...)
		}
		if len(running) == 0 || time.Since(late) > time.Minute {
			return left
		}
		for _, word := range running {
			if pid, err := strconv.Atoi(word); err == nil && !killed[word] && time.Now().After(late) {
				killed[word] = true
				line, _ := os.ReadFile("/proc/" + word + "/cmdline")
				left = append(left, word+" "+strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")))
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}
