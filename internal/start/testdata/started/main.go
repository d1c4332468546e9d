// Command started tells how it was started: the timer slack of its first thread
// and, where the kernel lets it, of all; and whether any of its memory may lie in
// a huge page, before and after [start.Heap].
package main

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/start"
)

func init() { // on the first thread
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	fmt.Println("first", slack, err)
}

func main() {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if slack, err := os.ReadFile("/proc/" + t.Name() + "/timerslack_ns"); err == nil {
			fmt.Print("thread ", string(slack))
		}
	}
	fmt.Println("before", huge())
	start.Heap()
	fmt.Println("after", huge())
}

// huge reports whether a mapping of this process has the flag hg,
// proc_pid_smaps(5).
func huge() bool {
	smaps, _ := os.ReadFile("/proc/self/smaps")
	for line := range bytes.Lines(smaps) {
		if flags, ok := bytes.CutPrefix(line, []byte("VmFlags:")); ok && bytes.Contains(flags, []byte(" hg")) {
			return true
		}
	}
	return false
}
