package profiles

import "golang.org/x/sys/unix"

// memory returns the bytes of this machine's main memory: sysinfo(2).
func memory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
