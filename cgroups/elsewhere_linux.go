package cgroups

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// elsewhere are the filesystems of the machine that lie in memory, and that this
// process can look at: /run, /dev/shm, /tmp. What they hold is in no mapping, socket
// or descriptor of the sandbox's own, whoever has written it.
type elsewhere struct{ mounts []tmpfsMount }

type tmpfsMount struct {
	path        string
	id          unix.Fsid
	first, last int64 // bytes
}

// maxElsewhere bounds how many are looked at, each with a system call a sample.
const maxElsewhere = 16

// newElsewhere finds them (proc_pid_mountinfo(5)): each once, however often it is mounted,
// and at a path where it is the one that is seen. One below another counted twice what
// the upper one gains, and a sandbox could hold as much behind it.
func newElsewhere() (e elsewhere) {
	table, _ := readFile("/proc/self/mountinfo")
	seen := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		_, kind, ok := strings.Cut(line, " - tmpfs ")
		if !ok || kind == "" || len(f) < 5 || seen[f[2]] || strings.Contains(f[4], `\`) || len(e.mounts) == maxElsewhere {
			continue
		}
		m := tmpfsMount{path: f[4]}
		var top unix.Stat_t
		if unix.Stat(m.path, &top) != nil || deviceText(uint64(top.Dev)) != f[2] { // something is mounted over it
			continue
		}
		var st unix.Statfs_t
		if unix.Statfs(m.path, &st) != nil || st.Type != unix.TMPFS_MAGIC || st.Blocks == 0 { // one without a size does not count
			continue
		}
		m.id, m.first = st.Fsid, int64(st.Blocks-st.Bfree)*st.Bsize
		m.last = m.first
		seen[f[2]] = true
		e.mounts = append(e.mounts, m)
	}
	return e
}

// deviceText is a device as mountinfo has it.
func deviceText(dev uint64) string {
	return strconv.FormatUint(uint64(unix.Major(dev)), 10) + ":" + strconv.FormatUint(uint64(unix.Minor(dev)), 10)
}

// gained is how much they have gained since they were found. One that has gone, or that
// another is mounted over, counts as it was last.
func (e *elsewhere) gained() (sum int64) {
	for i := range e.mounts {
		m := &e.mounts[i]
		var st unix.Statfs_t
		if unix.Statfs(m.path, &st) == nil && st.Type == unix.TMPFS_MAGIC && st.Fsid == m.id {
			m.last = int64(st.Blocks-st.Bfree) * st.Bsize
		}
		sum += m.last - m.first
	}
	return sum
}
