package cgroups

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processes are those of a sandbox, each with its /proc/PID/statm open: reading
// it again takes a fifth of the time that opening it takes, and it stays the
// file of that process when the number passes to another.
type processes struct {
	scan   bool      // the kernel has no lists of children
	last   int       // the machine's latest process id at the last look
	looked time.Time // when that was
	listed time.Time // when all were listed
	cost   time.Duration
	known  []*process
	early  []int // ids that were given out, but had no process yet
}

type process struct {
	pid   int
	task  int   // the thread by whose files it is looked at: see [process.others]
	statm int   // descriptor, or -1
	bytes int64 // of anonymous memory, at most
	pages int64 // of address space

	stack   uint64 // where it starts, which only exec changes
	parent  int    // who started it, as far as that one lives
	stackAt int64  // pages when both were read
}

const (
	listAge = time.Second // after which all are listed anew, in case one was missed
	fewNew  = 64          // process ids, that are looked at one by one
)

// refresh looks for processes that have come since the last time, not more
// often than in one part in share of the time, and reports whether it did. Process
// ids are given out in order, so it need not look at those from before.
func (p *processes) refresh(root int, share time.Duration) bool {
	if time.Since(p.looked) < share*p.cost {
		return false
	}
	start := threadTime()
	last := latestProcess()
	n := last - p.last
	switch {
	case p.last == 0 || n < 0 || n > fewNew || time.Since(p.listed) > max(listAge, idleShare*p.cost):
		p.relist(root)
		p.listed = time.Now()
	case n == 0 && len(p.early) == 0:
		return false
	default:
		p.add(p.last+1, last)
	}
	p.last, p.looked = last, time.Now()
	p.cost = threadTime() - start
	return true
}

// latestProcess returns the process or thread id that was given out last: the
// fifth field of /proc/loadavg (proc_loadavg(5)).
func latestProcess() int {
	load, _ := readFile("/proc/loadavg")
	n, _ := strconv.Atoi(string(bytes.TrimSpace(load[bytes.LastIndexByte(load, ' ')+1:])))
	return n
}

// add looks at a range of ids, and once more at those that had no process the
// last time: it was being made, or is gone.
func (p *processes) add(from, to int) {
	ids := p.early
	for pid := from; pid <= to; pid++ {
		ids = append(ids, pid)
	}
	p.early = nil
	for i, pid := range ids {
		status, err := readFile(procFile(pid, "status"))
		parent := int(number(status, "PPid:"))
		switch {
		case err != nil:
			if pid >= from {
				p.early = append(p.early, pid)
			}
		case int(number(status, "Tgid:")) != pid: // a thread
		case slices.Contains(ids[:i], parent) && !p.has(parent):
			p.early = append(p.early, pid) // its parent came in between
		case p.has(parent) && !p.has(pid):
			p.known = append(p.known, newProcess(pid))
		}
	}
}

func (p *processes) has(pid int) bool {
	return slices.ContainsFunc(p.known, func(k *process) bool { return k.pid == pid })
}

// relist looks at all.
func (p *processes) relist(root int) {
	old := make(map[int]*process, len(p.known))
	for _, k := range p.known {
		old[k.pid] = k
	}
	p.known = p.known[:0]
	for _, pid := range p.list(root) {
		if p.has(pid) { // it changed its parent while it was listed
			continue
		}
		k, ok := old[pid]
		if !ok || !k.measure(false) { // or its number has passed to this one
			k = newProcess(pid)
		} else {
			delete(old, pid)
		}
		p.known = append(p.known, k)
	}
	for _, k := range old {
		unix.Close(k.statm)
	}
}

// measure looks how much each process holds, and returns the sum. It forgets
// those that are gone.
func (p *processes) measure(swapping bool) int64 {
	var sum int64
	p.known = slices.DeleteFunc(p.known, func(k *process) bool {
		if !k.measure(swapping) {
			unix.Close(k.statm)
			return true
		}
		sum += k.bytes
		return false
	})
	return sum
}

// kill sends SIGKILL to all known processes.
func (p *processes) kill() {
	for _, k := range p.known {
		// The directory serves as a pidfd (pidfd_send_signal(2)). If the
		// process is there after it was opened, it is that of the process.
		dir, err := openDir(procFile(k.pid, ""))
		if err != nil {
			continue
		}
		if k.measure(false) {
			_ = unix.PidfdSendSignal(dir, unix.SIGKILL, nil, 0)
		}
		unix.Close(dir)
	}
}

func (p *processes) close() {
	for _, k := range p.known {
		unix.Close(k.statm)
	}
	p.known = nil
}

func newProcess(pid int) *process {
	fd, err := retry(func() (int, error) { return unix.Open(procFile(pid, "statm"), unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		fd = -1
	}
	return &process{pid: pid, task: pid, statm: fd}
}

// maxTurns bounds how often a look turns to another thread: one that ends is soon
// followed by one that does not.
const maxTurns = 16

// measure reads the anonymous memory that a process maps, shared with a fork or
// not, and its swap; it returns false if the process is gone. /proc/PID/statm
// says enough, at a sixth of the cost of status, as long as the machine does not
// swap. Both are readable for everyone.
func (p *process) measure(swapping bool) bool {
	all, anonymous, ok := p.look()
	for turn := 0; all == 0 && p.others(); turn++ {
		if turn == maxTurns {
			return true // what it held before goes on to count
		}
		all, anonymous, ok = p.look()
	}
	if !ok {
		return false
	}
	p.pages, p.bytes = all, anonymous*pageSize
	if swapping {
		b, _ := readFile(procFile(p.task, "status"))
		p.bytes = kilobytes(b, "RssAnon:") + kilobytes(b, "VmSwap:")
	}
	return true
}

// look reads statm, which is all zeros where the thread has ended.
func (p *process) look() (all, anonymous int64, ok bool) {
	var buf [128]byte
	statm := buf[:]
	n, err := retry(func() (int, error) { return unix.Pread(p.statm, statm, 0) })
	if p.statm < 0 {
		statm, err = readFile(procFile(p.task, "statm")) // no descriptor was left
		n = len(statm)
	}
	if err != nil || n == 0 {
		return 0, 0, false
	}
	all, anonymous = parseStatm(statm[:n])
	return all, anonymous, true
}

// others reports whether a process has more than one thread, and turns to one that
// lives. The first can end before the others do (pthread_exit(3)), and then
// /proc/PID says nothing any more of the memory and the files that they have:
// /proc/TID does.
func (p *process) others() bool {
	tids := threads(p.pid)
	for _, tid := range tids {
		q := newProcess(tid)
		all, _, _ := q.look()
		if all > 0 {
			unix.Close(p.statm)
			p.task, p.statm = tid, q.statm
			break
		}
		unix.Close(q.statm)
	}
	return len(tids) > 0
}

// threads returns the threads of a process, the first among them; nil where there is
// but that one.
func threads(pid int) (tids []int) {
	dir := procFile(pid, "task")
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil || st.Nlink == 3 { // a directory has two links and one more for each below it
		return nil
	}
	tasks, _ := os.ReadDir(dir)
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// list returns root and all its descendants. All processes of a pid namespace
// descend from its pid 1, since that is whom orphans are given to. One pass can
// miss a process whose parent ends meanwhile, so it is done until two agree.
func (p *processes) list(root int) []int {
	pids := p.pass(root)
	for range 4 {
		before := pids
		if pids = p.pass(root); slices.Equal(before, pids) {
			break
		}
	}
	return pids
}

func (p *processes) pass(root int) []int {
	if p.scan {
		return descendants(root, parents())
	}
	pids := []int{root}
	for i := 0; i < len(pids); i++ {
		var ok bool
		if pids, ok = appendChildren(pids, pids[i]); !ok && i == 0 {
			// The kernel lacks CONFIG_PROC_CHILDREN, or /proc is mounted with
			// hidepid and pid 1 does not let itself be looked at.
			p.scan = true
			return p.pass(root)
		}
	}
	return pids
}

// appendChildren appends the children of all threads of a process.
func appendChildren(pids []int, pid int) ([]int, bool) {
	tids := threads(pid)
	if tids == nil {
		tids = []int{pid}
	}
	ok := false
	for _, tid := range tids {
		var read bool
		pids, read = appendPids(pids, procFile(pid, "task/"+strconv.Itoa(tid)+"/children"))
		ok = ok || read
	}
	return pids, ok
}

// appendPids appends the numbers in a file.
func appendPids(pids []int, name string) ([]int, bool) {
	b, err := readFile(name)
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
		if stat, err := readFile("/proc/" + e.Name() + "/stat"); err == nil {
			all[pid] = int(statField(stat, 4))
		}
	}
	return all
}

// splitForks separates processes that can share anonymous pages from those that
// cannot: only a fork shares them, and it has its parent's stack. It leaves out
// those that have no memory of their own, but their parent's, as a process has
// between vfork(2) and exec: what starts programs out of half of its limit would
// be counted twice, whenever it does so.
func splitForks(all []*process) (alone, forks []*process) {
	same := make(map[uint64]int, len(all))
	known := make(map[int]*process, len(all))
	for _, p := range all {
		if p.stackAt != p.pages {
			p.stack, p.parent = stackAndParent(p.task) // it may have called exec
			p.stackAt = p.pages
		}
		same[p.stack]++
		known[p.pid] = p
	}
	for _, p := range all {
		switch parent := known[p.parent]; {
		case same[p.stack] == 1:
			alone = append(alone, p)
		case parent == nil || !share(kcmpMemory, p.task, parent.task):
			forks = append(forks, p)
		}
	}
	return alone, forks
}

// stackAndParent returns where the stack of a process starts, and its parent:
// fields 28 and 4 of /proc/PID/stat. Without leave to know the stack reads as 0,
// which puts all such processes together: the safe side, and the slow one.
func stackAndParent(pid int) (stack uint64, parent int) {
	stat, _ := readFile(procFile(pid, "stat"))
	return statField(stat, 28), int(statField(stat, 4))
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

// statField returns a field of /proc/PID/stat (proc_pid_stat(5)) after the
// second, which is the name of the command in parentheses and may hold anything.
func statField(stat []byte, n int) uint64 {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= n-3 {
		return 0
	}
	value, _ := strconv.ParseUint(string(fields[n-3]), 10, 64)
	return value
}

// proportional adds up the anonymous memory of processes, each page once. It
// looks at the largest first, and no further than it takes to see that the sum
// is over limit, and calls next before each.
func proportional(forks []*process, limit int64, next func()) int64 {
	slices.SortFunc(forks, func(a, b *process) int { return cmp.Compare(b.bytes, a.bytes) })
	var sum int64
	for _, p := range forks {
		if sum > limit {
			break
		}
		next()
		sum += proportionalSize(p.task, p.bytes)
	}
	return sum
}

// descendants returns root and all whose parents lead to it.
func descendants(root int, parents map[int]int) []int {
	children := map[int][]int{}
	for pid, parent := range parents {
		if pid != root { // which nothing leads back to, whatever was read
			children[parent] = append(children[parent], pid)
		}
	}
	pids := []int{root}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
	}
	slices.Sort(pids[1:])
	return pids
}

// parseStatm returns the pages of address space, and the resident ones less
// those of files and shared memory.
func parseStatm(statm []byte) (all, anonymous int64) {
	var n [3]int64
	fields := bytes.Fields(statm)
	for i := range min(len(n), len(fields)) {
		n[i], _ = strconv.ParseInt(string(fields[i]), 10, 64)
	}
	return n[0], max(0, n[1]-n[2])
}

// proportionalSize returns the bytes of anonymous memory and swap of a process,
// a page that n processes share as an nth; bound if it does not let itself be
// looked at.
func proportionalSize(pid int, bound int64) int64 {
	b, err := readFile(procFile(pid, "smaps_rollup"))
	if err != nil || len(b) == 0 {
		return bound
	}
	return kilobytes(b, "Pss_Anon:") + kilobytes(b, "SwapPss:")
}

// readFile is [os.ReadFile] in half as many system calls, which is what a
// sample costs: a file of /proc has no size to ask for, and nothing to poll.
func readFile(name string) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 1024)
	for {
		n, err := retry(func() (int, error) { return unix.Read(fd, b[len(b):cap(b)]) })
		if n <= 0 {
			return b, err
		}
		b = slices.Grow(b[:len(b)+n], 512)
	}
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

// openMemfds returns the memfds that processes hold open, bytes by inode, and
// whether a process other than pid 1 hides what it holds: as one that is not
// dumpable does (prctl(2)), or in a socket, where what was sent waits to be
// received (SCM_RIGHTS, unix(7)). A thread can have descriptors of its own (unshare(2),
// CLONE_FILES), and a program can be a memfd. The name of a link is asked for first and the inode
// without asking its filesystem, since a process can hold a file that answers
// never.
func openMemfds(all []*process, device uint64, pid1 int) (found map[uint64]int64, hidden bool) {
	found = map[uint64]int64{}
	count := func(dir int, name string) (link [prefixLength]byte) {
		link, inode, bytes := memfd(dir, name, device)
		if inode != 0 {
			found[inode] = bytes
		}
		return link
	}
	for _, p := range all {
		tasks := []int{p.task}
		for _, tid := range threads(p.pid) {
			if tid != p.task && !share(kcmpFiles, tid, p.task) {
				tasks = append(tasks, tid)
			}
		}
		count(unix.AT_FDCWD, procFile(p.task, "exe"))
		for _, task := range tasks {
			dir, err := os.Open(procFile(task, "fd"))
			if err != nil {
				hidden = hidden || p.pid != pid1 && errors.Is(err, fs.ErrPermission)
				continue
			}
			names, _ := dir.Readdirnames(-1)
			for _, name := range names {
				if link := count(int(dir.Fd()), name); string(link[:]) == socketPrefix && !hidden {
					hidden = inFlight(task, name)
				}
			}
			dir.Close()
		}
	}
	return found, hidden
}

// inFlight reports whether descriptors wait in a socket to be received: proc_pid_fdinfo(5),
// Linux 5.11.
func inFlight(task int, fd string) bool {
	info, _ := readFile(procFile(task, "fdinfo/"+fd))
	return number(info, "scm_fds:") > 0
}

// What links of /proc/PID/fd begin with.
const (
	prefixLength = 7
	memfdPrefix  = "/memfd:"
	socketPrefix = "socket:"
)

// memfd looks at a link in /proc/PID/fd, or at one like it. The inode is 0 for
// all but a memfd.
func memfd(dir int, name string, device uint64) (link [prefixLength]byte, inode uint64, bytes int64) {
	n, err := unix.Readlinkat(dir, name, link[:])
	if err != nil || string(link[:n]) != memfdPrefix {
		return link, 0, 0
	}
	var st unix.Statx_t
	err = unix.Statx(dir, name, unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_BLOCKS, &st)
	if err != nil || unix.Mkdev(st.Dev_major, st.Dev_minor) != device {
		return link, 0, 0
	}
	return link, st.Ino, int64(st.Blocks) * 512
}

// mapped says which mappings count.
type mapped struct {
	device   uint64           // the kernel's own tmpfs
	open     map[uint64]int64 // its inodes that are counted already
	segments bool             // System V segments too, which nobody else counts
	suspect  bool             // what has been given back matters
}

// mappedShared returns the bytes that processes map of the kernel's own tmpfs, and how
// much more there may be: pages that were given back (madvise(2)) stay in their file,
// and of one that nobody has open nobody sees how much that is. The kernel gives each
// process its share of a page, so that all together give the whole. next is
// called before each.
func mappedShared(all []*process, which mapped, next func()) (seen, more int64) {
	for _, p := range all {
		file := "smaps"
		if residentShared(p.task) == 0 {
			if file = "maps"; !which.suspect {
				continue
			}
		}
		next()
		text, _ := readFile(procFile(p.task, file))
		for inode, m := range which.in(text) {
			if _, counted := which.open[inode]; !counted {
				seen += m.bytes
				more = min(more+max(m.size-m.bytes, 0), unbounded)
			}
		}
	}
	return seen, more
}

// unbounded is more than a machine has, and far from an overflow.
const unbounded = int64(1) << 56

// residentShared returns what a process maps of shared memory and tmpfs, swap
// of any kind included. Unlike its mappings, nothing can delay a look at that.
func residentShared(pid int) int64 {
	status, _ := readFile(procFile(pid, "status"))
	return kilobytes(status, "RssShmem:") + kilobytes(status, "VmSwap:")
}

// extent is what a process maps of one file.
type extent struct {
	bytes int64 // its share of what it has touched
	size  int64 // of that, touched or not
}

// in reads the text of /proc/PID/smaps (proc_pid_smaps(5)) or maps: what is
// mapped, by inode. The inode of a segment is its id, which may be a memfd's
// number too; its name is the kernel's.
func (w mapped) in(text []byte) map[uint64]extent {
	found := map[uint64]extent{}
	want := fmt.Sprintf("%02x:%02x", unix.Major(w.device), unix.Minor(w.device))
	var inode uint64
	for line := range bytes.Lines(text) {
		// A mapping starts with "from-to perms offset device inode name", its
		// fields with a capital letter.
		if c := line[0]; c < 'A' || c > 'Z' {
			inode = 0
			fields := strings.Fields(string(line))
			segment := len(fields) > 5 && strings.HasPrefix(fields[5], "/SYSV")
			if len(fields) >= 5 && fields[3] == want && (w.segments || !segment) {
				inode, _ = strconv.ParseUint(fields[4], 10, 64)
			}
			if inode != 0 && !segment {
				m := found[inode]
				m.size = min(m.size+span(fields[0]), unbounded)
				found[inode] = m
			}
			continue
		}
		if inode != 0 {
			m := found[inode]
			m.bytes += kilobytes(line, "Pss:") + kilobytes(line, "Swap:")
			found[inode] = m
		}
	}
	return found
}

// span returns how large a mapping is, "from-to".
func span(addresses string) int64 {
	from, to, _ := strings.Cut(addresses, "-")
	low, err1 := strconv.ParseUint(from, 16, 63)
	high, err2 := strconv.ParseUint(to, 16, 63)
	if err1 != nil || err2 != nil || high < low {
		return 0
	}
	return int64(min(high-low, uint64(unbounded)))
}
