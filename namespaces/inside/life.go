//go:build linux

package inside

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stackSize is that of the copy's stack. Its deepest call is a few hundred
// bytes, which the linker checks: every function there is nosplit.
const stackSize = 64 << 10

// life is the memory that the copy gets privately: its state, an empty
// thread-local storage (the Go runtime's would name a goroutine that does not
// exist there), and its stack.
type life []byte

const (
	lifeTLS   = (unsafe.Sizeof(copied{}) + 4095) &^ 4095
	lifeStack = lifeTLS + 4096
	lifeSize  = lifeStack + stackSize
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

// withhold keeps the launcher's writable memory out of the copy, which needs
// none of it: no page tables to copy, no page to copy later when either side
// writes, and nothing of the launcher's, its secrets included, is in the
// memory of a process inside. What it returns undoes it.
//
// It reads the map of its memory ([proc_pid_maps(5)]); a mapping that appears
// meanwhile is merely copied.
func withhold(p *Program, l life) (undo func()) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return func() {}
	}
	var ranges [64][2]uintptr
	n := 0
	for len(maps) > 0 && n < len(ranges) {
		line, rest, _ := bytes.Cut(maps, []byte{'\n'})
		maps = rest
		from, to, writable := parseMap(line)
		if !writable || from <= uintptr(unsafe.Pointer(p.shared)) && uintptr(unsafe.Pointer(p.shared)) < to ||
			from <= uintptr(unsafe.Pointer(&l[0])) && uintptr(unsafe.Pointer(&l[0])) < to {
			continue
		}
		ranges[n] = [2]uintptr{from, to}
		n++
	}
	advise := func(advice int) {
		for _, r := range ranges[:n] {
			unix.RawSyscall(unix.SYS_MADVISE, r[0], r[1]-r[0], uintptr(advice))
		}
	}
	advise(unix.MADV_DONTFORK)
	return func() { advise(unix.MADV_DOFORK) }
}

// parseMap reads "from-to perms …".
func parseMap(line []byte) (from, to uintptr, writable bool) {
	dash, space := bytes.IndexByte(line, '-'), bytes.IndexByte(line, ' ')
	if dash < 0 || space < dash || len(line) < space+4 {
		return 0, 0, false
	}
	a, err1 := strconv.ParseUint(string(line[:dash]), 16, 64)
	b, err2 := strconv.ParseUint(string(line[dash+1:space]), 16, 64)
	return uintptr(a), uintptr(b), err1 == nil && err2 == nil && line[space+2] == 'w'
}
