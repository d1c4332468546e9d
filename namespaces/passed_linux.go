package namespaces

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// AddPassed adds descriptors, which [JudgePassed] let through, for the command
// to get as they are. A file can be opened again through /proc/self/fd, for more
// than the descriptor allows: what is open for reading only is refused where no
// Landlock rule keeps it from being written.
func (p *Plan) AddPassed(fds []int) error {
	ruled := !p.Nested && p.Landlock >= landlockRefer && p.has(profiles.LayerLandlock)
	for _, fd := range fds {
		var st unix.Stat_t
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err == nil {
			err = unix.Fstat(fd, &st)
		}
		if err != nil {
			return fmt.Errorf("--pass-fd %d: %w", fd, err)
		}
		if !ruled && st.Mode&unix.S_IFMT == unix.S_IFREG && flags&unix.O_ACCMODE == unix.O_RDONLY {
			return &PassedError{fd}
		}
	}
	p.PassFDs = fds
	return nil
}

// A PassedError says that the command could write what it was to read.
type PassedError struct{ FD int }

func (e *PassedError) Error() string {
	return fmt.Sprintf("--pass-fd %d: a file that is open for reading only: without Landlock rules, which nested leaves off, the command could open it again for writing", e.FD)
}

// Hint says what to do instead.
func (e *PassedError) Hint() string { return "--read FILE, or a pipe: cat FILE | pccrun …" }
