//go:build unix

package events

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Target returns the sink for the value of `--events`: `fd:N`, an open
// descriptor, or the name of a file. A file is made with mode 0600 or
// appended to, so that one file may serve many runs at once. A link is
// refused, since a payload that can write the directory could make it lead
// anywhere; so is a FIFO that nobody reads, since opening it would block.
func Target(value string) (Sink, error) {
	f, err := openTarget(value)
	if err != nil {
		return Sink{}, fmt.Errorf("--events %s: %w", Clean(value), err)
	}
	return Sink{
		Name: "--events " + Clean(value),
		Open: func() (io.WriteCloser, error) { return f, nil },
	}, nil
}

func openTarget(value string) (*os.File, error) {
	if text, ok := strings.CutPrefix(value, "fd:"); ok {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || text != strconv.FormatUint(n, 10) {
			return nil, errors.New("want fd:N, N the number of an open descriptor")
		}
		// A copy, beyond 2: Go ends the process when a write to 1 or 2
		// finds no reader.
		fd, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("descriptor %d: %w", n, err)
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_ACCMODE == unix.O_RDONLY {
			unix.Close(fd)
			return nil, fmt.Errorf("descriptor %d: not open for writing", n)
		}
		return os.NewFile(uintptr(fd), value), nil
	}
	f, err := os.OpenFile(value, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, errors.New("it is a symbolic link; name the file, or use fd:N")
	case errors.Is(err, unix.ENXIO):
		return nil, errors.New("it is a FIFO that nobody reads")
	case err != nil:
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, err
	}
	return f, nil
}
