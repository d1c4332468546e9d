package vcs

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
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
	var h hash.Hash = sha1.New()
	if f == FormatSHA256 {
		h = sha256.New()
	}
	fmt.Fprintf(h, "blob %d\x00", len(content))
	h.Write(content)
	return string(h.Sum(nil))
}

// EmptyTree is the name of a tree that lists nothing, which git knows without having it.
func (f Format) EmptyTree() string {
	if f == FormatSHA256 {
		return "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
	}
	return "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
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

// eachEntry calls entry for each entry of an index that is whole; the slices are valid
// until it returns.
func eachEntry(r io.Reader, f Format, entry func(name []byte, mode uint32, flags uint16, oid []byte)) error {
	link, err := entries(r, f, entry)
	if err == nil && link != nil {
		err = fmt.Errorf("split index: %w", errIndexSyntax)
	}
	return err
}

// entries is eachEntry, and returns what makes the index a split one, nil for one that is not.
func entries(r io.Reader, f Format, entry func(name []byte, mode uint32, flags uint16, oid []byte)) (link []byte, err error) {
	b := bufio.NewReaderSize(r, 64<<10)
	var head [12]byte
	if _, err := io.ReadFull(b, head[:]); err != nil || string(head[:4]) != "DIRC" {
		return nil, errIndexSyntax
	}
	version := binary.BigEndian.Uint32(head[4:])
	if version < 2 || version > 4 {
		return nil, fmt.Errorf("version %d: %w", version, errIndexSyntax)
	}
	fixed := 40 + f.size() + 2
	name := make([]byte, 0, 4096)
	for n := binary.BigEndian.Uint32(head[8:]); n > 0; n-- {
		e, err := b.Peek(fixed)
		if err != nil {
			return nil, errIndexSyntax
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
			return nil, errIndexSyntax
		}
		if version == 4 {
			// The name is the last one less so many bytes, and what follows.
			strip, err := offset(b)
			if err != nil || strip > len(name) {
				return nil, errIndexSyntax
			}
			name = name[:len(name)-strip]
		} else {
			name = name[:0]
		}
		if name, err = appendName(b, name); err != nil {
			return nil, err
		}
		if version < 4 {
			// One to eight NULs, of which one is read, make the size a
			// multiple of eight.
			if _, err := b.Discard(7 - (size+len(name))%8); err != nil {
				return nil, errIndexSyntax
			}
		}
		entry(name, mode, flags, oid[:f.size()])
	}
	for {
		e, err := b.Peek(f.size() + 8)
		if err != nil { // only the checksum is left
			return link, nil
		}
		name, size := string(e[:4]), int(binary.BigEndian.Uint32(e[4:]))
		if _, err := b.Discard(8); err != nil || size > MaxGitIndex {
			return nil, errIndexSyntax
		}
		if name == "link" {
			if size < f.size() {
				return nil, errIndexSyntax
			}
			text := bytes.NewBuffer(nil)
			if n, err := io.CopyN(text, b, int64(size)); err != nil || n < int64(size) {
				return nil, errIndexSyntax
			}
			link = text.Bytes()
		} else if _, err := b.Discard(size); err != nil {
			return nil, errIndexSyntax
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
