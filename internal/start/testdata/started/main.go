// Command started tells how it was started: the timer slack of its first thread
// and, where the kernel lets it, of all; and of what it allocates before and
// after [start.Heap], whether it may lie in a huge page.
package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"unsafe"

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

// huge reports whether the mapping of what is allocated now has the flag hg,
// proc_pid_smaps(5).
func huge() (is bool) {
	object := new([4096]byte)
	smaps, _ := os.ReadFile("/proc/self/smaps")
	within := false
	for line := range bytes.Lines(smaps) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(string(line), "%x-%x ", &from, &to); n == 2 {
			at := uintptr(unsafe.Pointer(object))
			within = from <= at && at < to
		}
		if flags, ok := strings.CutPrefix(string(line), "VmFlags:"); ok && within {
			is = strings.Contains(flags, " hg")
		}
	}
	return is
}
