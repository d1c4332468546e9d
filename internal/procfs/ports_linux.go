package procfs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Listens reports whether a server has a port in a process's network: proc_net_tcp(5), where 0A is LISTEN.
func Listens(pid int, port uint16) bool {
	for _, table := range [...]string{"/net/tcp", "/net/tcp6"} {
		text, _ := Read("/proc/" + strconv.Itoa(pid) + table)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				return true
			}
		}
	}
	return false
}

// maxLinks bounds the descriptors that [Client] looks at.
const maxLinks = 4096

// Client returns the words of the process, of a tree with a network of its own, that has a
// socket there: "tcp" or "udp" at a port. nil: nobody can tell.
func Client(root int, network string, port uint16) []string {
	socket := ""
	for _, table := range [...]string{network, network + "6"} {
		text, _ := Read("/proc/" + strconv.Itoa(root) + "/net/" + table)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 && f[9] != "0" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				socket = "socket:[" + f[9] + "]"
			}
		}
	}
	left := maxLinks
	for _, pid := range Tree(root) {
		proc := "/proc/" + strconv.Itoa(pid)
		dir, err := os.Open(proc + "/fd")
		if err != nil || socket == "" {
			continue
		}
		names, _ := dir.Readdirnames(left)
		dir.Close()
		for _, name := range names {
			if to, _ := os.Readlink(proc + "/fd/" + name); to == socket {
				text, _ := Short(proc + "/cmdline")
				return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
			}
		}
		if left -= len(names); left <= 0 {
			break
		}
	}
	return nil
}
