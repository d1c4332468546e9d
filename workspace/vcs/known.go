package vcs

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"io"
	"iter"
	"slices"
)

// What git packs anew it mostly copies from a pack to the next as it lies there, compressed and as
// a delta. So most objects of a new pack are known by another that is known to be sound, and need
// not be read: each is what the other has, byte by byte, and if it is a delta, of an object of the
// same name, which is looked at like all.

// SealSize is how many bytes at the end of a pack's index are its seal: the sum of the pack, and
// its own. In the shorter format a part of them is.
const SealSize = 2 * sha256.Size

// MaxEntries is of how many objects a pack is compared with another: each takes some 40 bytes.
const MaxEntries = 1 << 21

// ErrUnsealed is for a pack that is not what it was when its seal was taken.
var ErrUnsealed = errors.New("pack has changed")

// A seal is the sum of a pack that its index had, and whether that was found to be so.
type seal struct {
	sum   []byte
	asked bool
	err   error
}

// OpenSealed opens a pack whose index, of so many bytes, ended with a seal when it was known to be
// sound. All of the index is read, and more is asked before each part.
func OpenSealed(index, pack io.ReaderAt, indexSize, size int64, f Format, end []byte, more func(n int64) error) (*Pack, error) {
	n := f.size()
	if len(end) != SealSize {
		return nil, ErrUnsealed
	}
	end = end[SealSize-2*n:]
	if err := f.sums(index, indexSize, end[n:], more); err != nil {
		return nil, err
	}
	p, err := OpenPack(index, pack, size, f)
	if err == nil {
		p.sealed = &seal{sum: end[:n]} // which the index's own is of
	}
	return p, err
}

// whole reads a sealed pack, once, and returns an error if it is another.
func (p *Pack) whole(more func(n int64) error) error {
	if p.sealed == nil {
		return ErrUnsealed
	}
	if !p.sealed.asked {
		p.sealed.err = p.format.sums(p.pack, p.size, p.sealed.sum, more)
		p.sealed.asked = true
	}
	return p.sealed.err
}

// sums compares a file, less the sum at its end, with what that should be.
func (f Format) sums(r io.ReaderAt, size int64, want []byte, more func(n int64) error) error {
	h := f.sum()
	part := make([]byte, 256<<10)
	for at, end := int64(0), size-int64(f.size()); at < end; at += int64(len(part)) {
		if err := more(0); err != nil {
			return err
		}
		b := part[:min(int64(len(part)), end-at)]
		if _, err := r.ReadAt(b, at); err != nil {
			return err
		}
		h.Write(b)
	}
	if !bytes.Equal(h.Sum(nil), want) {
		return ErrUnsealed
	}
	return nil
}

// An entry is an object of a pack.
type entry struct {
	at    int64  // where it lies
	twin  int64  // where the pack with which it is compared has one of the same name, -1 for none
	n     uint32 // where its name stands among all
	known bool   // it is what that pack has
}

// entries returns all objects as they lie, or a name that stands before a lower one: of those
// each program that halves finds others.
func (p *Pack) entries(more func(n int64) error) (list []entry, disordered string, err error) {
	if p.Count() > MaxEntries {
		return nil, "", ErrLarge
	}
	list, last := make([]entry, 0, min(p.Count(), 1<<16)), ""
	for n := range p.Count() {
		if err := more(0); err != nil {
			return nil, "", err
		}
		name, err := p.name(n)
		if err != nil || name < last {
			return nil, name, err
		}
		last = name
		at, err := p.offset(n)
		if err != nil {
			return nil, "", err
		}
		list = append(list, entry{at: at, n: uint32(n)})
	}
	slices.SortFunc(list, func(a, b entry) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.n, b.n)) }) // a delta stands behind its base
	return list, "", nil
}

// end returns where the place of an object ends: where the next begins, or the sum of all.
func (p *Pack) end(list []entry, i int) int64 {
	if i+1 < len(list) {
		return list[i+1].at
	}
	return p.size - int64(p.format.size())
}

// compare notes which objects are those of known packs. What it cannot make out of one of those
// leaves an object unknown, no more.
func (p *Pack) compare(list []entry, known iter.Seq[*Pack], more func(n int64) error) error {
	if known == nil {
		return nil
	}
	byName := make([]uint32, len(list))
	for i, e := range list {
		byName[e.n] = uint32(i)
	}
	left := len(list)
	for o := range known {
		if err := more(0); err != nil {
			return err
		}
		if o.Count() > MaxEntries {
			continue
		}
		if twins, err := p.twins(list, byName, o, more); err != nil {
			return err
		} else if twins == 0 {
			continue
		}
		switch err := o.whole(more); {
		case errors.Is(err, ErrUnsealed), errors.Is(err, io.EOF):
			continue
		case err != nil:
			return err
		}
		n, err := p.equal(list, o, more)
		if err != nil {
			return err
		}
		if left -= n; left == 0 {
			break
		}
	}
	return nil
}

// twins notes where another pack has the objects of the same names, and returns how many of those
// are not known yet. Both have the names in order: if the other has not, some are not found.
func (p *Pack) twins(list []entry, byName []uint32, o *Pack, more func(n int64) error) (unknown int, err error) {
	theirs, m := "", int64(-1)
	for n, i := range byName {
		e := &list[i]
		e.twin = -1
		name, err := p.name(int64(n))
		if err == nil {
			err = more(0)
		}
		if err != nil {
			return 0, err
		}
		for theirs < name && m < o.Count() {
			m++
			if theirs, err = o.name(m); err != nil {
				return 0, err
			}
		}
		if theirs != name || m >= o.Count() {
			continue
		}
		if e.twin, err = o.offset(m); err != nil {
			return 0, err
		}
		if !e.known {
			unknown++
		}
	}
	return unknown, nil
}

// equal compares all objects with their twins, and returns how many became known.
func (p *Pack) equal(list []entry, o *Pack, more func(n int64) error) (n int, err error) {
	places := make([]int64, o.Count(), o.Count()+1)
	for n := range places {
		if places[n], err = o.offset(int64(n)); err != nil {
			return 0, err
		}
	}
	slices.Sort(places)
	places = append(places, o.size-int64(o.format.size()))
	a, b := &window{from: p.pack, size: 16 << 10}, &window{from: o.pack, size: 16 << 10}
	for i := range list {
		e := &list[i]
		if e.known || e.twin < 0 {
			continue
		}
		if err := more(0); err != nil {
			return n, err
		}
		k, _ := slices.BinarySearch(places, e.twin)
		one, other := place{a, e.at, p.end(list, i)}, place{b, e.twin, places[k+1]}
		back, theirs, same := one.head(&other)
		if same && back > 0 {
			// The twin of its base, whatever that is, has to be the base of its twin.
			k, is := slices.BinarySearchFunc(list[:i], e.at-back, func(e entry, at int64) int { return cmp.Compare(e.at, at) })
			same = is && list[k].twin >= 0 && list[k].twin == e.twin-theirs
		}
		if same && one.rest(&other) {
			e.known = true
			n++
		}
	}
	return n, nil
}

// A place is what is left to be compared of an object.
type place struct {
	in      *window
	at, end int64
}

// head compares what stands before the compressed bytes, and goes behind that. Of a delta of an
// object of its own pack it returns how far before it that lies, in each of the packs.
func (p *place) head(o *place) (back, theirs int64, same bool) {
	const most = 32
	a, err := p.in.at(p.at, int(min(most, p.end-p.at)))
	b, e := o.in.at(o.at, int(min(most, o.end-o.at)))
	if err != nil || e != nil {
		return 0, 0, false
	}
	n := 1 + slices.IndexFunc(a, func(c byte) bool { return c < 0x80 })
	if n == 0 || n > len(b) || !bytes.Equal(a[:n], b[:n]) {
		return 0, 0, false
	}
	size, other := n, n
	switch ObjectKind(a[0] >> 4 & 7) {
	case Commit, Tree, Blob, Tag, nameDelta:
	case offsetDelta:
		x, y := bytes.NewReader(a[n:]), bytes.NewReader(b[n:])
		back, err = offsetOf(x)
		theirs, e = offsetOf(y)
		if err != nil || e != nil || back <= 0 || theirs <= 0 {
			return 0, 0, false
		}
		size, other = len(a)-x.Len(), len(b)-y.Len()
	default:
		return 0, 0, false
	}
	p.at += int64(size)
	o.at += int64(other)
	return back, theirs, p.end-p.at == o.end-o.at
}

// rest compares all that is left.
func (p *place) rest(o *place) bool {
	for p.at < p.end {
		n := int(min(int64(p.in.size), p.end-p.at))
		a, err := p.in.at(p.at, n)
		b, e := o.in.at(o.at, n)
		if err != nil || e != nil || !bytes.Equal(a, b) {
			return false
		}
		p.at += int64(n)
		o.at += int64(n)
	}
	return true
}

// A window is a part of a file that has been read.
type window struct {
	from  io.ReaderAt
	size  int // 0 for 4096
	start int64
	have  []byte
	room  []byte
}

// at returns so many bytes, no more than the window has room for, until it is asked again.
func (w *window) at(at int64, n int) ([]byte, error) {
	if w.room == nil {
		if w.size == 0 {
			w.size = 4096
		}
		w.room = make([]byte, w.size)
	}
	if n < 0 || n > w.size || at < 0 {
		return nil, errObjectSyntax
	}
	if at < w.start || at+int64(n) > w.start+int64(len(w.have)) {
		w.start = at &^ 4095 // going back is as likely
		if at+int64(n) > w.start+int64(w.size) {
			w.start = at
		}
		read, err := w.from.ReadAt(w.room, w.start)
		w.have = w.room[:read]
		if at+int64(n) > w.start+int64(read) {
			w.have = nil
			return nil, cmp.Or(err, io.ErrUnexpectedEOF)
		}
	}
	return w.have[at-w.start:][:n], nil
}
