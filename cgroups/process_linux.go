package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
)

// A process of a sandbox, and how many bytes it has at most.
type process struct {
	pid, parent int
	task        int   // the thread by whose files it is looked at
	anonymous   int64 // with its swap
	shared      int64 // of shared memory and tmpfs
	tables      int64 // page tables
}

// listProcesses measures root and all its descendants. All processes of a pid
// namespace descend from its pid 1, since that is whom orphans are given to.
func listProcesses(root int) (all []process) {
	for _, pid := range procfs.Tree(root) {
		if p, ok := measure(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

// measure reads /proc/PID/status, which is readable for everyone. The first thread
// can end before the others do (pthread_exit(3)), and then /proc/PID says nothing any
// more of the memory and the files that they have: /proc/TID does.
func measure(pid int) (p process, ok bool) {
	tasks := []int{pid}
	for i := 0; i < len(tasks); i++ {
		status, err := procfs.Short(procFile(tasks[i], "status"))
		if err != nil && i == 0 {
			return p, false
		}
		p = process{
			pid: pid, parent: int(number(status, "PPid:")), task: tasks[i],
			anonymous: kilobytes(status, "RssAnon:") + kilobytes(status, "VmSwap:"),
			shared:    kilobytes(status, "RssShmem:"),
			tables:    kilobytes(status, "VmPTE:"),
		}
		if bytes.Contains(status, []byte("RssAnon:")) {
			break
		}
		if i == 0 {
			tasks = append(tasks, procfs.Threads(pid)...)
		}
	}
	return p, true
}

// borrows reports whether a process has no memory of its own, but its parent's, as it
// has between vfork(2) and exec.
func (p process) borrows(all []process) bool {
	parent := slices.IndexFunc(all, func(q process) bool { return q.pid == p.parent })
	return parent >= 0 && share(kcmpMemory, p.task, all[parent].task)
}

// proportional returns what a process has of memory, a page that n processes share
// as an nth: but for memfds that are counted already, and the files of a tmpfs. One
// that does not let itself be looked at has all of what it may have.
func (p process) proportional(memfds map[uint64]int64) int64 {
	rollup, err := procfs.Short(procFile(p.task, "smaps_rollup"))
	if errors.Is(err, fs.ErrPermission) {
		return p.anonymous + p.shared
	}
	sum := kilobytes(rollup, "Pss_Anon:") + kilobytes(rollup, "SwapPss:")
	if p.shared > 0 {
		smaps, _ := procfs.Short(procFile(p.task, "smaps"))
		sum += sharedBytes(smaps, shmDevice(), memfds)
	}
	return sum
}

// sharedBytes adds up what /proc/PID/smaps (proc_pid_smaps(5)) says of the kernel's own
// tmpfs, but for System V segments, which have a table, and memfds that are counted.
func sharedBytes(smaps []byte, device uint64, memfds map[uint64]int64) (sum int64) {
	want := fmt.Sprintf("%02x:%02x", unix.Major(device), unix.Minor(device))
	counts := false
	for line := range bytes.Lines(smaps) {
		// A mapping starts with "from-to perms offset device inode name", its
		// fields with a capital letter.
		if c := line[0]; c < 'A' || c > 'Z' {
			f := strings.Fields(string(line))
			counts = len(f) >= 5 && f[3] == want && (len(f) == 5 || !strings.HasPrefix(f[5], "/SYSV"))
			if counts {
				inode, _ := strconv.ParseUint(f[4], 10, 64)
				_, counted := memfds[inode]
				counts = !counted
			}
		} else if counts {
			sum += kilobytes(line, "Pss:") + kilobytes(line, "Swap:")
		}
	}
	return sum
}

// openMemfds returns the memfds that processes hold open or execute, bytes by inode. A
// thread can have descriptors of its own (unshare(2), CLONE_FILES). The name of a link
// is asked for first and the inode without asking its filesystem, since a process can
// hold a file that answers never.
func openMemfds(all []process) map[uint64]int64 {
	found := map[uint64]int64{}
	device := shmDevice()
	count := func(dir int, name string) {
		const prefix = "/memfd:"
		var link [len(prefix)]byte
		var st unix.Statx_t
		if n, err := unix.Readlinkat(dir, name, link[:]); err == nil && string(link[:n]) == prefix &&
			unix.Statx(dir, name, unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_BLOCKS, &st) == nil &&
			unix.Mkdev(st.Dev_major, st.Dev_minor) == device {
			found[st.Ino] = int64(st.Blocks) * 512
		}
	}
	for _, p := range all {
		count(unix.AT_FDCWD, procFile(p.task, "exe"))
		for _, tid := range append(procfs.Threads(p.pid), p.task) {
			if tid != p.task && share(kcmpFiles, tid, p.task) {
				continue
			}
			dir, err := os.Open(procFile(tid, "fd"))
			if err != nil {
				continue // it is gone, or not dumpable (prctl(2))
			}
			names, _ := dir.Readdirnames(-1)
			for _, name := range names {
				count(int(dir.Fd()), name)
			}
			dir.Close()
		}
	}
	return found
}

// shmDevice returns the device of the kernel's own tmpfs, where memfds, System
// V segments and shared anonymous mappings live.
func shmDevice() uint64 {
	fd, err := unix.MemfdCreate("pccrun", unix.MFD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	_ = unix.Fstat(fd, &st)
	return st.Dev
}

// segments adds up what the System V segments of an IPC namespace hold, in
// memory and in swap, attached or not. fd is that namespace's
// /proc/sysvipc/shm, which belongs to the namespace that it was opened in; 0
// for none.
func segments(fd int) int64 {
	return tableSum(readTable(fd), 0, map[string]int64{"rss": 1, "swap": 1})
}

// kernelBytes estimates what its semaphores and queues of messages take of the
// kernel's own memory, by /proc/sysvipc/sem and msg: sizes of Linux 6.
func kernelBytes(semaphores, queues int) int64 {
	return tableSum(readTable(semaphores), 512, map[string]int64{"nsems": 64}) +
		tableSum(readTable(queues), 512, map[string]int64{"cbytes": 1, "qnum": 64})
}

func readTable(fd int) (table []byte) {
	if fd == 0 {
		return nil
	}
	chunk := make([]byte, 16<<10)
	for {
		n, err := retry(func() (int, error) { return unix.Pread(fd, chunk, int64(len(table))) })
		if n <= 0 || err != nil {
			return table
		}
		table = append(table, chunk[:n]...)
	}
}

// tableSum reads proc_sysvipc(5), a line of names and then a line for each
// object, which takes so many bytes itself, and so many for one of a column.
func tableSum(table []byte, object int64, weights map[string]int64) (sum int64) {
	head, rows, _ := bytes.Cut(table, []byte{'\n'})
	names := bytes.Fields(head)
	for row := range bytes.Lines(rows) {
		sum += object
		for i, field := range slices.Collect(bytes.FieldsSeq(row)) {
			if i < len(names) {
				n, _ := strconv.ParseInt(string(field), 10, 64)
				sum += max(n, 0) * weights[string(names[i])]
			}
		}
	}
	return sum
}

// What two threads can share, of linux/kcmp.h.
const (
	kcmpMemory = 1 // KCMP_VM
	kcmpFiles  = 2 // KCMP_FILES
)

// share reports whether two threads are known to have one such thing, kcmp(2).
func share(what, a, b int) bool {
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), uintptr(what), 0, 0, 0)
	return errno == 0 && r == 0
}

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// kilobytes returns the bytes of a line "key:   number kB".
func kilobytes(b []byte, key string) int64 { return number(b, key) << 10 }

// number returns the number of a line "key:   number".
func number(b []byte, key string) int64 {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
			n, _ := strconv.ParseInt(string(number), 10, 64)
			return n
		}
	}
	return 0
}
