package vcs

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The bytes that are read of a configuration of git, and of an index: of a larger one
// nothing is tracked, and nothing is sound.
const (
	MaxConfig   = 1 << 20
	MaxGitIndex = 256 << 20
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
	err := eachEntry(r, f, func(name []byte, mode uint32, flags uint16, oid []byte, written bool) {
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
	err := eachEntry(r, FormatSHA1, func(name []byte, mode uint32, flags uint16, oid []byte, written bool) {
		fmt.Fprintf(h, "%d %s%o %x %x\n", len(name), name, mode, flags&0xf000, oid)
	})
	if err != nil {
		return 0
	}
	return binary.BigEndian.Uint64(h.Sum(nil)) | 1
}

// eachEntry calls entry for each entry of an index that is whole; the slices are valid
// until it returns. Of what git has never written to the working tree, or found there, an
// entry has no time: it is not written.
func eachEntry(r io.Reader, f Format, entry func(name []byte, mode uint32, flags uint16, oid []byte, written bool)) error {
	ext, err := entries(r, f, entry)
	if err == nil && ext.link != nil {
		err = fmt.Errorf("split index: %w", errIndexSyntax)
	}
	return err
}

// extensions are some of those of an index; nil is for none.
type extensions struct {
	link []byte // it makes a split index
	end  []byte // where the entries end
	part []byte // where they can be read at once
}

// entries is eachEntry, and returns the extensions.
func entries(r io.Reader, f Format, entry func(name []byte, mode uint32, flags uint16, oid []byte, written bool)) (ext extensions, err error) {
	from := &counted{r: r}
	b := bufio.NewReaderSize(from, 64<<10)
	at := func() uint32 { return uint32(from.n - int64(b.Buffered())) }
	var starts []uint32
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
		starts = append(starts, at())
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
		written := binary.BigEndian.Uint64(e[8:]) != 0 // the file's time
		if _, err := b.Discard(size); err != nil {
			return ext, errIndexSyntax
		}
		if version == 4 {
			// The name is the last one less so many bytes, and what follows.
			strip, err := offset(b)
			if err != nil || strip > len(name) {
				return ext, errIndexSyntax
			}
			if strip < len(name) { // it cannot be read alone
				starts[len(starts)-1] = 0
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
		entry(name, mode, flags, oid[:f.size()], written)
	}
	end := at()
	for {
		e, err := b.Peek(f.size() + 8)
		if err != nil { // only the checksum is left
			if !ext.agree(starts, end) {
				err = errIndexSyntax
			} else {
				err = nil
			}
			return ext, err
		}
		name, size := string(e[:4]), int(binary.BigEndian.Uint32(e[4:]))
		if _, err := b.Discard(8); err != nil {
			return ext, errIndexSyntax
		}
		if to := map[string]*[]byte{"link": &ext.link, "EOIE": &ext.end, "IEOT": &ext.part}[name]; to != nil {
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

// agree reports whether git finds the same entries where it reads a large index at several
// places at once, by offsets of which one says where they end, and others where some begin
// and how many those are.
func (e *extensions) agree(starts []uint32, end uint32) bool {
	if e.end != nil && (len(e.end) < 4 || binary.BigEndian.Uint32(e.end) != end) {
		return false
	}
	if e.part == nil {
		return true
	}
	if len(e.part)%8 != 4 {
		return false
	}
	n := 0
	for part := e.part[4:]; len(part) > 0; part = part[8:] {
		if n >= len(starts) || starts[n] != binary.BigEndian.Uint32(part) {
			return false
		}
		n += int(binary.BigEndian.Uint32(part[4:]))
	}
	return n == len(starts)
}

// A counted reader counts what was read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
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

// HashOf returns by what the objects of a repository with this configuration are named,
// and whether there is no doubt of that.
func HashOf(config []byte) (f Format, known bool) {
	all, err := ParseConfig(config)
	if err != nil {
		return 0, false
	}
	said := ""
	for _, s := range all {
		if s.Name() != "extensions.objectformat" {
			continue
		}
		if said != "" && s.Value != said {
			return 0, false
		}
		said = s.Value
	}
	switch said {
	case "", "sha1":
		return FormatSHA1, true
	case "sha256":
		return FormatSHA256, true
	}
	return 0, false
}
