package cgroups

import (
	"context"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Supervisor bounds the memory of a sandbox that has no control group, by
// looking at its processes again and again. It promises that the sandbox is
// killed before it holds a quarter more than the limit, as long as this process
// gets to run and nobody else frees memory as fast as the sandbox takes it.
//
// What counts, for all processes that descend from pid 1 of the sandbox:
//
//   - anonymous memory and its swap, a page that a fork shares once;
//   - files of the private filesystems, whether a process maps them or not;
//   - memfds that a process holds open, once each;
//   - other shared memory as far as a process maps it.
//
// What does not: page cache, kernel memory, huge pages from a pool, and shared
// memory that is neither mapped nor open in any process (System V segments, a
// memfd under way in a socket).
type Supervisor struct {
	Limit       int64            // bytes
	PID         int              // pid 1 of the sandbox, as this process sees it
	Filesystems []int            // descriptors of the sandbox's own tmpfs mounts, one for each
	Over        func(used int64) // called once, when used bytes were more than Limit: has to kill the sandbox

	peak atomic.Int64
	tree processes
	last reading
	shm  shared
}

const (
	firstSample = 20 * time.Millisecond // a short command is never looked at
	minTick     = 4 * time.Millisecond
	maxTick     = time.Second
	idleShare   = 200             // of the time, at most one part goes into samples of a sandbox that does not grow
	shmAge      = 2 * time.Second // after which shared memory is counted anew
	preciseWait = time.Second     // a process can delay a look into its mappings
	fillRate    = 2 << 30         // bytes a second that one processor can fill at most, about
)

// A reading is what was known at one moment.
type reading struct {
	at   time.Time
	cost time.Duration
	used int64 // an upper bound
	free int64 // of the machine
}

// Run looks after the sandbox until it is over the limit, its pid 1 is gone,
// or ctx is done.
//
// Between two samples a look at the machine's free memory, one system call,
// says whether there can have been growth that matters. So a sandbox at rest
// costs little, however many processes it has, and a fast one is looked at
// often.
func (s *Supervisor) Run(ctx context.Context) {
	tick := firstSample
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		m := readMachine()
		if s.due(m) {
			if !alive(s.PID) {
				return
			}
			if used := s.sample(m); used > s.Limit {
				s.Over(used)
				return
			}
		}
		timer.Reset(s.tick(m))
	}
}

// Peak returns the most that a sample has seen, in bytes.
func (s *Supervisor) Peak() int64 { return s.peak.Load() }

// due reports whether the processes have to be looked at now.
func (s *Supervisor) due(m memory) bool {
	headroom := s.Limit - s.last.used
	switch {
	case s.last.at.IsZero():
		return true
	case s.last.free-m.free >= headroom/2+s.Limit/16:
		return true // the machine has lost what the sandbox may have taken
	case m.free < headroom || m.free < m.total/16:
		// The kernel makes room by dropping page cache, so free memory says
		// nothing.
		return time.Since(s.last.at) >= 20*s.last.cost
	}
	return time.Since(s.last.at) >= idleShare*s.last.cost
}

// tick returns how long it takes at least until the sandbox can be an eighth
// over the limit.
func (s *Supervisor) tick(m memory) time.Duration {
	room := s.Limit - s.last.used - max(0, s.last.free-m.free)
	rate := int64(min(runtime.NumCPU(), 8)) * fillRate
	tick := time.Duration(float64(max(0, room)+s.Limit/8) / float64(rate) * float64(time.Second))
	return min(max(tick, minTick), maxTick)
}

// sample returns how much the sandbox uses: an upper bound that is cheap, or,
// where that is over the limit, the truth as far as it can be had.
func (s *Supervisor) sample(m memory) int64 {
	start := time.Now()
	pids := s.tree.list(s.PID)
	sizes := make([]size, 0, len(pids))
	var private int64
	for _, pid := range pids {
		n := anonymous(pid, m.swapping)
		sizes = append(sizes, size{pid, n})
		private += n
	}
	files := tmpfsBytes(s.Filesystems)
	if start.Sub(s.shm.at) > max(shmAge, idleShare*s.shm.cost) {
		s.shm.count(pids, m, files)
	}
	used := private + files + s.shm.bound(m, files)
	if used > s.Limit {
		used = s.precise(sizes, m, files, used)
	}
	s.last = reading{at: time.Now(), cost: time.Since(start), used: used, free: m.free}
	if used > s.peak.Load() {
		s.peak.Store(used)
	}
	return used
}

// precise counts pages that processes share once. It looks into mappings, which
// a process can delay by holding its own lock on them; then the upper bound
// has to do.
func (s *Supervisor) precise(sizes []size, m memory, files, bound int64) int64 {
	done := make(chan int64, 1)
	shm := s.shm
	go func() {
		pids := make([]int, len(sizes))
		for i, size := range sizes {
			pids[i] = size.pid
		}
		shm.count(pids, m, files)
		done <- proportional(sizes, s.Limit-files-shm.bytes) + files + shm.bytes
	}()
	select {
	case used := <-done:
		s.shm = shm
		return used
	case <-time.After(preciseWait):
		return bound
	}
}

// A size is what one process holds at most.
type size struct {
	pid   int
	bytes int64
}

// proportional adds up the anonymous memory of processes, each page once. It
// looks at the largest first, and no further than it takes to know on which
// side of limit the sum is.
func proportional(sizes []size, limit int64) int64 {
	slices.SortFunc(sizes, func(a, b size) int { return int(b.bytes - a.bytes) })
	var sum, rest int64
	for _, s := range sizes {
		rest += s.bytes
	}
	for _, s := range sizes {
		if sum+rest <= limit || sum > limit {
			break
		}
		rest -= s.bytes
		sum += proportionalSize(s.pid, s.bytes)
	}
	if sum > limit {
		return sum
	}
	return sum + rest
}

// memory is what the machine says of itself.
type memory struct {
	free     int64 // with free swap
	total    int64
	shared   int64 // all shmem of the machine: tmpfs, memfds, shared mappings
	swapping bool
}

func readMachine() memory {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return memory{} // only for a bad address
	}
	unit := int64(info.Unit)
	return memory{
		free:     (int64(info.Freeram) + int64(info.Freeswap)) * unit,
		total:    int64(info.Totalram) * unit,
		shared:   int64(info.Sharedram) * unit,
		swapping: info.Freeswap != info.Totalswap,
	}
}

// alive reports whether a process exists.
func alive(pid int) bool { return unix.Kill(pid, 0) != unix.ESRCH }

// tmpfsBytes adds up what the filesystems hold.
func tmpfsBytes(fds []int) int64 {
	var sum int64
	for _, fd := range fds {
		var st unix.Statfs_t
		if unix.Fstatfs(fd, &st) == nil {
			sum += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	return sum
}

// shared is the shared memory of the sandbox that is in no filesystem of its
// own.
type shared struct {
	at      time.Time
	cost    time.Duration
	bytes   int64
	machine int64 // what the machine had then
	files   int64 // what the filesystems had then
	device  uint64
}

// bound returns what it is now at most: what it was, and all that the machine
// has gained since, but for the sandbox's own filesystems.
func (s *shared) bound(m memory, files int64) int64 {
	return s.bytes + max(0, m.shared-s.machine-(files-s.files))
}

// count looks for it in all processes.
func (s *shared) count(pids []int, m memory, files int64) {
	start := time.Now()
	if s.device == 0 {
		s.device = shmDevice()
	}
	open := map[uint64]int64{}   // bytes by inode
	mapped := map[uint64]int64{} // by inode too
	for _, pid := range pids {
		openMemfds(pid, s.device, open)
		mappedShared(pid, s.device, mapped)
	}
	s.bytes = 0
	for _, n := range open {
		s.bytes += n
	}
	for inode, n := range mapped {
		if _, counted := open[inode]; !counted {
			s.bytes += n
		}
	}
	s.machine, s.files = m.shared, files
	s.at, s.cost = start, time.Since(start)
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
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Dev
}

var pageSize = int64(os.Getpagesize())
