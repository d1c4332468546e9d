package escape

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Errno is an error number that reads and writes itself by name, so that
// reports of different machines can be compared.
type Errno syscall.Errno

// String returns the name, e.g. "EPERM".
func (e Errno) String() string {
	if e == Errno(unix.EOPNOTSUPP) {
		return "EOPNOTSUPP" // which has a second name
	}
	if name := unix.ErrnoName(syscall.Errno(e)); name != "" {
		return name
	}
	return fmt.Sprintf("errno %d", int(e))
}

var errnoNumbers = sync.OnceValue(func() map[string]Errno {
	numbers := map[string]Errno{}
	for n := range Errno(4096) { // MAX_ERRNO, include/linux/err.h
		numbers[n.String()] = n
	}
	return numbers
})

// MarshalText writes the name.
func (e Errno) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (e *Errno) UnmarshalText(text []byte) error {
	n, known := errnoNumbers()[string(text)]
	if !known {
		return fmt.Errorf("errno %q: unknown name", text)
	}
	*e = n
	return nil
}

// errnoIn returns the error number in the first of args that wraps one.
func errnoIn(args []any) Errno {
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			var errno syscall.Errno
			if errors.As(err, &errno) {
				return Errno(errno)
			}
		}
	}
	return 0
}

// errnos reads a list of names such as "EPERM ENOSYS"; it is for tables.
func errnos(names string) []Errno {
	words := strings.Fields(names)
	list := make([]Errno, len(words))
	for i, name := range words {
		if err := list[i].UnmarshalText([]byte(name)); err != nil {
			panic("BUG: " + err.Error())
		}
	}
	return list
}
