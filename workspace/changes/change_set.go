package changes

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace"
)

// A Set says how one tree became another. It is a value: making it reads
// two trees ([Compare]) or the upper layer of an overlay ([Upper.Changes]), and
// what is done with it is another matter.
type Set struct {
	Root    string   // the tree's path on the host
	Changes []Change // by path: a directory comes right before what is in it
	Lost    []string // sockets, FIFOs and devices, which no change set carries
}

// A Change is one path that differs. What came with a new directory, or went
// with an old one, is a change of its own.
type Change struct {
	Path   string // relative to the root, "." for the root itself
	Before *Entry // nil: nothing stood there
	After  *Entry // nil: nothing stands there

	// What [Upper.Changes] finds out beside the change itself.
	Conflict string // how the host's file is not the one that the run saw, "" for not at all
	Protect  string // why a host tool would execute it, "" if none would
	Review   bool   // it may change, and should be read
	plain    []byte // what is to be there of an index of git, nil for what the run left
	inWay    bool   // the run changed nothing but what lies in it, and the host has something else there
}

// An Entry is what stands at a path.
type Entry struct {
	Kind   workspace.Kind
	Mode   uint32 // permission bits, with set-user-ID, set-group-ID and sticky
	Size   int64  // of a file, in bytes
	Target string // of a link
	Stamp  Stamp
}

// A Stamp tells one state of a file from another without reading it. Times are
// in nanoseconds.
type Stamp struct {
	Ino          uint64
	Mtime, Ctime int64
	UID, GID     uint32
}

// same reports whether two stamps are of one state. Owners do not count: a
// change of them is one of the ctime, and root sees them through a mount that
// maps them during the run.
func (s Stamp) same(t Stamp) bool {
	return s.Ino == t.Ino && s.Mtime == t.Mtime && s.Ctime == t.Ctime
}

// An Op is what happened to a path.
type Op byte

// The ops, as `git diff --name-status` calls them.
const (
	Added    Op = 'A'
	Modified Op = 'M'
	Deleted  Op = 'D'
	Retyped  Op = 'T' // a file became a link, a directory a file, …
)

// Op returns what happened.
func (c *Change) Op() Op {
	switch {
	case c.Before == nil:
		return Added
	case c.After == nil:
		return Deleted
	case c.Before.Kind != c.After.Kind:
		return Retyped
	}
	return Modified
}

// String returns the op and the path.
func (c *Change) String() string { return string(rune(c.Op())) + " " + c.Path }

// contains reports whether a path is dir or lies in it.
func contains(dir, path string) bool {
	return dir == "." || path == dir || len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// ComparePaths orders paths so that a directory comes right before what is in it.
func ComparePaths(a, b string) int {
	if a == "." || b == "." {
		return cmp.Compare(strings.TrimPrefix(a, "."), strings.TrimPrefix(b, "."))
	}
	for i := range min(len(a), len(b)) {
		if x, y := a[i], b[i]; x != y {
			if x == '/' || y != '/' && x < y {
				return -1
			}
			return 1
		}
	}
	return cmp.Compare(len(a), len(b))
}

// find returns the index of the change of a path.
func (s *Set) find(path string) (int, bool) {
	return slices.BinarySearchFunc(s.Changes, path, func(c Change, path string) int { return ComparePaths(c.Path, path) })
}

// below returns the changes of what lies below the path of change i.
func (s *Set) below(i int) []Change {
	end := i + 1
	for end < len(s.Changes) && contains(s.Changes[i].Path, s.Changes[end].Path) {
		end++
	}
	return s.Changes[i+1 : end]
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
