//go:build linux

package inside

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestParseMap(t *testing.T) {
	for line, want := range map[string]mapping{
		"00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon":              {from: 0x400000, to: 0x452000, file: true},
		"7ffc4b5c6000-7ffc4b5e7000 rw-p 00000000 00:00 0                          [stack]":    {from: 0x7ffc4b5c6000, to: 0x7ffc4b5e7000, writable: true, stack: true},
		"c000000000-c000400000 rw-p 00000000 00:00 0 ":                                        {from: 0xc000000000, to: 0xc000400000, writable: true},
		"c000000000-c000400000 rw-p 00000000 00:00 0 [anon: Go: heap]":                        {from: 0xc000000000, to: 0xc000400000, writable: true},
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]": {from: 0xffffffffff600000, to: 0xffffffffff601000},
		"c000400000-c004000000 ---p 00000000 00:00 0 ":                                        {from: 0xc000400000, to: 0xc004000000, reserved: true},
		"7f0000000000-7f0000001000 ---p 00000000 08:02 173521 /lib/x":                         {from: 0x7f0000000000, to: 0x7f0000001000, file: true},
		"": {}, "x-y rw-p 0 0 0": {}, "1-2": {}, "1-2 r 0 0 0": {}, "12 rw-p 0 0 0": {}, "1-fffffffffffffffff rw-p 0 0 0": {},
	} {
		m, ok := parseMap([]byte(line))
		require.Equal(t, want, m, line)
		require.Equal(t, want != mapping{}, ok, line)
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
		if m, ok := parseMap(line); ok && m.stack {
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
			m, _ := parseMap([]byte(line))
			inside = m.holds(p)
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

	undo, err := withhold(p, l)
	require.NoError(t, err)
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

// What cannot be withheld is an error, whatever the cause; none of it is passed over.
func TestWithholdFails(t *testing.T) {
	const life, table = "7000-8000 rw-p 0 0:0 0\n", "9000-a000 rw-s 0 0:0 0\n"
	at := func(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
	ranges, err := withheld([]byte(life+table+"1000-2000 rw-p 0 0:0 0 [stack]\n"), at(0x9000), at(0x7000))
	require.NoError(t, err, "control")
	require.Equal(t, []extent{{0x1000, 0x2000}}, ranges)
	for name, maps := range map[string]string{
		"an empty map": "", "the map of another process": "1000-2000 rw-p 0 0:0 0\n", "a line that is none": life + table + "1000 rw-p\n", "a blank line": life + "\n",
	} {
		_, err := withheld([]byte(maps), at(0x9000), at(0x7000))
		require.ErrorContains(t, err, "withhold memory from the child: /proc/self/maps", name)
	}
	ranges, err = withheld([]byte("1000-2000 rw-p 0 0:0 0\n2000-3000 ---p 0 0:0 0\n5000-6000 rw-p 0 0:0 0\n"+life+"8000-8800 ---p 0 0:0 0\n"+table+
		"a000-b000 rw-p 0 0:0 0\nb000-c000 r-xp 0 8:2 7 /lib/x\nc000-d000 rw-p 0 0:0 0\nd000-e000 ---p 0 8:2 7 /lib/x\ne000-f000 rw-p 0 0:0 0\n"), at(0x9000), at(0x7000))
	require.NoError(t, err)
	want := []extent{{0x1000, 0x6000}, {0xa000, 0xb000}, {0xc000, 0xd000}, {0xe000, 0xf000}}
	if libc {
		want = []extent{}
	}
	require.Equal(t, want, ranges, "what is reserved goes with what lies around it, and nothing else does")
	require.ErrorIs(t, advise([]extent{{1, 4097}}, unix.MADV_DONTFORK), unix.EINVAL)
	require.NoError(t, advise([]extent{{4096, 8192}}, unix.MADV_DONTFORK), "what was unmapped meanwhile is in no copy")
}

// A map that cannot be read ends the start.
func TestStartWithoutMap(t *testing.T) {
	c := newCopy(t)
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}))
	_, err := c.Start(Options{Control: c.control, Launcher: c.launcher})
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	require.ErrorIs(t, err, unix.EMFILE)
	require.ErrorContains(t, err, "withhold memory from the child: open /proc/self/maps")
	c.start(0) // control: the table has no fork in it, and ends
	require.Equal(t, 125, c.wait().ExitStatus())
}

// There is no number of mappings beyond which the rest would be copied.
func TestWithholdsManyMappings(t *testing.T) {
	if libc {
		return // only the stack is withheld there
	}
	l, err := newLife()
	require.NoError(t, err)
	defer l.free()
	const page = 4096
	m, err := unix.Mmap(-1, 0, 400*page, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer unix.Munmap(m)
	for i := 0; i < len(m); i += 2 * page {
		require.NoError(t, unix.Mprotect(m[i:i+page], unix.PROT_READ|unix.PROT_WRITE))
	}
	undo, err := withhold(newProgram(t), l)
	require.NoError(t, err)
	last := covered(t, unsafe.Pointer(&m[len(m)-2*page]))
	undo()
	require.Contains(t, last, " dc ")
	require.NotContains(t, covered(t, unsafe.Pointer(&m[len(m)-2*page])), " dc ", "control")
}
