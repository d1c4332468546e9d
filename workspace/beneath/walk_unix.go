//go:build linux || darwin

package beneath

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bound a walk.
type Limits struct {
	Entries int
	Depth   int // of directories below the first; the rest of the tree is walked all the same
	Time    time.Duration
	// Shut is told of a directory that cannot be opened, and may end the walk; nil: it is left out.
	Shut func(path string, err error) error
	// Done is told of a directory when all below it was visited, and where that stands; again has it visited once more.
	Done func(dir int, name string) (again bool, err error)
}

// A Visit looks at an entry: the directory that holds it, its name there, and its status. The path begins below the tree.
type Visit func(dir int, name string, st *unix.Stat_t, path func() string) error

// Walk calls visit with each entry below an open directory: through no link, with two descriptors however deep it comes,
// and in a time that grows with what there is. What vanishes meanwhile is left out. [ErrTooMuch] says that there is more.
func Walk(dir int, l Limits, visit Visit) error {
	w := treeWalk{Limits: l, top: dir, visit: visit, end: time.Now().Add(l.Time)}
	defer func() { w.at.Close() }()
	if err := w.enter(dir, "."); err != nil {
		return err
	}
	for len(w.levels) > 0 {
		last := &w.levels[len(w.levels)-1]
		n := len(last.todo)
		if n == 0 {
			if err := w.leave(); err != nil {
				return err
			}
			continue
		}
		name := last.todo[n-1]
		last.todo = last.todo[:n-1]
		if len(w.levels) > w.Depth {
			w.cut = true
			continue
		}
		if err := w.enter(int(w.at.Fd()), name); err != nil {
			return err
		}
	}
	if w.cut {
		return ErrTooMuch
	}
	return nil
}

type treeWalk struct {
	Limits
	top    int
	visit  Visit
	end    time.Time
	at     *os.File // the last of the levels
	levels []level
	cut    bool
}

// A level is a directory on the way down.
type level struct {
	name     string
	todo     []string // directories in it
	dev, ino uint64
}

// path is where an entry of the last level stands, below the tree.
func (w *treeWalk) path(name string) string {
	var b strings.Builder
	for _, l := range w.levels[1:] {
		b.WriteString(l.name)
		b.WriteByte('/')
	}
	b.WriteString(name)
	return b.String()
}

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC

func openDir(dir int, name string) (*os.File, error) {
	for {
		fd, err := unix.Openat(dir, name, dirFlags, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if err != unix.EINTR {
			return nil, err
		}
	}
}

// enter goes down into a directory, and visits what is in it.
func (w *treeWalk) enter(from int, name string) error {
	f, err := openDir(from, name)
	switch {
	case err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP:
		return nil
	case err != nil && w.Shut != nil && len(w.levels) > 0:
		return w.Shut(w.path(name), err)
	case err != nil:
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return err
	}
	if w.at != nil {
		w.at.Close()
	}
	w.at = f
	w.levels = append(w.levels, level{name: name, dev: uint64(st.Dev), ino: st.Ino})
	last := &w.levels[len(w.levels)-1]
	for {
		if time.Now().After(w.end) {
			return ErrTooMuch
		}
		names, err := f.Readdirnames(4096)
		for _, n := range names {
			if w.Entries--; w.Entries < 0 {
				return ErrTooMuch
			}
			if unix.Fstatat(int(f.Fd()), n, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if err := w.visit(int(f.Fd()), n, &st, func() string { return w.path(n) }); err != nil {
				return err
			}
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				last.todo = append(last.todo, n)
			}
		}
		if err == io.EOF || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// leave goes up, and says what is done.
func (w *treeWalk) leave() error {
	n := len(w.levels) - 1
	name := w.levels[n].name
	w.levels = w.levels[:n]
	if w.up(); w.Done == nil || n == 0 || len(w.levels) < n { // it was moved
		return nil
	}
	again, err := w.Done(int(w.at.Fd()), name)
	if last := &w.levels[n-1]; again {
		last.todo = append(last.todo, name)
	}
	return err
}

// up goes to the next directory that still stands on the way.
func (w *treeWalk) up() {
	if len(w.levels) == 0 {
		return
	}
	if f, err := openDir(int(w.at.Fd()), ".."); err == nil {
		if w.levels[len(w.levels)-1].is(f) {
			w.at.Close()
			w.at = f
			return
		}
		f.Close()
	}
	w.at.Close() // it was moved: the way down again, as far as that stands
	w.at, _ = openDir(w.top, ".")
	for i := 1; i < len(w.levels); i++ {
		f, err := openDir(int(w.at.Fd()), w.levels[i].name)
		if err != nil || !w.levels[i].is(f) {
			if err == nil {
				f.Close()
			}
			w.levels = w.levels[:i]
			return
		}
		w.at.Close()
		w.at = f
	}
}

func (l *level) is(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && uint64(st.Dev) == l.dev && st.Ino == l.ino
}
