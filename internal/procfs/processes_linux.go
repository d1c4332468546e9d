package procfs

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// A Stat is what proc_pid_stat(5) says of a process.
type Stat struct {
	Pid    int
	Name   string // as it calls itself
	State  byte
	fields [][]byte // from the third on
}

// Field returns a number by its place on that page, which counts from 1; 0 where there is none.
func (s *Stat) Field(n int) int64 {
	if i := n - 3; i >= 0 && i < len(s.fields) {
		v, _ := strconv.ParseInt(string(s.fields[i]), 10, 64)
		return v
	}
	return 0
}

// Dead reports whether it only waits for its parent.
func (s *Stat) Dead() bool { return s.State == 'Z' || s.State == 'X' }

// ReadStat looks at a process; ok is false where there is none.
func ReadStat(pid int) (s Stat, ok bool) {
	text, err := Short("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil || pid <= 0 {
		return s, false
	}
	return ParseStat(pid, text)
}

// ParseStat reads "pid (name) state …", where a name may hold anything.
func ParseStat(pid int, text []byte) (s Stat, ok bool) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return s, false
	}
	s = Stat{Pid: pid, Name: string(text[open+1 : end]), fields: bytes.Fields(text[end+1:])}
	if len(s.fields) == 0 {
		return s, false
	}
	s.State = s.fields[0][0]
	return s, true
}

// Each looks at the processes that a /proc lists, as long as look says so.
func Each(proc *os.File, look func(Stat) (more bool)) {
	if _, err := proc.Seek(0, io.SeekStart); err != nil {
		return
	}
	names, _ := proc.Readdirnames(-1)
	var b [1024]byte
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		fd, err := syscall.Openat(int(proc.Fd()), name+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		n, err := syscall.Read(fd, b[:])
		syscall.Close(fd)
		if s, ok := ParseStat(pid, b[:max(n, 0)]); err == nil && ok && !look(s) {
			return
		}
	}
}

// IsTelemetry reports whether a process is the second one of a Go program, which counts and uploads: it outlives each
// go command. Its argument says so to ps (golang.org/x/telemetry, start.go), and whoever has that is believed. proc is
// the path of a /proc.
func IsTelemetry(proc string, pid int) bool {
	text, err := Short(proc + "/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && bytes.HasSuffix(text, []byte("\x00** telemetry **\x00"))
}

// Tree returns a process and its descendants. One whose parent ends meanwhile may be missed.
func Tree(root int) []int {
	pids := []int{root}
	for i := 0; i < len(pids); i++ {
		var ok bool
		if pids, ok = AppendChildren(pids, pids[i]); !ok && i == 0 {
			// The kernel lacks CONFIG_PROC_CHILDREN, or /proc is mounted with
			// hidepid and pid 1 does not let itself be looked at.
			return descendants(root, parents())
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// AppendChildren appends the children of all threads of a process.
func AppendChildren(pids []int, pid int) (all []int, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	for _, tid := range append(Threads(pid), pid) {
		children, err := Short(dir + strconv.Itoa(tid) + "/children")
		ok = ok || err == nil
		for word := range bytes.FieldsSeq(children) {
			child, _ := strconv.Atoi(string(word))
			if !slices.Contains(pids, child) {
				pids = append(pids, child)
			}
		}
	}
	return pids, ok
}

// Threads returns the threads of a process but the first.
func Threads(pid int) (tids []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil || st.Nlink == 3 { // a directory has two links and one more for each below it
		return nil
	}
	tasks, _ := os.ReadDir(dir)
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil && tid != pid {
			tids = append(tids, tid)
		}
	}
	return tids
}

// parents returns the parent of every process on the machine.
func parents() map[int]int {
	all := map[int]int{}
	if proc, err := os.Open("/proc"); err == nil {
		defer proc.Close()
		Each(proc, func(s Stat) bool { all[s.Pid] = int(s.Field(4)); return true })
	}
	return all
}

// descendants returns root and all whose parents lead to it.
func descendants(root int, parents map[int]int) []int {
	pids := []int{root}
	for i := 0; i < len(pids); i++ {
		for pid, parent := range parents {
			if parent == pids[i] && pid != root { // which nothing leads back to, whatever was read
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return pids
}
