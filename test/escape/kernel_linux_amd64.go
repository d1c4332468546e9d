package escape

import (
	"runtime/debug"
	"strconv"

	"golang.org/x/sys/unix"
)

func kernelCallsArch() []kernelCall {
	return []kernelCall{
		{"KS-020", "iopl", High, true, unix.SYS_IOPL, []uintptr{0}, "Opens the machine's ports.", refs("docker: default profile")},
		{"KS-070", "ioperm", High, true, unix.SYS_IOPERM, []uintptr{0, 0, 0}, "Opens the machine's ports.", refs("docker: default profile")},
		{"KS-021", "modify_ldt", Low, false, unix.SYS_MODIFY_LDT, []uintptr{99, 0, 0}, "Segments of one's own: old surface.", refs("CVE-2015-5157")},
		{"KS-023", "uselib", Low, false, unix.SYS_USELIB, []uintptr{0}, "A relic.", refs("docker: default profile")},
		{"KS-071", "ustat", Low, false, unix.SYS_USTAT, []uintptr{0, 0}, "A relic.", refs("docker: default profile")},
		{"KS-072", "sysfs", Low, false, unix.SYS_SYSFS, []uintptr{3, 0, 0}, "A relic.", refs("docker: default profile")},
		{"KS-073", "lookup_dcookie", Low, true, unix.SYS_LOOKUP_DCOOKIE, []uintptr{0, 0, 0}, "A relic.", refs("docker: default profile")},
	}
}

// int80 enters the kernel by the 32-bit door: int80_linux_amd64.s.
func int80(nr, a, b, c, d, e uint32) int32

// enter32 is int80 where the kernel has that door. Without (ia32_emulation=0) the instruction faults: ENOSYS.
func enter32(nr, a, b, c, d, e uint32) (r int32) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			r = -int32(unix.ENOSYS)
		}
	}()
	return int80(nr, a, b, c, d, e)
}

// archHelpers are the helpers that only this architecture has.
var archHelpers = map[string]func(args []string) int{
	"int80": func(args []string) int {
		var all []Outcome
		for _, call := range []struct {
			name    string
			nr      uint32
			a, b, c uint32
		}{
			{"io_uring_setup", 425, 1, 0, 0}, {"add_key", 286, 0, 0, 0}, {"userfaultfd", 374, 1, 0, 0}, {"perf_event_open", 336, 0, 0, ^uint32(0)}, {"bpf", 357, 0, 0, 0},
		} {
			var err error
			if r := enter32(call.nr, call.a, call.b, call.c, ^uint32(0), 0); r < 0 {
				err = unix.Errno(-r)
			}
			all = append(all, Reached(err, "int 0x80: %s", call.name))
		}
		report(args[0], Any(all...))
		return 0
	},
	"int80-ipc": func(args []string) int {
		// shmget of the host's segment through ipc(2), 117: SHMGET is 23
		key, _ := strconv.Atoi(args[1])
		if r := enter32(117, 23, uint32(key), 4096, 0, 0); r < 0 {
			report(args[0], Blocked("ipc(SHMGET): %v", unix.Errno(-r)))
		} else {
			report(args[0], Escaped("ipc(SHMGET) found segment %d of the host", r))
		}
		return 0
	},
	"x32": func(args []string) int {
		report(args[0], Reached(errOf(Call(0x40000000+unix.SYS_GETPID)), "x32 getpid"))
		return 0
	},
}
