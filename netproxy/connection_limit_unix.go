//go:build unix

package netproxy

import (
	"errors"
	"syscall"
)

// defaultMaxConns leaves each client the two descriptors of a tunnel, and the
// rest of the process some of its own, so that accept and dial never meet
// EMFILE. It bounds what a sandbox makes its host hold in memory, too.
func defaultMaxConns() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 256
	}
	return int(min(max(uint64(l.Cur), 160)/2-64, 10_000))
}

// transient says whether accept may work again in a moment.
func transient(err error) bool {
	for _, e := range [...]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
