package remote

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/providers"
)

// usage is what this place uses, with the file system of a directory: by its control group, where that is mounted and a
// container's, else by what the kernel says of the machine.
func usage(dir string) (r providers.Result, err error) {
	var fs unix.Statfs_t
	if err = unix.Statfs(dir, &fs); err != nil {
		return r, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := int64(fs.Bsize)
	p := &providers.Room{CPUs: float64(runtime.NumCPU()), Disk: int64(fs.Blocks) * block, DiskUsed: int64(fs.Blocks-fs.Bfree) * block}
	r.Room = p
	machine := numbers("/proc/meminfo")
	p.Memory = machine["MemTotal:"] << 10
	r.Memory = p.Memory - machine["MemAvailable:"]<<10
	const tick = time.Second / 100 // USER_HZ, the same on every architecture that we build for
	if proc, err := os.Open("/proc"); err == nil {
		defer proc.Close()
		procfs.Each(proc, func(s procfs.Stat) bool {
			r.Processes++
			r.User, r.System = r.User+time.Duration(s.Field(14))*tick, r.System+time.Duration(s.Field(15))*tick
			return true
		})
	}
	const group = "/sys/fs/cgroup/"
	if now := numbers(group + "memory.current")[""]; now > 0 { // which the root of all groups has not
		r.Memory = now
		if most := numbers(group + "memory.max")[""]; most > 0 {
			p.Memory = min(p.Memory, most)
		}
		cpu := numbers(group + "cpu.stat")
		r.User, r.System = time.Duration(cpu["user_usec"])*time.Microsecond, time.Duration(cpu["system_usec"])*time.Microsecond
	}
	return r, nil
}

// numbers reads lines of a name and a number, or a number alone, whose name is "".
func numbers(path string) map[string]int64 {
	list := map[string]int64{}
	text, _ := os.ReadFile(path) // what is not there has none
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line)
		name := ""
		if len(words) > 1 {
			name, words = string(words[0]), words[1:]
		}
		if len(words) > 0 {
			if n, err := strconv.ParseInt(string(words[0]), 10, 64); err == nil {
				list[name] = n
			}
		}
	}
	return list
}
