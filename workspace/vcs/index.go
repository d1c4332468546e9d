package vcs

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

var errIndexSyntax = errors.New("not a git index that is understood")

// A Format is the hash that a repository names its objects with.
type Format uint8

const (
	FormatSHA1 Format = iota
	FormatSHA256
)

func (f Format) size() int {
	if f == FormatSHA256 {
		return sha256.Size
	}
	return sha1.Size
}

// Digits is how long the name of an object is in hexadecimal digits.
func (f Format) Digits() int { return 2 * f.size() }

// BlobID returns the name that git gives a file's content.
func (f Format) BlobID(content []byte) string {
	return f.ID(Object{Kind: Blob, Body: content})
}

// ReadIndex looks up regular files in a git index, version 2 to 4
// (gitformat-index(5)): the answer has an entry for each path in want that is
// tracked, unmerged entries left out. The index is read once, in order, and
// its own checksum is not: the answer is compared with a file's content, which
// no damage and no forger makes equal by chance.
//
// A split index is an error, since what it does not list may stand in another file.
func ReadIndex(r io.Reader, f Format, want map[string]bool) (map[string]string, error) {
	found := make(map[string]string)
	var lengths [256]bool // most entries are told from what is wanted by this alone
	for path := range want {
		lengths[len(path)%256] = true
	}
	err := eachEntry(r, f, func(name []byte, mode uint32, flags uint16, oid []byte) {
		stage := flags >> 12 & 3
		if lengths[len(name)%256] && stage == 0 && mode>>12 == 0o10 && want[string(name)] {
			found[string(name)] = string(oid)
		}
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// IndexDigest tells what an index records from what another does, less what it
// remembers of the files' times and inodes: `git status` renews those. 0 is for
// what is not understood.
func IndexDigest(r io.Reader) uint64 {
	h := sha1.New()
	err := eachEntry(r, FormatSHA1, func(name []byte, mode uint32, flags uint16, oid []byte) {
		fmt.Fprintf(h, "%d %s%o %x %x\n", len(name), name, mode, flags&0xf000, oid)
	})
	if err != nil {
		return 0
	}
	return binary.BigEndian.Uint64(h.Sum(nil)) | 1
}

// EachStaged calls entry for each path that an index lists, with the mode and the name of
// its content; conflicts are listed up to three times. Of a split index, what it begins
// with is asked of shared, by the name of it in hexadecimal (`sharedindex.NAME`).
//
// It returns the path of a directory of which the index remembers another tree than what it
// lists there makes, if there is one; "." is for the root. An error of entry ends it.
func EachStaged(b []byte, f Format, shared func(id string) ([]byte, error), entry func(path string, mode uint32, id string) error) (forged string, err error) {
	list, tree, err := stagedIn(b, f, shared)
	if err != nil {
		return "", err
	}
	for i := range list {
		if err := entry(list[i].path, list[i].mode, list[i].id); err != nil {
			return "", err
		}
	}
	return forgedTree(list, tree, f)
}

// stagedIn returns what an index lists, and its extension "TREE".
func stagedIn(b []byte, f Format, shared func(id string) ([]byte, error)) (list []staged, tree []byte, err error) {
	room := MaxGitIndex // for names, of which version 4 says only how each differs from the last
	read := func(b []byte) (list []staged, ext extensions, err error) {
		list = make([]staged, 0, len(b)/(40+f.size()+2+8)) // no entry is smaller, few are much larger
		ext, err = entries(bytes.NewReader(b), f, func(name []byte, mode uint32, flags uint16, oid []byte) {
			if room -= len(name); room >= 0 {
				list = append(list, staged{string(name), mode, string(oid), flags >> 12 & 3})
			}
		})
		if room < 0 {
			return nil, ext, ErrLarge
		}
		return list, ext, err
	}
	own, ext, err := read(b)
	if err != nil {
		return nil, nil, err
	}
	if ext.link == nil || bytes.Equal(ext.link[:f.size()], make([]byte, f.size())) { // nothing is shared
		return own, ext.tree, nil
	}
	text, err := shared(hex.EncodeToString(ext.link[:f.size()]))
	if err != nil {
		return nil, nil, err
	}
	base, nested, err := read(text)
	if err != nil || nested.link != nil {
		return nil, nil, cmp.Or(err, errIndexSyntax)
	}
	gone, changed := make([]bool, len(base)), make([]bool, len(base))
	if rest := ext.link[f.size():]; len(rest) > 0 { // else neither
		if gone, rest, err = bitmap(rest, len(base)); err != nil {
			return nil, nil, err
		}
		if changed, _, err = bitmap(rest, len(base)); err != nil {
			return nil, nil, err
		}
	}
	for i, e := range base {
		if changed[i] { // by those without a name, in this order (merge_base_index of git's split-index.c, 2.51)
			if len(own) == 0 || own[0].path != "" {
				return nil, nil, errIndexSyntax
			}
			own[0].path = e.path
			e, own = own[0], own[1:]
		}
		if !gone[i] {
			list = append(list, e)
		}
	}
	list = append(list, own...)
	slices.SortStableFunc(list, func(a, b staged) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(a.stage, b.stage))
	})
	return list, ext.tree, nil
}

// A staged is an entry of an index.
type staged struct {
	path  string
	mode  uint32
	id    string
	stage uint16 // of a conflict, else 0
}

// forgedTree returns the path of a directory of which the extension "TREE" of an index
// (gitformat-index(5)) says another tree than what is listed there makes. Git commits by
// what it says, and shows in `diff --cached` what is listed.
func forgedTree(list []staged, ext []byte, f Format) (path string, err error) {
	said := map[string]string{}
	var read func(path string, depth int) error
	read = func(path string, depth int) error {
		name, rest, ok := bytes.Cut(ext, []byte{0})
		line, rest, ok2 := bytes.Cut(rest, []byte("\n"))
		count, below, ok3 := strings.Cut(string(line), " ")
		n, e := strconv.Atoi(count)
		kids, e2 := strconv.Atoi(below)
		if !ok || !ok2 || !ok3 || e != nil || e2 != nil || n >= 0 && len(rest) < f.size() || depth > maxName {
			return errIndexSyntax
		}
		if depth > 0 {
			path += string(name) + "/"
		}
		if n >= 0 {
			said[path], rest = string(rest[:f.size()]), rest[f.size():]
		}
		for ext = rest; kids > 0; kids-- {
			if err := read(path, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if len(ext) == 0 {
		return "", nil
	}
	if err := read("", 0); err != nil || len(said) == 0 {
		return "", err
	}
	forged := ""
	check := func(dir, id string, whole bool) {
		if said, ok := said[dir]; ok && (!whole || said != id) {
			forged = cmp.Or(strings.TrimSuffix(dir, "/"), ".")
		}
	}
	same := 0 // how far the path of the first entry is that of the one before
	// made returns the name of the tree that the first entries make which lie in a directory,
	// whose path is so long.
	var made func(dir int) (id string, whole bool)
	made = func(dir int) (id string, whole bool) {
		prefix := list[0].path[:dir]
		var body []byte
		whole = true
		for same = dir; len(list) > 0 && same >= dir; {
			e := list[0]
			name, below, deep := strings.Cut(e.path[dir:], "/")
			switch {
			case !deep || below == "" && e.mode>>12 == 0o4: // of a sparse index a directory
				whole = whole && e.stage == 0
				if list, same = list[1:], 0; len(list) > 0 {
					next := list[0].path
					for same < len(next) && same < len(e.path) && next[same] == e.path[same] {
						same++
					}
				}
			default:
				var all bool
				e.mode = 0o40000
				e.id, all = made(dir + len(name) + 1)
				whole = whole && all
			}
			body = strconv.AppendUint(body, uint64(e.mode), 8)
			body = append(append(append(append(body, ' '), name...), 0), e.id...)
		}
		id = f.ID(Object{Kind: Tree, Body: body})
		check(prefix, id, whole)
		return id, whole
	}
	if len(list) == 0 {
		check("", f.ID(Object{Kind: Tree}), true)
	} else {
		made(0)
	}
	return forged, nil
}

// bitmap reads so many bits, compressed as gitformat-bitmap(5) has it (EWAH), and returns
// which are set, and what follows.
func bitmap(b []byte, bits int) (set []bool, rest []byte, err error) {
	if len(b) < 8 {
		return nil, nil, errIndexSyntax
	}
	n := int64(binary.BigEndian.Uint32(b[4:]))
	if b = b[8:]; int64(len(b)) < n*8+4 {
		return nil, nil, errIndexSyntax
	}
	words, rest := b[:n*8], b[n*8+4:]
	set = make([]bool, bits)
	at := 0
	put := func(bit bool) bool {
		if bit && at >= bits || at >= bits+64 { // else each word could ask for as much work as all
			return false
		}
		if bit {
			set[at] = true
		}
		at++
		return true
	}
	for len(words) > 0 {
		head := binary.BigEndian.Uint64(words)
		words = words[8:]
		run, literals := int(head>>1&(1<<32-1)), int(head>>33)
		if run > bits/64+1 || literals*8 > len(words) {
			return nil, nil, errIndexSyntax
		}
		for range run * 64 {
			if !put(head&1 != 0 && at < bits) { // the last run may end beyond
				return nil, nil, errIndexSyntax
			}
		}
		for range literals {
			word := binary.BigEndian.Uint64(words)
			words = words[8:]
			for i := range 64 {
				if !put(word>>i&1 != 0) {
					return nil, nil, errIndexSyntax
				}
			}
		}
	}
	return set, rest, nil
}

// eachEntry calls entry for each entry of an index that is whole; the slices are valid
// until it returns.
func eachEntry(r io.Reader, f Format, entry func(name []byte, mode uint32, flags uint16, oid []byte)) error {
	ext, err := entries(r, f, entry)
	if err == nil && ext.link != nil {
		err = fmt.Errorf("split index: %w", errIndexSyntax)
	}
	return err
}

// extensions are two of those of an index; nil is for none.
type extensions struct {
	link []byte // it makes a split index
	tree []byte // the trees that are remembered
}

// entries is eachEntry, and returns the extensions.
func entries(r io.Reader, f Format, entry func(name []byte, mode uint32, flags uint16, oid []byte)) (ext extensions, err error) {
	b := bufio.NewReaderSize(r, 64<<10)
	var head [12]byte
	if _, err := io.ReadFull(b, head[:]); err != nil || string(head[:4]) != "DIRC" {
		return ext, errIndexSyntax
	}
	version := binary.BigEndian.Uint32(head[4:])
	if version < 2 || version > 4 {
		return ext, fmt.Errorf("version %d: %w", version, errIndexSyntax)
	}
	fixed := 40 + f.size() + 2
	name := make([]byte, 0, 4096)
	for n := binary.BigEndian.Uint32(head[8:]); n > 0; n-- {
		e, err := b.Peek(fixed)
		if err != nil {
			return ext, errIndexSyntax
		}
		mode := binary.BigEndian.Uint32(e[24:])
		flags := binary.BigEndian.Uint16(e[40+f.size():])
		size := fixed
		if version >= 3 && flags&0x4000 != 0 {
			size += 2
		}
		var oid [sha256.Size]byte // e is valid until the next read
		copy(oid[:], e[40:40+f.size()])
		if _, err := b.Discard(size); err != nil {
			return ext, errIndexSyntax
		}
		if version == 4 {
			// The name is the last one less so many bytes, and what follows.
			strip, err := offset(b)
			if err != nil || strip > len(name) {
				return ext, errIndexSyntax
			}
			name = name[:len(name)-strip]
		} else {
			name = name[:0]
		}
		if name, err = appendName(b, name); err != nil {
			return ext, err
		}
		if version < 4 {
			// One to eight NULs, of which one is read, make the size a
			// multiple of eight.
			if _, err := b.Discard(7 - (size+len(name))%8); err != nil {
				return ext, errIndexSyntax
			}
		}
		entry(name, mode, flags, oid[:f.size()])
	}
	for {
		e, err := b.Peek(f.size() + 8)
		if err != nil {
			return ext, nil // only the checksum is left
		}
		name, size := string(e[:4]), int(binary.BigEndian.Uint32(e[4:]))
		if _, err := b.Discard(8); err != nil {
			return ext, errIndexSyntax
		}
		if to := map[string]*[]byte{"link": &ext.link, "TREE": &ext.tree}[name]; to != nil {
			if *to != nil || name == "link" && size < f.size() || size > MaxGitIndex {
				return ext, errIndexSyntax
			}
			text := bytes.NewBuffer([]byte{})
			if n, err := io.CopyN(text, b, int64(size)); err != nil || n < int64(size) {
				return ext, errIndexSyntax
			}
			*to = text.Bytes()
		} else if _, err := b.Discard(size); err != nil {
			return ext, errIndexSyntax
		}
	}
}

// maxName bounds a path in an index.
const maxName = 1 << 16

// appendName appends what stands before the next NUL, and reads that too.
func appendName(b *bufio.Reader, name []byte) ([]byte, error) {
	for {
		part, err := b.ReadSlice(0)
		name = append(name, part...)
		switch {
		case len(name) > maxName:
			return nil, errIndexSyntax
		case err == nil:
			return bytes.TrimSuffix(name, []byte{0}), nil
		case err != bufio.ErrBufferFull:
			return nil, errIndexSyntax
		}
	}
}

// offset reads the number that version 4 puts before a name, in the encoding
// of offset deltas in packs.
func offset(b *bufio.Reader) (int, error) {
	n := 0
	for i := 0; ; i++ {
		c, err := b.ReadByte()
		if err != nil || i > 3 {
			return 0, errIndexSyntax
		}
		n = n<<7 | int(c&0x7f)
		if c < 0x80 {
			return n, nil
		}
		n++
	}
}
