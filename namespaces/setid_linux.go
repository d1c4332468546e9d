package namespaces

import (
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// setIDs pins the set-user-ID and set-group-ID programs of the workspace.
// Root's are the command's own by the map of owners, and what is written
// through a shared mapping keeps the bit, chmod(2). Only root pays for the
// walk, and at each launch: a bit that somebody sets leaves no mark on the
// directory.
func (f *finder) setIDs() error {
	found, err := setIDFiles(f.policy.Workspace)
	for _, file := range found {
		f.put(Place{Path: file.path, Node: File, Dev: device(file.dev), Ino: file.ino, Access: f.atMost(file.path, profiles.Read), Pin: true, Protect: true, Why: "a set-user-ID or set-group-ID program"})
	}
	return err
}

type setID struct {
	path     string
	dev, ino uint64
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

// setIDFiles lists the regular files of a tree that have one of the bits. What
// vanishes meanwhile has none.
func setIDFiles(root string) ([]setID, error) {
	if _, err := os.Stat(root); err != nil {
		return nil, err
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

// readSetIDs reads one directory, getdents64(2).
func readSetIDs(dir string, buf []byte) (dirs []string, files []setID, err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, nil, &os.PathError{Op: "getdents", Path: dir, Err: err}
		}
		if n == 0 {
			return dirs, files, nil
		}
		for b := buf[:n]; len(b) > 0; {
			length := binary.NativeEndian.Uint16(b[16:])
			kind, name := b[18], unix.ByteSliceToString(b[19:length])
			b = b[length:]
			if name == "." || name == ".." {
				continue
			}
			if kind != unix.DT_REG && kind != unix.DT_DIR && kind != unix.DT_UNKNOWN {
				continue
			}
			var st unix.Stat_t
			if kind != unix.DT_DIR {
				if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
					continue
				} else if err != nil {
					return nil, nil, &os.PathError{Op: "lstat", Path: dir + "/" + name, Err: err}
				}
			}
			switch {
			case kind == unix.DT_DIR, st.Mode&unix.S_IFMT == unix.S_IFDIR:
				dirs = append(dirs, dir+"/"+name)
			case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
				files = append(files, setID{dir + "/" + name, uint64(st.Dev), st.Ino})
			}
		}
	}
}
