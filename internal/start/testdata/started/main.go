// Command started tells how it was started: the timer slack of its first thread
// and, where the kernel lets it, of all.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	_ "github.com/pccrun/pccrun/internal/start"
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
}
