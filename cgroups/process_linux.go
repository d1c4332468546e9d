package cgroups

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processes finds the processes of a sandbox.
type processes struct {
	scan bool // the kernel has no lists of children
}

// list returns root and all its descendants. All processes of a pid namespace
// descend from its pid 1, since that is whom orphans are given to.
func (p *processes) list(root int) []int {
	if !p.scan {
		pids := []int{root}
		for i := 0; i < len(pids); i++ {
			var ok bool
			if pids, ok = appendChildren(pids, pids[i]); !ok && i == 0 {
				// The kernel lacks CONFIG_PROC_CHILDREN, or /proc is mounted
				// with hidepid and pid 1 does not let itself be looked at.
				p.scan = true
				return p.list(root)
			}
		}
		return pids
	}
	return descendants(root, parents())
}

// appendChildren appends the children of all threads of a process.
func appendChildren(pids []int, pid int) ([]int, bool) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return pids, false
	}
	if st.Nlink == 3 { // a directory has two links and one more for each below it
		return appendPids(pids, dir+"/"+strconv.Itoa(pid)+"/children")
	}
	tasks, _ := os.ReadDir(dir)
	ok := false
	for _, task := range tasks {
		var read bool
		pids, read = appendPids(pids, dir+"/"+task.Name()+"/children")
		ok = ok || read
	}
	return pids, ok
}

// appendPids appends the numbers in a file.
func appendPids(pids []int, name string) ([]int, bool) {
	b, err := os.ReadFile(name)
	for word := range bytes.FieldsSeq(b) {
		if pid, err := strconv.Atoi(string(word)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err == nil
}

// parents returns the parent of every process on the machine.
func parents() map[int]int {
	entries, _ := os.ReadDir("/proc")
	all := make(map[int]int, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if stat, err := os.ReadFile("/proc/" + e.Name() + "/stat"); err == nil {
			all[pid] = parentOf(stat)
		}
	}
	return all
}

// parentOf returns the fourth field of /proc/PID/stat (proc(5)). The second is
// the name of the command in parentheses, which may hold anything.
func parentOf(stat []byte) int {
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	fields := bytes.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	pid, _ := strconv.Atoi(string(fields[1]))
	return pid
}

// descendants returns root and all whose parents lead to it.
func descendants(root int, parents map[int]int) []int {
	children := map[int][]int{}
	for pid, parent := range parents {
		children[parent] = append(children[parent], pid)
	}
	pids := []int{root}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
		delete(children, pids[i]) // a parent that is its own child would not end
	}
	return pids
}

// anonymous returns the bytes of anonymous memory that a process maps, shared
// with a fork or not, and its swap. /proc/PID/statm says enough, at a sixth of
// the cost of status, as long as the machine does not swap. Both are readable
// for everyone.
func anonymous(pid int, swapping bool) int64 {
	if swapping {
		b, _ := os.ReadFile(procFile(pid, "status"))
		return kilobytes(b, "RssAnon:") + kilobytes(b, "VmSwap:")
	}
	b, _ := os.ReadFile(procFile(pid, "statm"))
	return statmAnonymous(b) * pageSize
}

// statmAnonymous returns resident pages less those of files and shared memory.
func statmAnonymous(statm []byte) int64 {
	fields := bytes.Fields(statm)
	if len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	shared, _ := strconv.ParseInt(string(fields[2]), 10, 64)
	return max(0, resident-shared)
}

// proportionalSize returns the bytes of anonymous memory and swap of a process,
// a page that n processes share as an nth; bound if it does not let itself be
// looked at.
func proportionalSize(pid int, bound int64) int64 {
	b, err := os.ReadFile(procFile(pid, "smaps_rollup"))
	if err != nil || len(b) == 0 {
		return bound
	}
	return kilobytes(b, "Pss_Anon:") + kilobytes(b, "SwapPss:")
}

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// kilobytes returns the bytes of a line "key:   number kB".
func kilobytes(b []byte, key string) int64 {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
			n, _ := strconv.ParseInt(string(number), 10, 64)
			return n << 10
		}
	}
	return 0
}

// openMemfds adds the memfds that a process holds to found, which has their
// bytes by inode. The name of a link is asked for first and the inode without
// asking its filesystem, since a process can hold a file that answers never.
func openMemfds(pid int, device uint64, found map[uint64]int64) {
	dir, err := os.Open(procFile(pid, "fd"))
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	at := int(dir.Fd())
	var target [len(memfdPrefix)]byte
	for _, name := range names {
		n, err := unix.Readlinkat(at, name, target[:])
		if err != nil || string(target[:n]) != memfdPrefix {
			continue
		}
		var st unix.Statx_t
		err = unix.Statx(at, name, unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_BLOCKS, &st)
		if err == nil && unix.Mkdev(st.Dev_major, st.Dev_minor) == device {
			found[st.Ino] = int64(st.Blocks) * 512
		}
	}
}

const memfdPrefix = "/memfd:"

// mappedShared adds what a process maps of the kernel's own tmpfs to found,
// bytes by inode: its share of each page, so that all processes together give
// the whole.
func mappedShared(pid int, device uint64, found map[uint64]int64) {
	b, _ := os.ReadFile(procFile(pid, "status"))
	if kilobytes(b, "RssShmem:") == 0 && kilobytes(b, "VmSwap:") == 0 {
		return
	}
	smaps, _ := os.ReadFile(procFile(pid, "smaps"))
	sharedMappings(smaps, device, found)
}

// sharedMappings reads the text of /proc/PID/smaps (proc_pid_smaps(5)).
func sharedMappings(smaps []byte, device uint64, found map[uint64]int64) {
	want := fmt.Sprintf("%02x:%02x", unix.Major(device), unix.Minor(device))
	var inode uint64
	for line := range bytes.Lines(smaps) {
		// A mapping starts with "from-to perms offset device inode", its
		// fields with a capital letter.
		if c := line[0]; c < 'A' || c > 'Z' {
			inode = 0
			fields := strings.Fields(string(line))
			if len(fields) >= 5 && fields[3] == want {
				inode, _ = strconv.ParseUint(fields[4], 10, 64)
			}
			continue
		}
		if inode != 0 {
			found[inode] += kilobytes(line, "Pss:") + kilobytes(line, "Swap:")
		}
	}
}
