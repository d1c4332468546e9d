//go:build linux

package inside

import (
	"bytes"
	"fmt"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
)

// stackSize is that of the copy's stack. Its deepest call is a few hundred
// bytes, which the linker checks: every function there is nosplit.
const stackSize = 64 << 10

// childSize is that of its child's, the command's process.
const childSize = 16 << 10

// life is the memory that the copy gets privately: its state, an empty
// thread-local storage (the Go runtime's would name a goroutine that does not
// exist there), its registers and its stack, a state and a stack for its child, and
// a state for what it starts later.
type life []byte

const (
	lifeTLS   = (unsafe.Sizeof(copied{}) + 4095) &^ 4095
	lifeRegs  = lifeTLS + 4096
	lifeStack = lifeRegs + unsafe.Sizeof([maxRegs]uintptr{})
	lifeChild = lifeStack + stackSize
	lifeExtra = lifeChild + childSize // a state, and below its end the stack
	lifeSize  = lifeExtra + (unsafe.Sizeof(copied{})+4095)&^4095
)

func newLife() (life, error) {
	m, err := unix.MmapPtr(-1, 0, nil, lifeSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mmap stack: %w", err)
	}
	return unsafe.Slice((*byte)(m), lifeSize), nil
}

func (l life) free()           { unix.MunmapPtr(unsafe.Pointer(&l[0]), lifeSize) }
func (l life) copied() *copied { return (*copied)(unsafe.Pointer(&l[0])) }
func (l life) tls() uintptr    { return uintptr(unsafe.Pointer(&l[lifeTLS+2048])) }
func (l life) stack() uintptr  { return uintptr(unsafe.Pointer(&l[lifeStack])) }
func (l life) regs() *[maxRegs]uintptr {
	return (*[maxRegs]uintptr)(unsafe.Pointer(&l[lifeRegs]))
}
func (l life) child() *copied { return (*copied)(unsafe.Pointer(&l[lifeChild])) }
func (l life) extra() *copied { return (*copied)(unsafe.Pointer(&l[lifeExtra])) }

// withhold keeps the launcher's writable memory out of the copy, which needs
// none of it: no page tables to copy, no page to copy later when either side
// writes, and nothing of the launcher's, its secrets included, is in the
// memory of a process inside. What it returns undoes it. Memory that cannot be
// withheld is an error: the copy must not be made.
//
// The program's own variables stay: they hold no secret, and a build with
// coverage or cgo reads them behind our back. Where the program is linked to a
// C library only its first stack is withheld. It reads the map of its memory
// (proc_pid_maps(5)); a mapping that appears meanwhile is merely copied.
func withhold(p *Program, l life) (undo func(), err error) {
	maps, err := procfs.Read("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("withhold memory from the child: %w", err)
	}
	ranges, err := withheld(maps, unsafe.Pointer(p.shared), unsafe.Pointer(&l[0]))
	if err != nil {
		return nil, err
	}
	// What this misses stays out of later copies, which have no need of it either.
	undo = func() { _ = advise(ranges, unix.MADV_DOFORK) }
	if err := advise(ranges, unix.MADV_DONTFORK); err != nil {
		undo()
		return nil, err
	}
	return undo, nil
}

// An extent is a range of addresses, page by page.
type extent struct{ from, to uintptr }

// withheld returns what a map of memory says is writable and not the copy's: all
// but the mappings that hold the two given addresses. What lies between two such
// and is nothing, or reserved and no more, goes with them: less to advise on, and to copy.
func withheld(maps []byte, shared, life unsafe.Pointer) ([]extent, error) {
	ranges := make([]extent, 0, 64)
	found := 0
	var variables uintptr // the end of a file's writable part: what follows at once is its bss
	open := false         // the last range may be extended
	for line := range bytes.Lines(maps) {
		m, ok := parseMap(bytes.TrimSuffix(line, []byte{'\n'}))
		switch {
		case !ok:
			return nil, fmt.Errorf("withhold memory from the child: /proc/self/maps: line %q", line)
		case m.reserved:
			continue
		case !m.writable:
		case m.holds(shared), m.holds(life):
			found++
		case m.file, m.from == variables:
			variables = m.to
		case libc && !m.stack: // it may hold a thread's rseq(2) area, which the kernel writes
		case open:
			ranges[len(ranges)-1].to = m.to
			continue
		default:
			ranges = append(ranges, extent{m.from, m.to})
			open = true
			continue
		}
		open = false
	}
	if found == 0 {
		return nil, fmt.Errorf("withhold memory from the child: /proc/self/maps is not of this process")
	}
	return ranges, nil
}

// advise is madvise(2) of all ranges. ENOMEM says that a part is not mapped; what is
// mapped of the range has got the advice.
func advise(ranges []extent, advice int) error {
	for _, r := range ranges {
		if _, _, err := unix.RawSyscall(unix.SYS_MADVISE, r.from, r.to-r.from, uintptr(advice)); err != 0 && err != unix.ENOMEM {
			return fmt.Errorf("withhold memory from the child: madvise %#x-%#x: %w", r.from, r.to, err)
		}
	}
	return nil
}

// mapping is one line of the map.
type mapping struct {
	from, to       uintptr
	writable, file bool
	reserved       bool // by nobody but us, and with no access
	stack          bool // of the first thread, with the arguments and the environment
}

func (m mapping) holds(p unsafe.Pointer) bool { return m.from <= uintptr(p) && uintptr(p) < m.to }

// parseMap reads "from-to perms offset device inode path".
func parseMap(line []byte) (m mapping, ok bool) {
	f := bytes.Fields(line)
	if len(f) < 5 {
		return m, false
	}
	from, to, _ := bytes.Cut(f[0], []byte{'-'})
	a, err1 := strconv.ParseUint(string(from), 16, 64)
	b, err2 := strconv.ParseUint(string(to), 16, 64)
	if err1 != nil || err2 != nil || len(f[1]) < 2 {
		return m, false
	}
	m = mapping{from: uintptr(a), to: uintptr(b), writable: f[1][1] == 'w', file: string(f[4]) != "0"}
	m.reserved = string(f[1]) == "---p" && !m.file
	m.stack = len(f) > 5 && string(f[5]) == "[stack]"
	return m, true
}
