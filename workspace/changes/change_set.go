package changes

import (
	"cmp"
	"errors"
	"io/fs"
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
	From   string // where the file was before, if it was moved
	Before *Entry // nil: nothing stood there
	After  *Entry // nil: nothing stands there

	// What [Upper.Changes] finds out beside the change itself.
	Conflict string // how the host's file is not the one that the run saw, "" for not at all
	Protect  string // why a host tool would execute it, "" if none would
	Review   bool   // it may change, and should be read
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
	Renamed  Op = 'R'
	Retyped  Op = 'T' // a file became a link, a directory a file, …
)

// Op returns what happened.
func (c *Change) Op() Op {
	switch {
	case c.From != "":
		return Renamed
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
	switch {
	case a == b:
		return 0
	case a == ".":
		return -1
	case b == ".":
		return 1
	}
	for i := 0; i < len(a) && i < len(b); i++ {
		x, y := a[i], b[i]
		switch {
		case x == y:
		case x == '/':
			return -1
		case y == '/':
			return 1
		default:
			return cmp.Compare(x, y)
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

// maxMoved bounds the files that are recognised when they were moved: each is read
// as a whole, and a sparse one may be as large as it likes.
const maxMoved = 1 << 30

// pair turns a deleted and an added file of the same content into one that was
// moved. sum returns a digest of a deleted (before) or an added file; files of a
// size that only one side has are not read.
func (s *Set) pair(sum func(path string, before bool) (uint64, error)) error {
	gone, come := map[int64][]int{}, map[int64][]int{}
	for i := range s.Changes {
		switch c := &s.Changes[i]; {
		case c.Op() == Deleted && c.Before.Kind == workspace.File && c.Before.Size > 0 && c.Before.Size <= maxMoved:
			gone[c.Before.Size] = append(gone[c.Before.Size], i)
		case c.Op() == Added && c.After.Kind == workspace.File && c.After.Size > 0:
			come[c.After.Size] = append(come[c.After.Size], i)
		}
	}
	moved := map[int]bool{}
	for size, olds := range gone {
		if len(come[size]) == 0 {
			continue
		}
		bySum := map[uint64][]int{}
		for _, i := range olds {
			d, err := sum(s.Changes[i].Path, true)
			if errors.Is(err, fs.ErrPermission) {
				continue // the host's, and closed to us
			}
			if err != nil {
				return err
			}
			bySum[d] = append(bySum[d], i)
		}
		for _, i := range come[size] {
			d, err := sum(s.Changes[i].Path, false)
			if err != nil {
				return err
			}
			list := bySum[d]
			if len(list) == 0 {
				continue
			}
			// Of several, the one that kept its name.
			best := max(0, slices.IndexFunc(list, func(old int) bool { return base(s.Changes[old].Path) == base(s.Changes[i].Path) }))
			old := list[best]
			bySum[d] = slices.Delete(list, best, best+1)
			s.Changes[i].From, s.Changes[i].Before = s.Changes[old].Path, s.Changes[old].Before
			moved[old] = true
		}
	}
	kept := s.Changes[:0]
	for i := range s.Changes {
		if !moved[i] {
			kept = append(kept, s.Changes[i])
		}
	}
	s.Changes = kept
	return nil
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
