package cgroups

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Supervisor bounds the memory of a sandbox that has no control group: it
// samples the sandbox's processes, and kills them when two samples in a row
// count more than the limit. It counts each page once, and nothing that may be
// somebody else's, so that no sandbox is killed for less than its limit.
//
// What counts, for all processes that descend from pid 1 of the sandbox:
//
//   - anonymous memory, its swap, and page tables;
//   - files of the sandbox's own tmpfs mounts, whether mapped or not;
//   - memfds that a process holds open or executes;
//   - System V segments, semaphores and queues;
//   - other shared memory as far as a process maps it and has touched it.
//
// docs/limits.md says what does not.
type Supervisor struct {
	Limit       int64            // bytes
	PID         int              // pid 1 of the sandbox, as this process sees it
	Filesystems []int            // descriptors of the sandbox's own tmpfs mounts, one for each
	Segments    int              // a descriptor of the sandbox's own /proc/sysvipc/shm, opened inside; 0 for none
	Semaphores  int              // likewise of sem
	Queues      int              // and of msg
	Over        func(used int64) // called once, when used bytes were more than Limit: has to kill the sandbox

	peak atomic.Int64
	most atomic.Int64 // processes
	over atomic.Bool

	last      sample
	grew      time.Time // when a sample last saw growth
	processes []process
}

// A sample is what was known at one moment.
type sample struct {
	at   time.Time
	cost time.Duration // processor time
	used int64         // too much where processes share memory, but for a sandbox over its limit
	free int64         // of the machine
}

const (
	firstSample = 20 * time.Millisecond // a short command is never sampled
	minTick     = 4 * time.Millisecond
	maxTick     = time.Second
	maxPause    = 2 * time.Second // between two samples, whatever one costs
	growthAge   = 100 * time.Millisecond
	stuck       = 5 * time.Second // a process can delay a look into its mappings
	fillRate    = 5 << 30         // bytes a second that one processor can fill at most, about
	restShare   = 100             // one part of the time goes into samples of a sandbox that does not grow,
	growthShare = 10              // and of one that grows
)

// Run samples the sandbox until it is over the limit, its pid 1 is gone, or
// ctx is done, which it sees within a second. It has to run before the command
// does.
//
// How often it samples follows from how soon the limit can be reached, from
// whether the sandbox grows, and from what a sample costs. A look at the
// machine's free memory in between, one system call, sees much growth early.
func (s *Supervisor) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(firstSample):
	}
	runtime.LockOSThread() // threadTime is one thread's
	defer runtime.UnlockOSThread()
	for ctx.Err() == nil && unix.Kill(s.PID, 0) != unix.ESRCH && !s.over.Load() {
		free := freeMemory()
		if time.Since(s.last.at) >= s.pause(free) && s.sample(free) > s.Limit {
			if used := s.sample(freeMemory()); used > s.Limit { // memory that passed from one to another counted twice
				s.end(used)
			}
		}
		time.Sleep(s.tick(free))
	}
}

// Exceeded reports whether the sandbox was over the limit, and so is ended.
func (s *Supervisor) Exceeded() bool { return s.over.Load() }

// Peak returns the most that a sample has seen, in bytes: too much where
// processes share memory, since each page is counted once only where the limit
// is reached otherwise, and too little where a peak was short.
func (s *Supervisor) Peak() int64 { return s.peak.Load() }

// Processes returns the most processes that a sample has seen, pid 1 among them: too few where they were short-lived.
func (s *Supervisor) Processes() int64 { return s.most.Load() }

// end kills the sandbox, once: whoever waits for pid 1 may ask for the reason
// before Over is called.
func (s *Supervisor) end(used int64) {
	if s.over.CompareAndSwap(false, true) {
		s.peak.Store(max(used, s.peak.Load()))
		s.Over(used)
	}
}

// pause returns how old a sample may become.
func (s *Supervisor) pause(free int64) time.Duration {
	room, lost := s.Limit-s.last.used, s.last.free-free
	share := time.Duration(restShare)
	if time.Since(s.grew) < growthAge || lost >= room/4+s.Limit/32 { // the machine has lost what the sandbox may have taken
		share = growthShare
	}
	return min(share*s.last.cost, maxPause)
}

// tick returns how long it takes at least until the sandbox can be a sixteenth over the limit.
func (s *Supervisor) tick(free int64) time.Duration {
	room := max(0, s.Limit-s.last.used-max(0, s.last.free-free)) + s.Limit/16
	rate := int64(min(runtime.NumCPU(), 3)) * fillRate
	return min(max(time.Duration(float64(room)/float64(rate)*float64(time.Second)), minTick), maxTick)
}

// sample returns how much the sandbox uses: a bound that is cheap, or, where that is
// over the limit, the sum in which each page counts once.
func (s *Supervisor) sample(free int64) int64 {
	start := threadTime()
	s.processes = listProcesses(s.PID)
	s.most.Store(max(int64(len(s.processes)), s.most.Load()))
	memfds := openMemfds(s.processes)
	own := s.own(memfds)
	used := own
	for _, p := range s.processes {
		used += p.anonymous + p.shared + p.tables
	}
	if used > s.Limit {
		used = s.sum(own, used, memfds)
	}
	now := time.Now()
	if used > s.last.used+s.Limit/128 {
		s.grew = now
	}
	s.last = sample{at: now, cost: threadTime() - start, used: used, free: free}
	s.peak.Store(max(min(used, s.Limit), s.peak.Load()))
	return used
}

// sum adds to the sandbox's own what its processes have, each page once, the largest
// processes first, and no further than it takes to see that it is over the limit. The bound
// is what it may have.
func (s *Supervisor) sum(own, bound int64, memfds map[uint64]int64) int64 {
	slices.SortFunc(s.processes, func(a, b process) int { return cmp.Compare(b.anonymous, a.anonymous) })
	used := own
	for _, p := range s.processes {
		if used > s.Limit {
			break
		}
		if p.borrows(s.processes) {
			continue
		}
		// The kernel walks mappings, which a process can delay by holding its own
		// lock on them. Then the bound has to do.
		watch(stuck, func() { used += p.tables + p.proportional(memfds) }, func() { s.end(bound) })
	}
	return used
}

// watch calls late once if look takes so long, of the time that this process could run
// in: a ticker of one that was stopped, or whose machine slept, ticks once.
func watch(long time.Duration, look, late func()) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		const turns = 50
		ticker := time.NewTicker(long / turns)
		defer ticker.Stop()
		for range turns {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
		late()
	}()
	look()
}

// freeMemory is what the machine has left, with swap.
func freeMemory() int64 {
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info) // fails only for a bad address
	return (int64(info.Freeram) + int64(info.Freeswap)) * int64(info.Unit)
}

// threadTime returns the processor time that this thread has used. The time on
// the wall would count a busy machine as cost, and look the less often for it.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// own is what is in the sandbox's filesystems, memfds and System V objects, whoever has it.
func (s *Supervisor) own(memfds map[uint64]int64) int64 {
	sum := segments(s.Segments) + kernelBytes(s.Semaphores, s.Queues)
	for _, bytes := range memfds {
		sum += bytes
	}
	for _, fd := range s.Filesystems {
		var st unix.Statfs_t
		if unix.Fstatfs(fd, &st) == nil {
			sum += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	return sum
}
