package workspace

import (
	"errors"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// A directory that a command makes under a protected name goes on working inside while it is in quarantine. What is
// mounted first on a stub, an empty directory, is the command's own; then the two are exchanged, so that the host has
// the stub under the name, and no moment shows the command neither. A mount is found by its directory entry, so it comes
// along. In the command's mount namespace the name can be neither renamed nor removed (EBUSY).
//
// A stub is known by its inode, wherever it stands. What comes to lie in one is quarantined; it goes when the run is over,
// by rmdir(2), which takes nothing but an empty directory.

// Stubs are those of a run, and how it makes them.
type Stubs struct {
	// Staged is a directory that becomes the stash, "" where no stub can be made: names are moved away then.
	Staged string
	// Mount mounts, for the command, what stands at a path on an entry of the stash; both as they were seen.
	Mount func(path string, have *unix.Stat_t, stash int, entry string, stub *unix.Stat_t) error
	// Note writes a stub down where who clears up after this launcher reads it, before it stands anywhere.
	Note func(dev, ino uint64) error
	// Foreign reports whether a directory is a stub of another run that goes on.
	Foreign func(dev, ino uint64) bool
	// Taken is called for one that was made since this run began: its command may have made the directory.
	Taken func(path string)
	// Full is called once, for a directory beyond what is mounted for one run.
	Full func(path string)

	mu           sync.Mutex // over what follows: each guard has a thread
	own, foreign nodes
	taken        map[[2]uint64]bool
	full         bool
}

// nodes are directories by device and inode, each with a descriptor, so that nothing else gets the inode; -1 for none.
type nodes map[[2]uint64]int

func (n nodes) drop(node [2]uint64) {
	if fd, is := n[node]; is && fd >= 0 {
		unix.Close(fd)
	}
	delete(n, node)
}

// MaxStubs bounds the mounts of one run.
const MaxStubs = 64

// NewStubs returns stubs of which none is made yet.
func NewStubs() *Stubs { return &Stubs{own: nodes{}, foreign: nodes{}, taken: map[[2]uint64]bool{}} }

// Knows adds a stub that stands already, with a descriptor; -1 for none.
func (s *Stubs) Knows(dev, ino uint64, fd int) { s.add([2]uint64{dev, ino}, fd) }

// close removes what stubs the last look has not met, such as in a directory that was moved to where no name is
// protected, and lets go of all.
func (s *Stubs) close() {
	if s == nil {
		return
	}
	for node, fd := range s.own {
		if path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err == nil {
			if dir, name, err := beneath.ParentOf(path); err == nil {
				var st unix.Stat_t
				if beneath.Stat(dir, name, &st) == nil && node == [2]uint64{st.Dev, st.Ino} {
					_ = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
				}
				unix.Close(dir)
			}
		}
		s.own.drop(node)
	}
	for node := range s.foreign {
		s.foreign.drop(node)
	}
}

func (s *Stubs) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.own) >= MaxStubs
}

func (s *Stubs) add(node [2]uint64, fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[node] = fd
}

func (s *Stubs) remove(node [2]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own.drop(node)
}

// has reports whether a directory, of which fd is a descriptor, is a stub, and whether it is this run's. The run that
// has made another's may be over at the end.
func (s *Stubs) has(node [2]uint64, fd int, last bool) (own, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, own = s.own[node]; own {
		return true, true
	}
	if _, is = s.foreign[node]; is && !last || s.Foreign == nil {
		return false, is
	}
	if is = s.Foreign(node[0], node[1]); is && !last {
		if kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			s.foreign[node] = kept
		}
	}
	return false, is
}

// tell calls Taken once for a stub of another run.
func (s *Stubs) tell(node [2]uint64, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Taken != nil && !s.taken[node] {
		s.taken[node] = true
		s.Taken(path)
	}
}

// Stubs gives the first guard its stubs; only in its tree can they be made.
func (gs Guards) Stubs(s *Stubs) { gs[0].stubs = s }

// stub reports whether what stands under a protected name may stay: it is a stub, and by now an empty one. When the
// run is over its own ones go.
func (g *Guard) stub(s suspect) (stays bool, moved int) {
	st := g.peers[0].stubs
	if st == nil || s.hit.Kind != Dir {
		return false, 0
	}
	dir, name, err := g.parent(g.abs(s.rel))
	if err != nil {
		return false, 0
	}
	defer unix.Close(dir)
	fd, err := beneath.Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false, 0
	}
	defer unix.Close(fd)
	var at unix.Stat_t
	if unix.Fstat(fd, &at) != nil {
		return false, 0
	}
	own, is := st.has([2]uint64{at.Dev, at.Ino}, fd, g.during.last)
	if !is {
		return false, 0
	}
	if !own && bornSince(dir, name, g.standing.Start) {
		st.tell([2]uint64{at.Dev, at.Ino}, g.abs(s.rel))
	}
	list, err := beneath.Entries(fd)
	if err != nil {
		return false, 0
	}
	for _, e := range list {
		done, err := g.quarantine(g.abs(s.rel)+"/"+e, s.why)
		if err != nil {
			return false, moved
		}
		if done {
			moved++
		}
	}
	if own && g.during.last {
		err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		return err == nil || beneath.Gone(err), moved
	}
	return true, moved
}

// swap quarantines a directory and leaves the command a mount of it; false where it has to be moved away.
func (g *Guard) swap(s suspect) (done bool) {
	st := g.stubs
	if st == nil || st.Staged == "" || g.during.last || s.hit.Kind != Dir {
		return false
	}
	path := g.abs(s.rel)
	dir, name, err := g.parent(path)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	if bornSince(dir, "", g.standing.Start) {
		return false // its parent is new, and will be moved itself
	}
	if st.crowded() {
		if !st.full {
			st.full = true
			st.Full(path)
		}
		return false
	}
	var node [2]uint64
	c, err := g.stash.Swap(dir, name, Finding{Kind: Stashed, Path: path, Why: s.why}, func(stash int, entry string, have, stub *unix.Stat_t) error {
		fd, err := beneath.Open(stash, entry, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		node = [2]uint64{stub.Dev, stub.Ino}
		st.add(node, fd)
		return errors.Join(st.Note(stub.Dev, stub.Ino), st.Mount(path, have, stash, entry, stub))
	})
	if err != nil {
		st.remove(node)
		return false
	}
	g.report(c)
	return true
}
