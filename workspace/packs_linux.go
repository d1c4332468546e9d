package workspace

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// `git gc` packs all objects anew, and removes the packs that they were in. Those are held open
// from the start of the run on: at its end they tell which objects stood, and vouch for those that
// git has copied.

const (
	maxHolds = 64       // packs of all repositories of a run: two descriptors each
	minHold  = 32 << 10 // bytes of an index, that of some 1,000 objects: fewer are soon read
)

// A hold is a pack that stood. It vouches for what lies in its own directory alone: one that came
// with a new repository may be whatever it likes.
type hold struct {
	name        string
	size        int64 // of the index
	index, file int
	end         []byte // of the index, when nothing had been changed: see [vcs.OpenSealed]

	read map[vcs.Format]*vcs.Pack // nil for one that has changed
}

// hold opens the large packs in a directory of objects that the run has not changed yet, the
// largest first, with the sums of what they are: the command may write into one. The time of the
// last change says nothing of that later, for it changes with the name too, which git removes. What
// cannot be held is read like all else.
func (g *Guard) hold(objects string, room int, stop <-chan struct{}) (list []*hold) {
	path := objects + "/pack"
	if g.places[objects] == 0 || g.places[path] == 0 || g.exchanged(objects) {
		return nil
	}
	above, name, err := g.parent(path)
	if err != nil {
		return nil
	}
	defer unix.Close(above)
	dir, err := beneath.Open(above, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if unix.Fstat(dir, &st) != nil || st.Ino != g.places[path] {
		return nil
	}
	names, err := beneath.Entries(dir)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if base, is := strings.CutSuffix(name, ".idx"); is && beneath.Stat(dir, name, &st) == nil && st.Size >= minHold && !g.touched(&st) {
			list = append(list, &hold{name: base, size: st.Size, index: -1, file: -1})
		}
	}
	slices.SortFunc(list, func(a, b *hold) int { return cmp.Compare(b.size, a.size) })
	return slices.DeleteFunc(list, func(h *hold) bool {
		select {
		case <-stop:
			return true
		default:
		}
		if room > 0 && g.take(dir, h) {
			room--
			return false
		}
		h.close()
		return true
	})
}

// take opens a pack to be held, and reports whether it has not been changed.
func (g *Guard) take(dir int, h *hold) bool {
	for ext, to := range map[string]*int{".idx": &h.index, ".pack": &h.file} {
		var err error
		if *to, err = beneath.Open(dir, h.name+ext, unix.O_RDONLY); err != nil {
			return false
		}
	}
	h.end = make([]byte, vcs.SealSize)
	if _, err := beneath.Reader(h.index).ReadAt(h.end, h.size-vcs.SealSize); err != nil {
		return false
	}
	var st unix.Stat_t // what was read is that of a file of which this is true afterwards
	return unix.Fstat(h.file, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && !g.touched(&st) &&
		unix.Fstat(h.index, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && !g.touched(&st) && st.Size == h.size
}

func (h *hold) close() {
	for _, fd := range [...]int{h.index, h.file} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// pack opens it as what it was, nil if it is no longer that. The error is for what was not allowed.
func (h *hold) pack(f vcs.Format, more func(n int64) error) (*vcs.Pack, error) {
	if p, asked := h.read[f]; asked {
		return p, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(h.file, &st); err != nil {
		return nil, err
	}
	p, err := vcs.OpenSealed(beneath.Reader(h.index), beneath.Reader(h.file), h.size, st.Size, f, h.end, more)
	if errors.Is(err, ErrTooMuch) {
		return nil, err
	}
	if h.read == nil {
		h.read = map[vcs.Format]*vcs.Pack{}
	}
	h.read[f] = p
	return p, nil
}

// holdPacks is [Guard.hold] for all repositories.
func (g *Guard) holdPacks(repos []*commits, stop <-chan struct{}) map[string][]*hold {
	all := map[string][]*hold{}
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	room := int(min(maxHolds, limit.Cur/16)) / len(g.peers)
	for _, c := range repos {
		path := c.common + "/objects"
		if _, held := all[path]; held {
			continue
		}
		all[path] = g.hold(path, room, stop)
		room -= len(all[path])
	}
	return all
}

// holds returns the packs that a directory of objects had at the start of the run.
func (s *store) holds(path string) iter.Seq[*vcs.Pack] {
	return s.sealed(s.guard.holds[path])
}

func (s *store) sealed(list []*hold) iter.Seq[*vcs.Pack] {
	return func(yield func(*vcs.Pack) bool) {
		for _, h := range list {
			if p, err := h.pack(s.format, s.left.spend); err != nil || p != nil && !yield(p) {
				return
			}
		}
	}
}

// held reports whether a pack had an object that has been removed or changed. The first time that
// reads the whole of its index, some milliseconds for 100,000 objects: ask it last.
func (s *store) held(id string) bool {
	for _, d := range s.opened {
		gone := slices.DeleteFunc(slices.Clone(s.guard.holds[d.path]), func(h *hold) bool {
			var st unix.Stat_t
			return unix.Fstat(h.index, &st) == nil && !s.guard.touched(&st) // it stands, and has been asked
		})
		for p := range s.sealed(gone) {
			if at, err := p.Find(id); err == nil && at >= 0 {
				return true
			}
		}
	}
	return false
}
