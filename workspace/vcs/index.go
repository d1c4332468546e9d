package vcs

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
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

// IsBlob reports whether git names a content so, in hexadecimal digits.
func IsBlob(content []byte, id string) bool {
	f := FormatSHA1
	if len(id) == FormatSHA256.Digits() {
		f = FormatSHA256
	}
	return hex.EncodeToString([]byte(f.BlobID(content))) == id
}

// EmptyTree is the name of a tree that lists nothing, which git knows without having it.
func (f Format) EmptyTree() string {
	if f == FormatSHA256 {
		return "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
	}
	return "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
}

// An Index is what a git index says of itself, version 2 to 4 (gitformat-index(5)).
type Index struct {
	Body    []byte // without the checksum
	Entries int    // where they end
	Parts   []IndexPart
}

// An IndexPart is an extension.
type IndexPart struct {
	Name     string
	From, To int // with its head of eight bytes
}

// Part returns what an extension holds; nil where there is none.
func (x *Index) Part(name string) []byte {
	for _, p := range x.Parts {
		if p.Name == name {
			return x.Body[p.From+8 : p.To]
		}
	}
	return nil
}

// An IndexEntry is an entry of an index. Its name and its ID are valid until the next is read.
type IndexEntry struct {
	From  int    // where it begins
	Kept  int    // how much of its name it has of the one before: of version 4
	Name  []byte // empty for one that another file has, of a split index
	Mode  uint32
	Stage uint16 // of a conflict, else 0
	ID    []byte // of the content
	Found bool   // git has once found that in the working tree, or put it there
}

const indexHead = 12

// ParseIndex reads an index entry by entry, as git does (do_read_index and create_from_disk of its read-cache.c, 2.51),
// and calls yield with each, until that is false. It is false for one that git could read in another way. The checksum
// is not looked at.
func ParseIndex(b []byte, f Format, yield func(*IndexEntry) bool) (x Index, ok bool) {
	size := f.size()
	const known = 0x6000 // the bits of the second flags that git knows
	if len(b) < indexHead+size || string(b[:4]) != "DIRC" {
		return x, false
	}
	version, n := binary.BigEndian.Uint32(b[4:]), int(binary.BigEndian.Uint32(b[8:]))
	body := b[:len(b)-size]
	if version < 2 || version > 4 || n > len(b)/(40+size) {
		return x, false
	}
	e, at := IndexEntry{}, indexHead
	for range n {
		from := at
		at += 40 + size
		if at+2 > len(body) {
			return x, false
		}
		flags := binary.BigEndian.Uint16(b[at:])
		if at += 2; flags&0x4000 != 0 {
			if version < 3 || at+2 > len(body) || binary.BigEndian.Uint16(b[at:])&^known != 0 {
				return x, false
			}
			at += 2
		}
		e.Kept = 0
		if version == 4 {
			strip, size := varint(body[at:])
			if size == 0 || strip > len(e.Name) {
				return x, false
			}
			at += size
			e.Kept = len(e.Name) - strip
		}
		end := bytes.IndexByte(body[at:], 0)
		if end < 0 {
			return x, false
		}
		e.Name = append(e.Name[:e.Kept], body[at:at+end]...)
		// The length stands in the flags too, as far as it has room there: git goes by that.
		if size := int(flags & 0xfff); len(e.Name) != size && (size < 0xfff || len(e.Name) < size) {
			return x, false
		}
		if at += end + 1; version < 4 {
			at = from + (at-from+7)&^7
		}
		if at > len(body) {
			return x, false
		}
		e.From, e.Mode, e.Stage = from, binary.BigEndian.Uint32(b[from+24:]), flags>>12&3
		e.ID, e.Found = b[from+40:from+40+size], binary.BigEndian.Uint64(b[from+8:]) != 0
		if !yield(&e) {
			return x, false
		}
	}
	x = Index{Body: body, Entries: at}
	for at+8 <= len(body) {
		size := int(binary.BigEndian.Uint32(body[at+4:]))
		if size > len(body)-at-8 {
			return x, false
		}
		x.Parts = append(x.Parts, IndexPart{string(body[at : at+4]), at, at + 8 + size})
		at += 8 + size
	}
	return x, true
}

// varint reads a number of version 4, and says how many bytes it has; none where it is longer than a name can be.
func varint(b []byte) (n, size int) {
	for i, c := range b[:min(len(b), 4)] {
		n = n<<7 | int(c&0x7f)
		if c < 0x80 {
			return n, i + 1
		}
		n++
	}
	return 0, 0
}

// ReadIndex looks up regular files in a git index: the answer has an entry for each path in want that is
// tracked, unmerged entries left out. It is compared with a file's content, which no damage and no forger makes
// equal by chance.
//
// A split index is an error, since what it does not list may stand in another file.
func ReadIndex(b []byte, f Format, want map[string]bool) (map[string]string, error) {
	found := make(map[string]string)
	var lengths [256]bool // most entries are told from what is wanted by this alone
	for path := range want {
		lengths[len(path)%256] = true
	}
	x, ok := ParseIndex(b, f, func(e *IndexEntry) bool {
		if lengths[len(e.Name)%256] && e.Stage == 0 && e.Mode>>12 == 0o10 && want[string(e.Name)] {
			found[string(e.Name)] = string(e.ID)
		}
		return true
	})
	switch {
	case !ok:
		return nil, errIndexSyntax
	case x.Part("link") != nil:
		return nil, fmt.Errorf("split index: %w", errIndexSyntax)
	}
	return found, nil
}

// IndexDigest tells what an index records from what another does, less what it
// remembers of the files' times and inodes: `git status` renews those. 0 is for
// what is not understood.
func IndexDigest(b []byte) uint64 {
	h := sha1.New()
	x, ok := ParseIndex(b, FormatSHA1, func(e *IndexEntry) bool {
		fmt.Fprintf(h, "%d %s%o %x %x\n", len(e.Name), e.Name, e.Mode, e.Stage, e.ID)
		return true
	})
	if !ok || x.Part("link") != nil {
		return 0
	}
	return binary.BigEndian.Uint64(h.Sum(nil)) | 1
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
