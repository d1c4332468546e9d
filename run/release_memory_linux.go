package run

import (
	"bytes"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// restAfter is when a launcher rests, from the start of its command. A short
// run does without.
const restAfter = 500 * time.Millisecond

// logAfter is when the log of a run is there for others, whatever has happened: before
// the launcher rests, since to write the first of it takes pages too.
const logAfter = restAfter - 100*time.Millisecond

// hurry has Go collect no garbage before the heap has 16 MiB, which a launch with hundreds of rules does not reach: a
// collection takes more of it than the pages cost that it would give back.
func hurry() { debug.SetGCPercent(400) }

// rest gives back what the launch has allocated and nothing uses any more, and
// lets go of the pages of our program that are mapped, since most of them only
// the launch needed: about 4 MiB of a launcher that then waits for hours. They stay
// in the page cache, and what is needed again is mapped again (MADV_DONTNEED of a
// file's private mapping that nothing was written to: madvise(2)). Nothing depends
// on it, so no error is told.
func rest() {
	debug.SetGCPercent(100)
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for line := range bytes.Lines(maps) {
		if from, size, ok := programPages(line, program); ok {
			_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, from, size, unix.MADV_DONTNEED)
		}
	}
}

// programPages reads a line of /proc/PID/maps: where pages of the program lie
// that cannot be written, and how many bytes.
func programPages(line []byte, program string) (from, size uintptr, ok bool) {
	f := bytes.Fields(line) // from-to rwxp offset device inode path
	if len(f) != 6 || len(f[1]) != 4 || f[1][1] != '-' || f[1][3] != 'p' || string(f[5]) != program {
		return 0, 0, false
	}
	low, high, _ := bytes.Cut(f[0], []byte("-"))
	a, err1 := strconv.ParseUint(string(low), 16, 64)
	b, err2 := strconv.ParseUint(string(high), 16, 64)
	return uintptr(a), uintptr(b - a), err1 == nil && err2 == nil && a < b
}
