package inside

import (
	"cmp"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// quiet is how long a command may have printed nothing, once it has ended, before what it left
// running is not waited for.
const quiet = 100 * time.Millisecond

// A Drain copies what a command prints.
type Drain struct {
	over  atomic.Bool
	done  sync.WaitGroup
	files []*os.File
}

// Go copies to the end of a file, or of what is to take it, and closes the file.
func (d *Drain) Go(to io.Writer, from *os.File) {
	d.files = append(d.files, from)
	d.done.Go(func() {
		defer from.Close()
		buffer := make([]byte, 64<<10)
		for {
			last, until := d.over.Load(), time.Now().Add(quiet)
			if last {
				_ = from.SetReadDeadline(until)
			}
			n, err := from.Read(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) && last && !time.Now().Before(until) {
				n, err = readNow(from, buffer)
			}
			if _, bad := to.Write(buffer[:n]); bad != nil {
				return // as the command's own writing would fail
			}
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		}
	})
}

// readNow reads what there is, without waiting. [os.File.Read] looks at its deadline first: on a busy machine that has passed
// before anybody has looked at the file, and what a command had printed was lost.
func readNow(f *os.File, b []byte) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	_ = f.SetReadDeadline(time.Time{})
	late := raw.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), b)
		return true
	})
	if n > 0 {
		return n, nil
	}
	return 0, cmp.Or(late, err, io.EOF)
}

// Wait waits, when the command has ended, until all is copied that it has printed.
func (d *Drain) Wait() {
	d.over.Store(true)
	for _, f := range d.files {
		_ = f.SetReadDeadline(time.Now()) // whoever reads looks again
	}
	d.done.Wait()
}
