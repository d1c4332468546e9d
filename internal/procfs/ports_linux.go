package procfs

import (
	"fmt"
	"strings"
)

// Listens reports whether a server has a port of this machine: proc_net_tcp(5), where 0A is LISTEN.
func Listens(port uint16) bool {
	for _, table := range [...]string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := Read(table)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				return true
			}
		}
	}
	return false
}
