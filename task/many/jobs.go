//go:build unix

package many

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Bounds of how many tasks work at a time.
const (
	MostJobs     = 64
	usualJobs    = 8       // no more without being asked: the API has limits, too
	memoryOfTask = 2 << 30 // an agent, and what it builds and tests
)

// UsualJobs is how many tasks an ordinary machine bears at a time: one for each processor that this process may use and one
// for each 2 GiB of the memory that it may use, at most 8. The memory is the machine's, in bytes.
func UsualJobs(memory int64) int {
	own, _ := os.ReadFile("/proc/self/cgroup") // another system has none
	return usualJobsOf(runtime.GOMAXPROCS(0), min(memory, limitIn("/sys/fs/cgroup", string(own), memory)))
}

func usualJobsOf(processors int, memory int64) int {
	return max(1, min(processors, usualJobs, int(memory/memoryOfTask)))
}

// limitIn returns the least memory.max of this process's cgroup and those above it (cgroups(7), version 2), else the default.
func limitIn(root, own string, least int64) int64 {
	for line := range strings.Lines(own) {
		path, is := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for ; is; path = filepath.Dir(path) {
			text, _ := os.ReadFile(filepath.Join(root, path, "memory.max")) // the root has none
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				least = min(least, n)
			}
			if path == "/" || path == "." {
				break
			}
		}
	}
	return least
}
