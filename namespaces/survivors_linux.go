package namespaces

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// maxSurvivors bounds how many processes are looked at: pid 1 does not wait
// for long.
const maxSurvivors = 4096

// survivors returns the names of the processes inside but pid 1, as the
// sandbox's own /proc lists them: nobody else's are there. Go's telemetry, which does no harm, is none. A name is what the
// process calls itself, proc_pid_comm(5).
func (s *Sandbox) survivors() (names []string) {
	fd, err := beneath.Open(s.root, "proc", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	proc := os.NewFile(uintptr(fd), "/proc")
	defer proc.Close()
	procfs.Each(proc, func(p procfs.Stat) bool {
		if p.Pid != 1 && !p.Dead() && !procfs.IsTelemetry("/proc/self/fd/"+strconv.Itoa(fd), p.Pid) {
			names = append(names, p.Name)
		}
		return len(names) < maxSurvivors
	})
	return names
}
