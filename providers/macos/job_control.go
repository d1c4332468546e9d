//go:build unix

package macos

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// socketPair makes two ends of a line to a process.
func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range pair {
		syscall.CloseOnExec(fd)
	}
	return os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control"), nil
}

// attend has the command start with its terminal, stops with it when a key has stopped it, or when it
// wants the keys of a terminal in whose background we are, and lets it go on when we do.
func (r *running) attend() {
	place := func() {
		word := "f"
		if r.joined != nil && !r.joined.Active() {
			word = "b"
		}
		_, _ = io.WriteString(r.control, word+"\n")
	}
	place()
	line, _ := r.told.ReadString('\n')
	if _, err := fmt.Sscanf(line, "group %d", &r.group); err != nil {
		return // it did not start, and has reported that
	}
	ended := make(chan uint32, 1)
	r.ended = ended
	go func() {
		defer close(ended)
		for {
			line, err := r.told.ReadString('\n')
			if err != nil {
				return
			}
			var n uint32
			if _, err := fmt.Sscanf(line, "ended %d", &n); err == nil {
				ended <- n
				return
			}
			if _, err := fmt.Sscanf(line, "stopped %d", &n); err != nil {
				return
			}
			if r.joined != nil {
				halt := r.joined.Suspend
				if sig := syscall.Signal(n); sig == syscall.SIGTTIN || sig == syscall.SIGTTOU {
					halt = r.joined.Foreground
				}
				if halt() != nil { // the terminal is gone: what the kernel gives to a stopped group then
					_ = syscall.Kill(-r.group, syscall.SIGHUP)
				}
			}
			place()
		}
	}()
}
