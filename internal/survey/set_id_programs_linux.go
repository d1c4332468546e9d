package survey

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// setIDs pins the programs that give who runs them rights (set-user-ID,
// set-group-ID, file capabilities), wherever the command may write. Root's are
// the command's own by the map of owners, and what is written through a shared
// mapping keeps the bit and the attribute, chmod(2). Only root pays for the
// walk, and at each launch: neither leaves a mark on the directory.
func (f *finder) setIDs() error {
	for _, root := range f.writable() {
		found, err := setIDFiles(root)
		if err != nil {
			return err
		}
		for _, file := range found {
			p := Place{Path: file.path, Node: File, Dev: Device(file.dev), Ino: file.ino, Access: f.atMost(file.path, profiles.Read), Pin: true, Protect: true, Why: "a set-user-ID or set-group-ID program"}
			if file.around {
				p.Node, p.Why = Directory, "it holds "+p.Why+" deeper than a path can be"
			}
			f.put(p)
		}
	}
	return nil
}

// writable lists what the command may write, topmost only.
func (f *finder) writable() []string {
	roots := []string{f.policy.Workspace}
	for _, p := range f.places {
		if p.Access == profiles.Write && (p.Node == Directory || p.Node == File) {
			roots = append(roots, p.Path)
		}
	}
	slices.SortFunc(roots, Less)
	last := ""
	return slices.DeleteFunc(roots, func(path string) bool {
		if last != "" && Below(path, last) {
			return true
		}
		last = path
		return false
	})
}

type setID struct {
	path     string
	dev, ino uint64
	around   bool // a directory that holds one too deep for a path: nothing can be mounted on that
}

// A setIDWalk reads directories, with a worker for each processor.
type setIDWalk struct {
	mu    sync.Mutex
	wake  sync.Cond
	todo  []string
	busy  int
	found []setID
	err   error
}

// setIDFiles lists the regular files of a tree, or the file itself, that have
// one of the bits or capabilities. What vanishes meanwhile has none.
func setIDFiles(root string) ([]setID, error) {
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return nil, &os.PathError{Op: "lstat", Path: root, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		gives, err := givesRights(unix.AT_FDCWD, root, &st)
		if err != nil {
			err = &os.PathError{Op: "lgetxattr", Path: root, Err: err}
		}
		if err != nil || !gives {
			return nil, err
		}
		return []setID{{path: root, dev: uint64(st.Dev), ino: st.Ino}}, nil
	}
	w := &setIDWalk{todo: []string{root}}
	w.wake.L = &w.mu
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(w.work)
	}
	workers.Wait()
	slices.SortFunc(w.found, func(a, b setID) int { return strings.Compare(a.path, b.path) })
	return w.found, w.err
}

func (w *setIDWalk) work() {
	buf := make([]byte, 32<<10)
	for {
		w.mu.Lock()
		for len(w.todo) == 0 && w.busy > 0 {
			w.wake.Wait()
		}
		if len(w.todo) == 0 || w.err != nil {
			w.mu.Unlock()
			w.wake.Broadcast()
			return
		}
		dir := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		w.busy++
		w.mu.Unlock()

		dirs, files, err := readSetIDs(dir, buf)

		w.mu.Lock()
		w.busy--
		w.todo, w.found = append(w.todo, dirs...), append(w.found, files...)
		if err != nil && w.err == nil {
			w.err = err
		}
		w.mu.Unlock()
		w.wake.Broadcast()
	}
}

// readSetIDs reads one directory.
func readSetIDs(dir string, buf []byte) (dirs []string, files []setID, err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	var failed error
	err = beneath.Each(fd, buf, func(entry []byte) {
		name := string(entry)
		path := dir + "/" + name
		var st unix.Stat_t
		switch err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); {
		case err == unix.ENOENT:
		case err != nil:
			failed = &os.PathError{Op: "lstat", Path: path, Err: err}
		case st.Mode&unix.S_IFMT == unix.S_IFDIR && strings.Count(path, "/") < maxShared && len(path) < unix.PathMax/2:
			dirs = append(dirs, path)
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			below, err := deepSetIDs(fd, name, path)
			files, failed = append(files, below...), cmp.Or(failed, err)
		default:
			gives, err := givesRights(fd, name, &st)
			if gives {
				files = append(files, setID{path: path, dev: uint64(st.Dev), ino: st.Ino})
			}
			if err != nil {
				failed = cmp.Or[error](failed, &os.PathError{Op: "lgetxattr", Path: path, Err: err})
			}
		}
	})
	if err != nil {
		err = &os.PathError{Op: "getdents", Path: dir, Err: err}
	}
	return dirs, files, cmp.Or(err, failed)
}

// maxShared is how many names a path has up to which workers share directories, while it is half as long as the kernel
// takes one: what lies deeper one walks by itself, in a time that does not grow with the length of the path.
const maxShared = 32

// deepest bounds the walk of a launch below that.
var deepest = beneath.Limits{Entries: 16 << 20, Depth: 1 << 20, Time: time.Minute, Shut: func(path string, err error) error {
	return &os.PathError{Op: "open", Path: beneath.Shorten(path), Err: err}
}}

// deepSetIDs reads all below a directory.
func deepSetIDs(above int, name, path string) (files []setID, err error) {
	fd, err := beneath.Open(above, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP || err == unix.EXDEV {
		return nil, nil
	}
	if err == nil {
		defer unix.Close(fd)
		around := setID{path: path, around: true}
		var at unix.Stat_t
		if err = unix.Fstat(fd, &at); err == nil {
			around.dev, around.ino = uint64(at.Dev), at.Ino
			err = beneath.Walk(fd, deepest, func(dir int, name string, st *unix.Stat_t, below func() string) error {
				gives, err := givesRights(dir, name, st)
				if !gives {
					return err
				}
				file := setID{path: path + "/" + below(), dev: uint64(st.Dev), ino: st.Ino}
				if len(file.path) >= unix.PathMax {
					file = around
				}
				if !slices.Contains(files, file) {
					files = append(files, file)
				}
				return nil
			})
		}
	}
	if err != nil {
		err = &os.PathError{Op: "look for set-ID programs", Path: beneath.Shorten(path), Err: err}
	}
	return files, err
}

// givesRights reports whether a file has one of the bits, or is a program with
// capabilities of its own, capabilities(7).
func givesRights(dir int, name string, st *unix.Stat_t) (bool, error) {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return false, nil
	case st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return true, nil
	case st.Mode&0o111 == 0:
		return false, nil
	}
	path := name
	if dir != unix.AT_FDCWD {
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir, name)
	}
	switch _, err := unix.Lgetxattr(path, "security.capability", nil); err {
	case nil:
		return true, nil
	case unix.ENODATA, unix.ENOTSUP, unix.ENOENT:
		return false, nil
	default:
		return false, err
	}
}
