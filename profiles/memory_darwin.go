package profiles

import "golang.org/x/sys/unix"

// memory returns the bytes of this machine's main memory: sysctl(3).
func memory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}
