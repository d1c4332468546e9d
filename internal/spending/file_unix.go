//go:build unix

package spending

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A File is what several processes count together. Its methods may be called from many goroutines.
type File struct {
	mu sync.Mutex // flock(2) is the descriptor's, and so this process's
	f  *os.File
}

// The content: a mark with the version, then three numbers of 64 bits, little endian.
const (
	mark = "pccspend"
	size = len(mark) + 3*8
)

var (
	errForm = errors.New("not a file of what was spent")
	errHeld = errors.New("somebody else keeps it locked")
)

// lockTime is how long others may keep a file locked: whoever may read it can, and would hold up all that count in it.
const lockTime = 5 * time.Second

// Create makes a file with a limit, 0 for none. There must be none at path: it is there whole, or not at all.
func Create(path string, limit USD) (*File, error) {
	s, err := begin(filepath.Dir(path), limit)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Link(s.f.Name(), path), os.Remove(s.f.Name())); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Unnamed makes a file in a directory that nobody else finds there.
func Unnamed(dir string, limit USD) (*File, error) {
	s, err := begin(dir, limit)
	if err != nil {
		return nil, err
	}
	return s, os.Remove(s.f.Name())
}

// begin makes a file with a name of its own.
func begin(dir string, limit USD) (*File, error) {
	f, err := os.CreateTemp(dir, ".spending-*.new")
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(State{Limit: limit}.bytes(), 0); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return &File{f: f}, nil
}

// Open opens a file that Create has made.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	s := &File{f: f}
	if _, err := s.Read(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return s, nil
}

// Close leaves the file as it is.
func (s *File) Close() error { return s.f.Close() }

// Read returns what the file holds now.
func (s *File) Read() (State, error) {
	_, now, err := s.change(unix.LOCK_SH, nil)
	return now, err
}

// Add adds what was spent, and returns what the file held before and holds now: whoever crosses a mark says so.
func (s *File) Add(amount USD) (before, now State, err error) {
	return s.change(unix.LOCK_EX, func(to *State) { to.Spent = sum(to.Spent, amount) })
}

// Hold has all wait until the API takes requests again, at most [MaxHold] from now. A hold that lasts longer stays.
func (s *File) Hold(until time.Time) error {
	most := time.Now().Add(MaxHold)
	if until.After(most) {
		until = most
	}
	_, _, err := s.change(unix.LOCK_EX, func(to *State) {
		if until.After(to.Until) || to.Until.After(most) { // of before the clock was set back
			to.Until = until
		}
	})
	return err
}

// Extend sets the limit anew: to what was spent, and more. It forgets a hold.
func (s *File) Extend(more USD) (now State, err error) {
	_, now, err = s.change(unix.LOCK_EX, func(to *State) { to.Limit, to.Until = sum(to.Spent, more), time.Time{} })
	return now, err
}

// sum never overflows, and never goes down.
func sum(a, b USD) USD { return a + min(max(b, 0), math.MaxInt64-a) }

// change reads the file and writes what by has made of it, under a lock.
func (s *File) change(how int, by func(*State)) (before, now State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.lock(how); err != nil {
		return before, now, err
	}
	defer func() { err = errors.Join(err, s.lock(unix.LOCK_UN)) }()
	text := make([]byte, size)
	if _, err := s.f.ReadAt(text, 0); err != nil || string(text[:len(mark)]) != mark {
		return before, now, errForm
	}
	if before = read(text[len(mark):]); before.Limit < 0 || before.Spent < 0 {
		return before, now, errForm
	}
	if now = before; by == nil {
		return before, now, nil
	}
	by(&now)
	if now != before {
		_, err = s.f.WriteAt(now.bytes(), 0)
	}
	return before, now, err
}

func (s *File) lock(how int) error {
	raw, err := s.f.SyscallConn()
	if err != nil {
		return err
	}
	for last := time.Now().Add(lockTime); ; time.Sleep(time.Millisecond) {
		e := raw.Control(func(fd uintptr) { err = unix.Flock(int(fd), how|unix.LOCK_NB) })
		switch {
		case e != nil:
			return e
		case err != unix.EINTR && err != unix.EWOULDBLOCK:
			return os.NewSyscallError("flock", err)
		case time.Now().After(last):
			return errHeld
		}
	}
}

func (s State) bytes() []byte {
	text := binary.LittleEndian.AppendUint64([]byte(mark), uint64(s.Limit))
	text = binary.LittleEndian.AppendUint64(text, uint64(s.Spent))
	until := int64(0)
	if !s.Until.IsZero() {
		until = s.Until.UnixMilli()
	}
	return binary.LittleEndian.AppendUint64(text, uint64(until))
}

func read(text []byte) (s State) {
	number := func(i int) int64 { return int64(binary.LittleEndian.Uint64(text[i*8:])) }
	s.Limit, s.Spent = USD(number(0)), USD(number(1))
	if ms := number(2); ms > 0 {
		s.Until = time.UnixMilli(ms)
	}
	return s
}
