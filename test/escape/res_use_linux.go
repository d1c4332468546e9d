package escape

import (
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These use things up, and count what is left of them.

// hog touches memory; it is ended if the limit holds.
func hog(bytes int) Outcome {
	mem, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return Blocked("mmap: %v", err)
	}
	for i := 0; i < len(mem); i += 4096 {
		mem[i] = 1
	}
	return held("%d MiB were touched", bytes>>20)
}

// held says that memory beyond the limit is had, once it was had for longer
// than a supervisor that samples may leave between two samples (2 s).
func held(format string, args ...any) Outcome {
	time.Sleep(3 * time.Second)
	return Escaped(format, args...)
}

func fill(path string, mib int) Outcome {
	f, err := os.Create(path)
	if err != nil {
		return Blocked("create %s: %v", path, cause(err))
	}
	defer f.Close()
	return fillFile(f, mib)
}

func fillFile(f *os.File, mib int) Outcome {
	junk := make([]byte, 1<<20)
	for n := range mib {
		if _, err := f.Write(junk); err != nil {
			return Blocked("%d MiB in %s, then: %v", n, f.Name(), cause(err))
		}
	}
	return Escaped("%d MiB in %s", mib, f.Name())
}

// makeTimer makes a timer that stays as long as the process.
func makeTimer() error {
	const sigevNone = 1
	event := struct {
		value         uint64
		signo, notify int32
		pad           [12]int32
	}{notify: sigevNone}
	var id int32
	_, err := Call(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id)))
	return err
}

func countTerminals() int {
	entries, _ := os.ReadDir("/dev/pts")
	return len(entries)
}

// burn keeps so many threads busy for a time, and returns how many processors
// they had.
func burn(threads int, d time.Duration) float64 {
	share, _ := work(threads, d)
	return share
}

// more is how much more several loops get done than one: a kernel that counts what its own
// processes use, as gVisor does, does not know that it stood still.
func more(threads int) float64 {
	_, alone := work(1, 500*time.Millisecond)
	_, together := work(threads, 500*time.Millisecond)
	_, again := work(1, 500*time.Millisecond) // one loop alone may have had less of a busy machine
	return float64(together) / float64(max(alone, again))
}

// work runs busy loops, and returns the processors that they had and what they got done.
func work(threads int, d time.Duration) (share float64, rounds int64) {
	began, before := time.Now(), used()
	var group sync.WaitGroup
	var done atomic.Int64
	for range threads {
		group.Go(func() {
			for x := uint64(1); time.Since(began) < d; done.Add(1) {
				for range 1 << 16 {
					x = x*6364136223846793005 + 1
				}
				spin(x)
			}
		})
	}
	group.Wait()
	return float64(used()-before) / float64(time.Since(began)), done.Load()
}

// used is the processor time of this process, in nanoseconds.
func used() int64 {
	var use unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &use)
	return use.Utime.Nano() + use.Stime.Nano()
}

// leftovers is what a run could leave on the host, by the names that pccrun gives
// to what it makes there: others make files and mounts meanwhile.
func leftovers() map[string]bool {
	seen := map[string]bool{}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.Contains(fields[4], "pccrun") {
			seen["mount "+fields[4]] = true
		}
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
		entries, _ := os.ReadDir(dir)
		for _, entry := range entries {
			if name := entry.Name(); strings.HasPrefix(name, "pccrun-whole-") || strings.HasPrefix(name, leftByControl) {
				seen[dir+"/"+entry.Name()] = true
			}
		}
	}
	return seen
}

func newIn(after, before map[string]bool) []string {
	var list []string
	for name := range after {
		if !before[name] && !(strings.HasPrefix(name, "mount ") && (strings.Contains(name, "/escape-") || strings.Contains(name, "/pccrun-bench-"))) { // another probe's, and a benchmark's
			list = append(list, name)
		}
	}
	return list
}

func ignoreAll() {
	for s := unix.SIGHUP; s < unix.SIGSYS; s++ {
		if s != unix.SIGKILL && s != unix.SIGSTOP && s != unix.SIGSEGV && s != unix.SIGBUS && s != unix.SIGFPE && s != unix.SIGPROF && s != unix.SIGURG {
			signal.Ignore(s)
		}
	}
}

// leftByControl begins the names of what a control leaves, to be found.
const leftByControl = "pccrun-left-"
