package survey

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// setIDs pins the programs that give who runs them rights (set-user-ID, set-group-ID, file capabilities), wherever the
// command may write. Root's are the command's own by the map of owners, and what is written through a shared mapping
// keeps the bit and the attribute, chmod(2). Only root pays for the walk, and at each launch: neither leaves a mark on
// the directory.
func (f *finder) setIDs() error {
	for _, root := range f.writable() {
		found, err := setIDFiles(root)
		if err != nil {
			return err
		}
		for _, path := range found {
			why := "a set-user-ID or set-group-ID program"
			at := pinnable(path)
			if at != path {
				why = "it holds " + why + " deeper than a path can be"
			}
			var st unix.Stat_t
			switch err := unix.Lstat(at, &st); {
			case err == unix.ENOENT || err == unix.ENOTDIR: // it has gone since
			case err != nil:
				return &os.PathError{Op: "lstat", Path: beneath.Shorten(at), Err: err}
			default:
				f.put(Place{Path: at, Node: NodeOf(st.Mode), Dev: Device(st.Dev), Ino: st.Ino, Access: f.atMost(at, profiles.Read), Pin: true, Protect: true, Why: why})
			}
		}
	}
	return nil
}

// maxDirectories is how many directories the path of a pin that stands for a longer one has.
const maxDirectories = 32

// pinnable returns a path, or the directory on the way that is pinned in its place where it is longer than the kernel
// takes one: nothing can be mounted on that.
func pinnable(path string) string {
	if len(path) < unix.PathMax {
		return path
	}
	end := unix.PathMax / 2
	for i, n := 0, 0; i < end; i++ {
		if path[i] == '/' {
			if n++; n > maxDirectories {
				end = i
			}
		}
	}
	return path[:strings.LastIndexByte(path[:end+1], '/')]
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

// A setIDWalk looks through the entries of a directory, with a worker for each processor.
type setIDWalk struct {
	mu    sync.Mutex
	found []string
	err   error
}

// setIDFiles lists the regular files of a tree, or the file itself, that have one of the bits or capabilities, in their
// order. What vanishes meanwhile has none.
func setIDFiles(root string) ([]string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return nil, &os.PathError{Op: "lstat", Path: root, Err: err}
	}
	entries := []string{root}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		list, err := os.ReadDir(root)
		if err != nil {
			return nil, err
		}
		entries = entries[:0]
		for _, e := range list {
			entries = append(entries, root+"/"+e.Name())
		}
	}
	w := &setIDWalk{}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(entries)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(entries); i = next.Add(1) - 1 {
				w.look(entries[i])
			}
		})
	}
	workers.Wait()
	slices.Sort(w.found)
	return w.found, w.err
}

// walkLimits bounds the walk of a launch.
var walkLimits = beneath.Limits{Entries: 16 << 20, Depth: 1 << 20, Time: time.Minute, Shut: func(path string, err error) error {
	return &os.PathError{Op: "open", Path: beneath.Shorten(path), Err: err}
}}

// look adds what a path has: itself, or what lies below it.
func (w *setIDWalk) look(path string) {
	var found []string
	judge := func(dir int, name string, st *unix.Stat_t, below func() string) error {
		gives, err := givesRights(dir, name, st)
		if gives {
			found = append(found, below())
		}
		return err
	}
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = judge(unix.AT_FDCWD, path, &st, func() string { return path })
	} else if err == nil {
		var fd int
		if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
			err = beneath.Walk(fd, walkLimits, func(dir int, name string, st *unix.Stat_t, below func() string) error {
				return judge(dir, name, st, func() string { return path + "/" + below() })
			})
			unix.Close(fd)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, found...)
	if err != nil && err != unix.ENOENT && err != unix.ENOTDIR && err != unix.ELOOP && w.err == nil {
		w.err = &os.PathError{Op: "look for set-ID programs", Path: path, Err: err}
	}
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
