package run

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stopSelf stops this process, and returns when it goes on. The signal is for this very
// thread, which so meets it before it does anything else; any other thread may be the
// one to meet what is for the process, and this one went on meanwhile.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// pending reports whether a signal has come that no thread has met yet. A stop would
// take such a CONT away.
func pending(sig unix.Signal) bool {
	var set uint64
	_, _, _ = unix.RawSyscall(unix.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&set)), unsafe.Sizeof(set), 0)
	return set>>(sig-1)&1 != 0
}
