package seccomp

import (
	"encoding/binary"
	"os"
	"os/exec"
	gosyscall "syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// machineCases are calls by the other ABIs that an x86-64 kernel accepts from
// one and the same process: i386's interrupt, and x32's numbers.
func machineCases() []kernelCase {
	i386 := func(name string, nr uintptr, want gosyscall.Errno, args ...uintptr) kernelCase {
		c := kernelCase{name: "i386 " + name, nr: nr, want: want, abi: int80}
		copy(c.args[:], args)
		return c
	}
	cases := []kernelCase{
		i386("mount", 21, unix.EPERM),
		i386("clone newuser", 120, unix.EPERM, unix.CLONE_NEWUSER|unix.CLONE_FS),
		i386("socketcall", 102, unix.EPERM, 99),
		i386("socket packet", 359, unix.EAFNOSUPPORT, unix.AF_PACKET, unix.SOCK_RAW),
		i386("ioctl TIOCSTI", 54, unix.EPERM, 1<<32-1, unix.TIOCSTI),
		i386("prlimit core of another", 340, unix.EINVAL, 1, unix.RLIMIT_CORE, 1),
		i386("open setuid", 5, unix.EPERM, 0, unix.O_CREAT, 0o4755),
		i386("modify ldt", 123, unix.EPERM, 99),
		i386("vm86", 166, unix.EPERM, 99),
		i386("getpid", 20, 0),
		i386("open", 5, 0, 0, unix.O_CREAT, 0o644),
	}
	if !hasI386() {
		cases = nil
	}
	for i := range cases {
		cases[i].same = cases[i].want == 0
	}
	return append(cases, kernelCase{name: "x32 getppid", nr: x32Bit | unix.SYS_GETPPID, same: true})
}

// hasI386 reports whether the kernel takes i386 calls: without (ia32_emulation=0) the
// instruction ends the process, so a child tries.
func hasI386() bool {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"=i386")
	return cmd.Run() == nil
}

func tryI386() { int80(20, [6]uintptr{}) }

// int80 makes an i386 call with three arguments. The instructions are written
// into a page of memory, since a package that is not built with cgo cannot have
// an assembly file for tests alone.
func int80(nr uintptr, args [6]uintptr) gosyscall.Errno {
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err.(gosyscall.Errno)
	}
	defer unix.Munmap(page)
	const result = 2048
	code := []byte{0x53} // push rbx
	for i, mov := range []byte{0xb8, 0xbb, 0xb9, 0xba} {
		value := nr
		if i > 0 {
			value = args[i-1]
		}
		code = binary.LittleEndian.AppendUint32(append(code, mov), uint32(value)) // mov eax|ebx|ecx|edx, value
	}
	code = append(code, 0xcd, 0x80, 0x48, 0xb9) // int 0x80; mov rcx, result
	code = binary.LittleEndian.AppendUint64(code, uint64(uintptr(unsafe.Pointer(&page[result]))))
	code = append(code, 0x89, 0x01, 0x5b, 0xc3) // mov [rcx], eax; pop rbx; ret
	copy(page, code)

	entry := unsafe.Pointer(unsafe.SliceData(page))
	function := &entry
	(*(*func())(unsafe.Pointer(&function)))()
	if r := int32(binary.LittleEndian.Uint32(page[result:])); r < 0 {
		return gosyscall.Errno(-r)
	}
	return 0
}
