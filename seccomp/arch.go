package seccomp

import "sort"

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

// A syscall is a call's name and its number in each architecture, -1 where it
// has none. syscalls is sorted by name.
type syscall struct {
	name    string
	numbers [5]int32
}

// number returns a call's number as seccomp_data carries it. known is whether
// any architecture has such a call, ok whether this one has.
func (a arch) number(name string) (nr uint32, known, ok bool) {
	i := sort.Search(len(syscalls), func(i int) bool { return syscalls[i].name >= name })
	if i == len(syscalls) || syscalls[i].name != name {
		return 0, false, false
	}
	n := syscalls[i].numbers[a.column]
	return uint32(n) + a.offset, true, n >= 0
}
