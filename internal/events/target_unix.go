//go:build unix

package events

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Target returns the sink for the value of `--events`: `fd:N`, an open
// descriptor, or the name of a file. A file is made with mode 0600 or
// appended to, so that one file may serve many runs at once. A link is
// refused, since a payload that can write the directory could make it lead
// anywhere, and so is one on the way there that lies in the workspace, where an
// earlier run may have made it; so is a FIFO that nobody reads, since opening it
// would block. The workspace is an absolute path without links.
func Target(value, workspace string) (Sink, error) {
	f, err := openTarget(value, workspace)
	if err != nil {
		return Sink{}, fmt.Errorf("--events %s: %w", Clean(value), err)
	}
	s := Sink{
		Name: "--events " + Clean(value),
		Open: func() (io.WriteCloser, error) { return f, nil },
	}
	switch info, err := f.Stat(); {
	case err == nil && info.Mode()&fs.ModeNamedPipe != 0:
		s.Open = func() (io.WriteCloser, error) { return wholeLines{f}, nil }
	case err != nil || info.Mode().IsRegular() && !strings.HasPrefix(value, "fd:"):
		s.Max = maxFile // a reader at the other end knows what it keeps
		endLine(f)
	}
	return s, nil
}

// pipeBuf is how much a pipe takes in one piece whoever else writes to it, pipe(7).
const pipeBuf = 4 << 10

// wholeLines writes to a pipe that other runs may write to as well, so that no line
// stands within another's, unless it is longer than a pipe takes in one piece.
type wholeLines struct{ *os.File }

func (w wholeLines) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		part := b[n:]
		if len(part) > pipeBuf {
			end := bytes.LastIndexByte(part[:pipeBuf], '\n')
			if end < 0 {
				end = bytes.IndexByte(part, '\n')
			}
			if end >= 0 {
				part = part[:end+1]
			}
		}
		var k int
		k, err = w.File.Write(part)
		n += k
	}
	return n, err
}

// endLine ends what a run has left in a file that was killed while it wrote, or found
// the disk full: else the first event of this one would stand in the same line.
func endLine(f *os.File) {
	r, err := os.Open(fmt.Sprintf("/dev/fd/%d", f.Fd()))
	if err != nil {
		return // it may be written and not read
	}
	defer r.Close()
	last := make([]byte, 1)
	if end, err := r.Seek(-1, io.SeekEnd); err != nil || end < 0 {
		return // empty
	}
	if _, err := r.Read(last); err == nil && last[0] != '\n' {
		_, _ = f.Write([]byte("\n"))
	}
}

// maxFile is how much of one run goes into a file. The payload makes as many
// connections as it likes, each of them two events, and could fill the disk.
const maxFile = 256 << 20

func openTarget(value, workspace string) (*os.File, error) {
	if text, ok := strings.CutPrefix(value, "fd:"); ok {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || text != strconv.FormatUint(n, 10) {
			return nil, errors.New("want fd:N, N the number of an open descriptor")
		}
		// What would not outlive execve(2) did not come from the caller: it is
		// one of pccrun's own, which a lower number that is free may have got.
		if flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			return nil, fmt.Errorf("descriptor %d: not open", n)
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
	switch {
	case value == "-":
		return nil, errors.New("want FILE or fd:N: standard output belongs to the command; for a file named - use ./-")
	case strings.HasSuffix(value, "/"):
		return nil, unix.EISDIR
	}
	dir, err := realDir(filepath.Dir(value), workspace)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, filepath.Base(value)), os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, errors.New("it is a symbolic link; name the file, or use fd:N")
	case errors.Is(err, unix.ENXIO):
		return nil, errors.New("it is a FIFO without a reader")
	case err != nil:
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, err
	}
	return f, nil
}

// maxLinks is how many links the kernel follows, path_resolution(7).
const maxLinks = 40

// realDir returns a directory without links. One that lies in the workspace is
// not followed.
func realDir(dir, workspace string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, rest, links := "/", dir[1:], 0
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if name == "" || name == "." {
			continue
		}
		next := filepath.Join(real, name)
		to, err := os.Readlink(next)
		if err != nil { // no link, or nothing that can be opened
			real = next
			continue
		}
		if links++; links > maxLinks {
			return "", unix.ELOOP
		}
		if next == workspace || strings.HasPrefix(next, strings.TrimSuffix(workspace, "/")+"/") {
			return "", fmt.Errorf("it goes through the link %s, which a command could have made; name the file itself", Clean(next))
		}
		if strings.HasPrefix(to, "/") {
			real = "/"
		}
		rest = to + "/" + rest
	}
	return real, nil
}
