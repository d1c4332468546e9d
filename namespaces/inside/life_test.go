//go:build linux

package inside

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestParseMap(t *testing.T) {
	for line, want := range map[string]mapping{
		"00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon":              {from: 0x400000, to: 0x452000, file: true},
		"7ffc4b5c6000-7ffc4b5e7000 rw-p 00000000 00:00 0                          [stack]":    {from: 0x7ffc4b5c6000, to: 0x7ffc4b5e7000, writable: true, stack: true},
		"c000000000-c000400000 rw-p 00000000 00:00 0 ":                                        {from: 0xc000000000, to: 0xc000400000, writable: true},
		"c000000000-c000400000 rw-p 00000000 00:00 0 [anon: Go: heap]":                        {from: 0xc000000000, to: 0xc000400000, writable: true},
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]": {from: 0xffffffffff600000, to: 0xffffffffff601000},
		"": {}, "x-y rw-p 0 0 0": {}, "1-2": {}, "1-2 r 0 0 0": {}, "12 rw-p 0 0 0": {}, "1-fffffffffffffffff rw-p 0 0 0": {},
	} {
		require.Equal(t, want, parseMap([]byte(line)), line)
	}
	m := mapping{from: 16, to: 32}
	for address, in := range map[uintptr]bool{15: false, 16: true, 31: true, 32: false} {
		require.Equal(t, in, m.holds(*(*unsafe.Pointer)(unsafe.Pointer(&address))), address)
	}
}

func FuzzParseMap(f *testing.F) {
	f.Add([]byte("7ffc4b5c6000-7ffc4b5e7000 rw-p 00000000 00:00 0 [stack]"))
	f.Add([]byte("1-2 rw"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if m := parseMap(line); m.stack {
			require.Contains(t, string(line), "[stack]")
		}
	})
}

// covered returns the flags of this process's mapping that holds p, smaps in
// proc_pid_smaps(5).
func covered(t *testing.T, p unsafe.Pointer) string {
	text, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	inside := false
	for line := range strings.Lines(string(text)) {
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && inside {
			return flags
		}
		if strings.Contains(line[:min(len(line), 20)], "-") {
			inside = parseMap([]byte(line)).holds(p)
		}
	}
	return ""
}

// The launcher's memory is kept out of a copy for as long as one is made.
func TestWithhold(t *testing.T) {
	l, err := newLife()
	require.NoError(t, err)
	defer l.free()
	p := newProgram(t)
	stack := firstStack(t)
	secret := unsafe.Pointer(new([64 << 10]byte))
	require.NotContains(t, covered(t, stack), " dc ", "control: it is copied")

	undo := withhold(p, l)
	during := map[string]string{"stack": covered(t, stack), "heap": covered(t, secret), "life": covered(t, unsafe.Pointer(&l[0])), "program": covered(t, unsafe.Pointer(p.shared))}
	undo()
	require.Contains(t, during["stack"], " dc ")
	if !libc {
		require.Contains(t, during["heap"], " dc ")
	}
	require.NotContains(t, during["life"], " dc ")
	require.NotContains(t, during["program"], " dc ")
	require.NotContains(t, covered(t, stack), " dc ")
	require.NotEmpty(t, covered(t, stack))
}

// firstStack returns an address of the first thread's stack, where arguments
// and environment lie: the 28th field of proc_pid_stat(5).
func firstStack(t *testing.T) unsafe.Pointer {
	stat, err := os.ReadFile("/proc/self/stat")
	require.NoError(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var address uintptr
	_, err = fmt.Sscan(fields[28-3], &address)
	require.NoError(t, err)
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}
