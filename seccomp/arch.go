package seccomp

import (
	_ "embed"
	"sort"
	"strconv"
	"strings"
)

// An arch is one of the ways in which a program may call the kernel.
type arch struct {
	oci    string // name in OCI profiles
	docker string // name in Docker's includes and excludes
	audit  uint32 // what seccomp_data carries
	column int    // in syscalls
	offset uint32 // added to the numbers of syscalls: x32's bit
}

// x32Bit marks the calls of x32 programs, which otherwise look like x86_64's.
const x32Bit = 0x40000000

// A machine is what a filter is made for: the architectures of the calls that
// its kernel may accept, its own first.
type machine struct{ arches []arch }

func (m machine) native() arch { return m.arches[0] }

// machines returns the machine that a Go architecture names.
func machines(goarch string) (machine, bool) {
	switch goarch {
	case "amd64":
		return machine{[]arch{
			{"SCMP_ARCH_X86_64", "amd64", ArchX86_64, 0, 0},
			{"SCMP_ARCH_X86", "x86", ArchI386, 1, 0},
			{"SCMP_ARCH_X32", "x32", ArchX86_64, 2, x32Bit},
		}}, true
	case "arm64":
		return machine{[]arch{
			{"SCMP_ARCH_AARCH64", "arm64", ArchAarch64, 3, 0},
			{"SCMP_ARCH_ARM", "arm", ArchARM, 4, 0},
		}}, true
	}
	return machine{}, false
}

// syscalls has a row for each call, sorted by name: the name, and its number in each
// architecture, -1 where it has none. All rows are of one length, so that nothing has
// to be parsed to find one. A test writes it.
//
//go:embed syscalls.txt
var syscalls string

// The lengths of a row, of its name, and of each number.
const rowSize, nameSize, numberSize = 72, 31, 8

func syscallName(i int) string {
	return strings.TrimRight(syscalls[i*rowSize:i*rowSize+nameSize], " ")
}

// number returns a call's number as seccomp_data carries it. known is whether
// any architecture has such a call, ok whether this one has.
func (a arch) number(name string) (nr uint32, known, ok bool) {
	rows := len(syscalls) / rowSize
	i := sort.Search(rows, func(i int) bool { return syscallName(i) >= name })
	if i == rows || syscallName(i) != name {
		return 0, false, false
	}
	nr, ok = a.numberAt(i)
	return nr, true, ok
}

// numberAt returns the number that a row has for this architecture.
func (a arch) numberAt(row int) (nr uint32, ok bool) {
	text := syscalls[row*rowSize+nameSize+a.column*numberSize:][:numberSize]
	n, err := strconv.ParseUint(strings.TrimLeft(text, " "), 10, 32)
	return uint32(n) + a.offset, err == nil
}
