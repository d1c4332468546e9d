// Package procfs reads files that the kernel makes up as they are read, such as
// those below /proc.
//
// The promise: what [Read] returns was read in as few calls as the kernel lets
// it, for much of such a file is made anew at each. os.ReadFile starts with 512
// bytes and asks the runtime's poller first, which together cost more than most
// of these files do.
package procfs

import (
	"io/fs"
	"slices"
	"syscall"
)

// chunk is how much is read at once, bytes. Most files are shorter; a longer one
// comes a page at a time (seq_file), whatever is asked for.
const chunk = 16 << 10

// Read returns all of a file. Its errors are [*fs.PathError]s.
func Read(path string) ([]byte, error) { return read(path, chunk) }

// Short is Read for a file that seldom has more than 2 KiB.
func Short(path string) ([]byte, error) { return read(path, 2<<10) }

func read(path string, chunk int) ([]byte, error) {
	fd, err := retry(func() (int, error) { return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	text := make([]byte, 0, chunk)
	for {
		n, err := retry(func() (int, error) { return syscall.Read(fd, text[len(text):cap(text)]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return text, nil
		}
		text = text[:len(text)+n]
		if cap(text)-len(text) < chunk/4 { // a page
			text = slices.Grow(text, chunk)
		}
	}
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != syscall.EINTR {
			return n, err
		}
	}
}
