package vcs

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/zlib"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
)

// An ObjectKind says what git keeps under a name.
type ObjectKind uint8

// The kinds, by their numbers in packs (gitformat-pack(5)).
const (
	Commit ObjectKind = 1 + iota
	Tree
	Blob
	Tag
	_
	offsetDelta
	nameDelta
)

var kindNames = [...]string{Commit: "commit", Tree: "tree", Blob: "blob", Tag: "tag"}

// An Object is what git keeps under a name.
type Object struct {
	Kind ObjectKind
	Body []byte
}

var (
	errObjectSyntax = errors.New("not an object of git that is understood")
	// ErrLarge is for an object that is larger than was asked for.
	ErrLarge = errors.New("object is too large to be looked at")
)

// ID returns the name that git gives the object, which it does not compare with the name
// by which it reads one.
func (f Format) ID(o Object) string {
	h := f.hash(o.Kind, int64(len(o.Body)))
	h.Write(o.Body)
	return string(h.Sum(nil))
}

// hash begins the name of an object of so many bytes.
func (f Format) hash(kind ObjectKind, size int64) hash.Hash {
	h := f.sum()
	fmt.Fprintf(h, "%s %d\x00", kindNames[kind], size)
	return h
}

// sum begins a sum as names of objects and files of git have it.
func (f Format) sum() hash.Hash {
	if f == FormatSHA256 {
		return sha256.New()
	}
	return sha1.New()
}

// ParseID returns the name that a text says in hexadecimal digits, and of which format
// that is: the length tells.
func ParseID(text string) (id string, f Format, ok bool) {
	switch len(text) {
	case 2 * sha1.Size:
	case 2 * sha256.Size:
		f = FormatSHA256
	default:
		return "", 0, false
	}
	b, err := hex.DecodeString(text)
	return string(b), f, err == nil
}

// Loose reads an object that has a file of its own, of at most limit bytes.
func Loose(r io.Reader, limit int64) (o Object, err error) {
	kind, size, b, err := looseHead(r)
	if err != nil {
		return o, err
	}
	if size > limit {
		return o, ErrLarge
	}
	o.Kind = kind
	o.Body, err = exactly(b, size)
	return o, err
}

// looseHead reads what stands before the content.
func looseHead(r io.Reader) (kind ObjectKind, size int64, body *bufio.Reader, err error) {
	z, err := zlib.NewReader(r)
	if err != nil {
		return 0, 0, nil, errObjectSyntax
	}
	body = bufio.NewReaderSize(z, 4096)
	head, err := body.Peek(32) // one that is shorter has its end in it
	at := bytes.IndexByte(head, 0)
	if at < 0 {
		return 0, 0, nil, errObjectSyntax
	}
	name, digits, _ := strings.Cut(string(head[:at]), " ")
	for k := Commit; k <= Tag; k++ {
		if kindNames[k] == name {
			kind = k
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if kind == 0 || err != nil {
		return 0, 0, nil, errObjectSyntax
	}
	_, _ = body.Discard(at + 1)
	return kind, int64(n), body, nil
}

// exactly reads all that a reader has, and that must be so many bytes: memory is taken as
// they come, whatever is claimed.
func exactly(r io.Reader, size int64) ([]byte, error) {
	if size < 64<<10 {
		b := make([]byte, size+1)
		if _, err := io.ReadFull(r, b[:size]); err != nil {
			return nil, errObjectSyntax
		}
		if _, err := io.ReadFull(r, b[size:]); err != io.EOF {
			return nil, errObjectSyntax
		}
		return b[:size:size], nil
	}
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r, size+1))
	if err != nil || n != size {
		return nil, errObjectSyntax
	}
	return b.Bytes(), nil
}

// A TreeEntry is a line of a tree: a name in a directory.
type TreeEntry struct {
	Mode uint32 // as st_mode; 0160000 for a repository of its own
	Name string
	ID   string
}

// ParseTree returns what a tree lists; the strings are parts of one that has all of it.
func ParseTree(body []byte, f Format) ([]TreeEntry, error) {
	var list []TreeEntry
	for text := string(body); text != ""; {
		head, rest, ok := strings.Cut(text, "\x00")
		mode, name, named := strings.Cut(head, " ")
		n, err := strconv.ParseUint(mode, 8, 32)
		if !ok || !named || name == "" || err != nil || len(rest) < f.size() {
			return list, errObjectSyntax
		}
		list = append(list, TreeEntry{Mode: uint32(n), Name: name, ID: rest[:f.size()]})
		text = rest[f.size():]
	}
	return list, nil
}

// ParseCommit returns the tree and the parents of a commit, and when it was made: 0 where it does not say.
func ParseCommit(body []byte) (tree string, parents []string, when int64, err error) {
	for n := 0; ; n++ {
		line, rest, ok := bytes.Cut(body, []byte("\n"))
		key, value, _ := strings.Cut(string(line), " ")
		if n > 0 && key != "parent" {
			break
		}
		id, _, valid := ParseID(value)
		switch {
		case !ok || !valid || n == 0 && key != "tree":
			return "", nil, 0, errObjectSyntax
		case n == 0:
			tree = id
		default:
			parents = append(parents, id)
		}
		body = rest
	}
	head, _, _ := bytes.Cut(body, []byte("\n\n"))
	for line := range bytes.Lines(head) {
		if value, is := bytes.CutPrefix(line, []byte("committer ")); is {
			if words := bytes.Fields(value); len(words) > 1 {
				when, _ = strconv.ParseInt(string(words[len(words)-2]), 10, 64)
			}
			break
		}
	}
	return tree, parents, when, nil
}

// ParseTag returns what a tag is of.
func ParseTag(body []byte) (id string, err error) {
	line, _, _ := bytes.Cut(body, []byte("\n"))
	value, ok := strings.CutPrefix(string(line), "object ")
	id, _, valid := ParseID(value)
	if !ok || !valid {
		return "", errObjectSyntax
	}
	return id, nil
}

// A Pack is a file of many objects, with its index (gitformat-pack(5)), also of version 1,
// which git has not written since 1.6, and reads.
type Pack struct {
	index, pack io.ReaderAt
	size        int64 // of pack
	format      Format
	fan         [256]uint32 // how many names begin with at most this byte
	names       int64       // where the first name stands
	step        int64       // from one to the next
	old         bool        // version 1: offsets stand before the names

	// What is read next mostly lies beside what was.
	near  [2]window // of index: names, and offsets
	raw   *io.SectionReader
	body  *bufio.Reader // of raw
	plain io.ReadCloser // of zlib
}

// OpenPack reads the head of an index. Both are read later as well.
func OpenPack(index, pack io.ReaderAt, size int64, f Format) (*Pack, error) {
	p := &Pack{index: index, pack: pack, size: size, format: f, names: 8 + 4*256, step: int64(f.size())}
	p.near = [2]window{{from: index}, {from: index}}
	var head [8 + 4*256]byte
	if _, err := index.ReadAt(head[:], 0); err != nil {
		return nil, err
	}
	fan := head[8:]
	if string(head[:4]) != "\xfftOc" {
		p.old, fan, p.names, p.step = true, head[:], 4*256+4, int64(f.size()+4)
	} else if string(head[4:8]) != "\x00\x00\x00\x02" {
		return nil, fmt.Errorf("index of a pack: %w", errObjectSyntax)
	}
	for i := range p.fan {
		p.fan[i] = binary.BigEndian.Uint32(fan[4*i:])
		if i > 0 && p.fan[i] < p.fan[i-1] {
			return nil, fmt.Errorf("index of a pack: %w", errObjectSyntax)
		}
	}
	return p, nil
}

// Find returns where the pack has an object, -1 if it has none of the name.
func (p *Pack) Find(id string) (at int64, err error) {
	n, name, err := p.search(id)
	if err != nil || name != id {
		return -1, err
	}
	return p.offset(n)
}

// offset returns where the pack has the object whose name stands at a place.
func (p *Pack) offset(n int64) (at int64, err error) {
	// In version 2 sums of 4 bytes follow the names, offsets of 4, and those of 8 that these lead to.
	all := int64(p.fan[255])
	from := p.names + all*(p.step+4) + n*4
	if p.old {
		from = p.names + n*p.step - 4
	}
	b, err := p.near[1].at(from, 4)
	if err != nil {
		return -1, err
	}
	short := binary.BigEndian.Uint32(b)
	if p.old || short>>31 == 0 {
		return int64(short), nil
	}
	b = make([]byte, 8)
	if _, err := p.index.ReadAt(b, p.names+all*(p.step+8)+int64(short&0x7fffffff)*8); err != nil {
		return -1, err
	}
	return int64(binary.BigEndian.Uint64(b) & (1<<63 - 1)), nil
}

// search returns the first name that is not before another, "" where there is none.
func (p *Pack) search(id string) (n int64, name string, err error) {
	low, high := int64(0), int64(p.fan[id[0]])
	if id[0] > 0 {
		low = int64(p.fan[id[0]-1])
	}
	for low < high {
		mid := low + (high-low)/2
		name, err := p.name(mid)
		if err != nil {
			return 0, "", err
		}
		switch { // as git does, which meets another name first where they are in no order
		case name == id:
			return mid, name, nil
		case name < id:
			low = mid + 1
		default:
			high = mid
		}
	}
	name, err = p.name(low)
	return low, name, err
}

// name returns the name at a place, "" beyond the last.
func (p *Pack) name(n int64) (string, error) {
	if n >= int64(p.fan[255]) {
		return "", nil
	}
	b, err := p.near[0].at(p.names+n*p.step, p.format.size())
	return string(b), err
}

// maxDeltas is the longest chain of deltas that git makes (pack-objects.h), and maxSteps
// how many times the limit of an object what they make of each other may be.
const (
	maxDeltas = 4095
	maxSteps  = 16
)

// Read returns the object that the pack has at an offset, of at most limit bytes; base is
// asked for one that a delta names and that may be in another pack, of at most so many
// bytes, and more before each step, which may take as long as what the limit allows.
func (p *Pack) Read(at, limit int64, base func(id string, limit int64) (Object, error), more func() error) (o Object, err error) {
	var deltas [][]byte // the outermost first
	var held int64
	for o.Body == nil {
		kind, size, body, err := p.head(at)
		if err != nil {
			return o, err
		}
		if held += size; held > limit {
			return o, ErrLarge
		}
		if err := more(); err != nil {
			return o, err
		}
		var back int64
		var name string
		switch kind {
		case Commit, Tree, Blob, Tag:
			o.Kind = kind
		case offsetDelta:
			if back, err = offsetOf(body); err != nil || back <= 0 || back >= at {
				return o, errObjectSyntax
			}
		case nameDelta:
			id := make([]byte, p.format.size())
			if _, err := io.ReadFull(body, id); err != nil {
				return o, errObjectSyntax
			}
			name = string(id)
		default:
			return o, errObjectSyntax
		}
		b, err := p.inflate(body, size)
		if err != nil {
			return o, err
		}
		if o.Kind != 0 {
			o.Body = b
			break
		}
		if deltas = append(deltas, b); len(deltas) > maxDeltas {
			return o, ErrLarge
		}
		if name != "" {
			if o, err = base(name, limit-held); err != nil { // all deltas are held until then
				return o, err
			}
			break
		}
		at -= back
	}
	made := int64(0)
	for i := len(deltas) - 1; i >= 0; i-- {
		if err := more(); err != nil {
			return o, err
		}
		if o.Body, err = undelta(o.Body, deltas[i], limit); err != nil {
			return o, err
		}
		if made += int64(len(o.Body)); made > maxSteps*limit {
			return o, ErrLarge
		}
	}
	return o, nil
}

// head reads what stands before an object's compressed bytes.
func (p *Pack) head(at int64) (kind ObjectKind, size int64, body *bufio.Reader, err error) {
	if at < 12 || at >= p.size {
		return 0, 0, nil, errObjectSyntax
	}
	if p.raw == nil {
		p.raw = io.NewSectionReader(p.pack, 0, p.size)
		p.body = bufio.NewReaderSize(p.raw, 4096)
	}
	_, _ = p.raw.Seek(at, io.SeekStart)
	body = p.body
	body.Reset(p.raw)
	c, err := body.ReadByte()
	if err != nil {
		return 0, 0, nil, err
	}
	kind, size = ObjectKind(c>>4&7), int64(c&15)
	for shift := 4; c&0x80 != 0; shift += 7 {
		if c, err = body.ReadByte(); err != nil || shift > 50 {
			return 0, 0, nil, errObjectSyntax
		}
		size |= int64(c&0x7f) << shift
	}
	return kind, size, body, nil
}

// inflate returns the bytes that are compressed there.
func (p *Pack) inflate(body *bufio.Reader, size int64) ([]byte, error) {
	var err error
	if p.plain == nil {
		p.plain, err = zlib.NewReader(body)
	} else {
		err = p.plain.(zlib.Resetter).Reset(body, nil)
	}
	if err != nil {
		return nil, errObjectSyntax
	}
	return exactly(p.plain, size)
}

// offsetOf reads how far before an object the one lies of which it is a delta.
func offsetOf(r io.ByteReader) (n int64, err error) {
	for i := 0; ; i++ {
		c, err := r.ReadByte()
		if err != nil || i > 7 {
			return 0, errObjectSyntax
		}
		n = n<<7 | int64(c&0x7f)
		if c < 0x80 {
			return n, nil
		}
		n++
	}
}

// undelta returns what a delta makes of an object.
func undelta(base, delta []byte, limit int64) ([]byte, error) {
	had, delta, ok := deltaSize(delta)
	size, delta, also := deltaSize(delta)
	if !ok || !also || had != int64(len(base)) {
		return nil, errObjectSyntax
	}
	if size > limit {
		return nil, ErrLarge
	}
	var out []byte
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		var part []byte
		switch {
		case op&0x80 != 0: // a part of the base
			var at, n int
			for i := range 7 {
				if op>>i&1 == 0 {
					continue
				}
				if len(delta) == 0 {
					return nil, errObjectSyntax
				}
				if i < 4 {
					at |= int(delta[0]) << (8 * i)
				} else {
					n |= int(delta[0]) << (8 * (i - 4))
				}
				delta = delta[1:]
			}
			if n == 0 {
				n = 0x10000
			}
			if at > len(base) || n > len(base)-at {
				return nil, errObjectSyntax
			}
			part = base[at : at+n]
		case op == 0 || int(op) > len(delta):
			return nil, errObjectSyntax
		default:
			part, delta = delta[:op], delta[op:]
		}
		if int64(len(out)+len(part)) > size {
			return nil, errObjectSyntax
		}
		out = append(out, part...)
	}
	if int64(len(out)) != size {
		return nil, errObjectSyntax
	}
	return out, nil
}

// deltaSize reads a size as deltas have it, the lowest bits first.
func deltaSize(b []byte) (n int64, rest []byte, ok bool) {
	for shift := 0; shift <= 56; shift += 7 {
		if len(b) == 0 {
			return 0, nil, false
		}
		c := b[0]
		b = b[1:]
		n |= int64(c&0x7f) << shift
		if c < 0x80 {
			return n, b, true
		}
	}
	return 0, nil, false
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
