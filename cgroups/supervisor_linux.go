package cgroups

import (
	"context"
	"os"
	"runtime"
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
//   - System V segments, attached or not; semaphores and what waits in queues;
//   - page tables;
//   - other shared memory as far as a process maps it;
//   - what the whole machine gains in shared memory, less what its own filesystems
//     in memory do, while a process of the sandbox hides its descriptors, or some of them are under way in a socket, and, as
//     far as there is room for it, while one maps shared memory that it has given back.
//
// What does not: page cache, other kernel memory, huge pages from a pool, what a
// pipe or a socket holds of pages that were given back, and the rest of a shared
// mapping of which a part was unmapped.
type Supervisor struct {
	Limit       int64            // bytes
	PID         int              // pid 1 of the sandbox, as this process sees it
	Filesystems []int            // descriptors of the sandbox's own tmpfs mounts, one for each
	Segments    int              // a descriptor of the sandbox's own /proc/sysvipc/shm, opened inside; 0 for none
	Semaphores  int              // likewise of sem
	Queues      int              // and of msg
	Over        func(used int64) // called once, when used bytes were more than Limit: has to kill the sandbox

	peak  atomic.Int64
	tree  processes
	last  reading
	grew  time.Time // when a sample last saw growth
	shm   shared
	truth shared // as precise saw it last
	exact exact

	others elsewhere

	tables tables
	kernel int64 // what the last sample saw of the kernel's own memory
	over   atomic.Bool
}

const (
	firstSample = 20 * time.Millisecond // a short command is never looked at
	minTick     = 4 * time.Millisecond
	maxTick     = time.Second
	farTick     = 250 * time.Millisecond // a limit that is as far away may be seen some milliseconds late
	maxPause    = 2 * time.Second
	idleTicks   = 4   // looks at the machine that a sample of a sandbox that does not grow is good for
	idleShare   = 400 // one part of the time goes into samples of a sandbox that does not grow,
	blindShare  = 100 // of one whose growth free memory would not show,
	growthShare = 10  // and of one that grows
	exactShare  = 50  // and into looks at pages that forks share
	growthAge   = 100 * time.Millisecond
	shmAge      = 2 * time.Second // after which shared memory is counted anew
	stuck       = 5 * time.Second // a process can delay a look into its mappings
	fillRate    = 5 << 30         // bytes a second that one processor can fill at most, about
)

// A reading is what was known at one moment.
type reading struct {
	at   time.Time
	cost time.Duration // processor time
	used int64         // an upper bound
	free int64         // of the machine
}

// Run looks after the sandbox until it is over the limit, its pid 1 is gone,
// or ctx is done, which it sees within a second. It has to run before the
// command does.
//
// How often it looks follows from how soon the limit can be reached, from
// whether the sandbox grows, and from what a look costs. A look at the
// machine's free memory in between, one system call, sees much growth early;
// not all, since the kernel keeps free pages aside for each processor.
func (s *Supervisor) Run(ctx context.Context) {
	m := readMachine()
	s.shm = shared{at: time.Now(), machine: m, files: tmpfsBytes(s.Filesystems)}
	s.truth = s.shm
	select {
	case <-ctx.Done():
		return
	case <-time.After(firstSample):
	}
	// A thread that sleeps by itself is back sooner than one that waits for
	// another to see that a timer has run out, where the sandbox has more
	// threads than there are processors.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	shortSlice()
	defer s.tree.close()
	s.others = newElsewhere()
	share := time.Duration(growthShare)
	for tick := time.Duration(0); ctx.Err() == nil && !s.over.Load(); {
		if share == idleShare && tick >= farTick {
			time.Sleep(tick) // wakes nothing else of Go's runtime: a tenth of the cost
		} else {
			sleep(tick)
		}
		if !alive(s.PID) {
			return
		}
		m = readMachine()
		share = s.share(m)
		if time.Since(s.last.at) >= s.pause(share, tick) {
			if used := s.sample(m, share); used > s.Limit {
				// The first to die would be pid 1, and the others when it gets
				// to run. Until then they would go on filling memory. Whoever waits
				// for pid 1 may ask for the reason before Over is called.
				first := s.over.CompareAndSwap(false, true)
				s.tree.kill()
				if first {
					s.Over(used)
				}
			}
		}
		tick = s.tick(m)
	}
}

// threadTime returns the processor time that this thread has used. The time on
// the wall would count a busy machine as cost, and look the less often for it.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// sleep sleeps at most d.
func sleep(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil)
}

// shortSlice asks for the processor in small portions, and so at an earlier
// time (sched(7), Linux 6.12; before it this does nothing).
func shortSlice() {
	attr, err := unix.SchedGetAttr(0, 0)
	if err == nil && attr.Policy == unix.SCHED_NORMAL {
		attr.Runtime = uint64(100 * time.Microsecond)
		_ = unix.SchedSetAttr(0, attr, 0)
	}
}

// Exceeded reports whether the sandbox was over the limit, and so is ended.
func (s *Supervisor) Exceeded() bool { return s.over.Load() }

// Peak returns the most that a sample has seen, in bytes: a little too much
// where processes share memory, since that is counted exactly only near the
// limit, and too little where a peak was short.
func (s *Supervisor) Peak() int64 { return s.peak.Load() }

// share says how much of the time may go into looking, as its inverse: much
// while there is growth or may be, and little otherwise.
func (s *Supervisor) share(m memory) time.Duration {
	headroom := s.Limit - s.last.used
	switch {
	case time.Since(s.grew) < growthAge,
		s.last.free-m.free >= headroom/4+s.Limit/32: // the machine has lost what the sandbox may have taken
		return growthShare
	case m.free < headroom, m.free < m.total/16: // the kernel makes room by dropping page cache
		return blindShare
	}
	return idleShare
}

// pause returns how old a sample may become.
func (s *Supervisor) pause(share, tick time.Duration) time.Duration {
	p := min(share*s.last.cost, maxPause)
	if share == idleShare {
		p = max(p, idleTicks*tick)
	}
	return p
}

// tick returns how long it takes at least until the sandbox can be a
// sixteenth over the limit. A wake-up costs some 0.3 ms of processor time, most of
// it in Go's runtime, so there are no more than that.
func (s *Supervisor) tick(m memory) time.Duration {
	room := s.Limit - s.last.used - max(0, s.last.free-m.free)
	rate := int64(min(runtime.NumCPU(), 3)) * fillRate
	tick := time.Duration(float64(max(0, room)+s.Limit/16) / float64(rate) * float64(time.Second))
	return min(max(tick, minTick), maxTick)
}

// sample returns how much the sandbox uses: an upper bound that is cheap, or,
// where that is over the limit, the truth as far as it can be had. Under a
// fork bomb this thread gets a small share of a processor: what it does here
// decides how late it is.
func (s *Supervisor) sample(m memory, share time.Duration) int64 {
	start := threadTime()
	m.elsewhere = s.others.gained()
	files := tmpfsBytes(s.Filesystems)
	var listing time.Duration // has a share of its own
	if s.tree.refresh(s.PID, share) {
		listing = s.tree.cost
	}
	private := s.tree.measure(m.swapping)
	objects := kernelBytes(s.Semaphores, s.Queues)
	sysv := segments(s.Segments)
	if time.Since(s.shm.at) > max(shmAge, idleShare*s.shm.cost) {
		s.shm.estimate(s.tree.known, s.PID, m, files, sysv)
	}
	// An estimate does not see pages of a shared mapping that were given back, so it
	// says nothing against what the machine has gained since there was a precise look.
	used := private + files + max(s.shm.bound(m, files), s.truth.blame(m, files), sysv)
	seen := private + files + max(s.shm.bytes, sysv)
	s.tables.look(s.tree.known, m, used, s.Limit)
	s.kernel = objects + s.tables.bytes
	used, seen = used+s.kernel, seen+s.kernel
	cost := threadTime() - start - listing
	if used > s.Limit {
		used = s.exactly(m, files, used)
		seen = used
	}
	now := time.Now()
	if used > s.last.used+s.Limit/128 {
		s.grew = now
	}
	s.last = reading{at: now, cost: cost, used: used, free: m.free}
	s.peak.Store(max(seen, s.peak.Load()))
	return used
}

// exactly returns what precise says, or, for some time after a look that took
// long, what it said and all that the bound has grown since. That lacks the
// copies of pages that forks shared.
func (s *Supervisor) exactly(m memory, files, bound int64) int64 {
	used := s.exact.used + max(0, bound-s.exact.bound)
	if used > s.Limit || time.Since(s.exact.at) >= exactShare*s.exact.cost {
		start := threadTime()
		used = s.precise(m, files, bound)
		s.exact = exact{time.Now(), threadTime() - start, used, bound}
	}
	return used
}

// exact is what precise said, and what the bound was then.
type exact struct {
	at          time.Time
	cost        time.Duration
	used, bound int64
}

// precise counts each page once. What takes long comes last, since a hog that
// is fast is seen before.
func (s *Supervisor) precise(m memory, files, bound int64) int64 {
	start := threadTime()
	alone, forks := splitForks(s.tree.known)
	used := files + s.kernel
	for _, p := range alone {
		used += p.bytes
	}
	if used > s.Limit {
		return used
	}
	device := shmDevice()
	open, hidden := openMemfds(s.tree.known, device, s.PID)
	shm := sum(open) + segments(s.Segments)
	blame := max(s.shm.blame(m, files), s.truth.blame(m, files))
	if hidden {
		shm = max(shm, blame)
	}
	if used+shm > s.Limit {
		return used + shm
	}
	// From here on the kernel walks mappings, which a process can delay by
	// holding its own lock on them. Then the upper bound has to do.
	next, done := watch(stuck, func() { s.end(bound) })
	defer done()
	used += proportional(forks, s.Limit-used-shm, next)
	seen, more := mappedShared(append(alone, forks...), mapped{device: device, open: open, segments: s.Segments == 0, suspect: used+blame > s.Limit}, next)
	shm = max(shm+seen, min(shm+seen+more, blame))
	s.shm = shared{at: time.Now(), cost: threadTime() - start, bytes: shm, machine: m, files: files}
	s.truth = s.shm
	return used + shm
}

// watch calls late once if next has not been called for so long, of the time that this
// process could run in: after Ctrl-Z, or a machine that slept, the clock says nothing
// about who was slow.
func watch(long time.Duration, late func()) (next, done func()) {
	const turns = 50
	var turn atomic.Int32
	var t *time.Timer
	t = time.AfterFunc(time.Hour, func() {
		switch n := turn.Add(1); {
		case n < 0: // done
		case n >= turns:
			late()
		default:
			t.Reset(long / turns)
		}
	})
	t.Reset(long / turns)
	return func() { turn.Store(0) }, func() { turn.Store(-turns); t.Stop() }
}

// end kills the sandbox, once.
func (s *Supervisor) end(used int64) {
	if s.over.CompareAndSwap(false, true) {
		s.Over(used)
	}
}

// memory is what the machine says of itself.
type memory struct {
	free     int64 // with free swap
	total    int64
	shared   int64 // all shmem of the machine: tmpfs, memfds, shared mappings
	swapping bool

	swapped   int64
	elsewhere int64 // what of its own filesystems gained since the supervisor began
}

// gained returns what the machine has gained in shared memory since, filesystems of
// its own left out. What of those went to swap meanwhile is not shared memory any
// more and still theirs: without that, a sandbox could write to one, have it swapped
// out, and hold as much that nobody sees.
func (m memory) gained(then memory) int64 {
	others := m.elsewhere - then.elsewhere - max(0, m.swapped-then.swapped)
	return m.shared - then.shared - max(0, others)
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
		swapped:  (int64(info.Totalswap) - int64(info.Freeswap)) * unit,
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
	machine memory // what the machine had then
	files   int64  // what the filesystems had then
}

// blame returns what it is if all that the machine has gained since is the
// sandbox's, but for what can only be in other filesystems: so it is held for a
// sandbox that hides what it has.
func (s *shared) blame(m memory, files int64) int64 {
	return s.bytes + m.gained(s.machine) - (files - s.files)
}

// bound returns what it is now at most: what it was, and all that the machine
// has gained since, but for the sandbox's own filesystems.
func (s *shared) bound(m memory, files int64) int64 {
	return max(s.bytes, s.blame(m, files))
}

// estimate counts it without a look into mappings: too much, where processes
// map the same memory or one of the filesystems.
func (s *shared) estimate(all []*process, pid1 int, m memory, files, segments int64) {
	start := threadTime()
	open, hidden := openMemfds(all, shmDevice(), pid1)
	bytes := sum(open) + segments
	if hidden {
		bytes = max(bytes, s.blame(m, files))
	}
	for _, p := range all {
		bytes += residentShared(p.task)
	}
	*s = shared{at: time.Now(), cost: threadTime() - start, bytes: bytes, machine: m, files: files}
}

func sum(byInode map[uint64]int64) int64 {
	var sum int64
	for _, n := range byInode {
		sum += n
	}
	return sum
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
