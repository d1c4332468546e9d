package namespaces

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxSurvivors bounds how many processes are looked at: pid 1 does not wait
// for long.
const maxSurvivors = 4096

// survivors returns the names of the processes inside, pid 1 aside, as the
// sandbox's own /proc lists them: nobody else's are there. A name is what the
// process calls itself, proc_pid_comm(5).
func (s *Sandbox) survivors() (names []string) {
	fd, err := unix.Openat2(s.root, "proc", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return nil
	}
	proc := os.NewFile(uintptr(fd), "/proc")
	defer proc.Close()
	entries, _ := proc.Readdirnames(-1)
	for _, e := range entries {
		pid, err := strconv.Atoi(e)
		if err != nil || pid == 1 {
			continue
		}
		if name, alive := readName(fd, e); alive {
			names = append(names, name)
		}
		if len(names) == maxSurvivors {
			break
		}
	}
	return names
}

// readName reads the name of a process and whether it is more than a zombie,
// from proc_pid_stat(5): "pid (name) state …", where a name may hold anything.
func readName(proc int, pid string) (name string, alive bool) {
	fd, err := unix.Openat(proc, pid+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	var b [256]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return "", false
	}
	return parseStat(b[:n])
}

func parseStat(stat []byte) (name string, alive bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open || len(stat) < end+3 {
		return "", false
	}
	state := stat[end+2]
	return string(stat[open+1 : end]), state != 'Z' && state != 'X'
}
