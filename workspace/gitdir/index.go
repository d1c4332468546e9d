package gitdir

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// Git looks at the paths of an index when it makes the entries, and not when it reads them: `git restore .`
// writes each where it says, through `..` and into .git/hooks. So an index that a run has written is read once
// more, entry by entry as git does (do_read_index and create_from_disk of its read-cache.c, 2.51); of what git
// could take in another way than this, nothing is sound.

// IsIndex reports whether a file in a git directory is an index, or the part of one that is split.
func IsIndex(name string) bool { return name == "index" || strings.HasPrefix(name, "sharedindex.") }

// SoundIndex reports whether an index lists nothing but paths that git itself would put there.
func SoundIndex(b []byte, f vcs.Format) bool {
	_, _, ok := PlainIndex(b, f, nil)
	return ok
}

// An index is where the parts of one lie.
type index struct {
	entries int // where they end
	parts   []part
}

// A part is an extension.
type part struct {
	name     string
	from, to int // with its head
}

const indexHead = 12

// A Staged is what an index says of a path, "" where it is the one of an entry that it shares.
type Staged struct {
	Path    string
	Mode    uint32
	ID      []byte // of the content
	Written bool   // git has once found that in the working tree, or put it there
}

func readIndex(b []byte, f vcs.Format, yield func(Staged)) (x index, ok bool) {
	size := f.Digits() / 2
	const known = 0x6000 // the bits of the second flags that git knows
	if len(b) < indexHead+size || string(b[:4]) != "DIRC" {
		return x, false
	}
	version, n := binary.BigEndian.Uint32(b[4:]), int(binary.BigEndian.Uint32(b[8:]))
	body := b[:len(b)-size]
	if version < 2 || version > 4 || n > len(b)/(40+size) {
		return x, false
	}
	var order ordered
	starts, whole := make([]uint32, n), make([]bool, n) // whole: of version 4, nothing is of the name before
	var name []byte
	split := false // names are missing, which another file has
	at := indexHead
	for i := range n {
		starts[i] = uint32(at)
		from := at
		at += 40 + size
		if at+2 > len(body) {
			return x, false
		}
		mode, flags := binary.BigEndian.Uint32(b[from+24:]), binary.BigEndian.Uint16(b[at:])
		if at += 2; flags&0x4000 != 0 {
			if version < 3 || at+2 > len(body) || binary.BigEndian.Uint16(b[at:])&^known != 0 {
				return x, false
			}
			at += 2
		}
		kept := 0
		if version == 4 {
			strip, size := varint(body[at:])
			if size == 0 || strip > len(name) {
				return x, false
			}
			at += size
			kept = len(name) - strip
		}
		end := bytes.IndexByte(body[at:], 0)
		if end < 0 {
			return x, false
		}
		name = append(name[:kept], body[at:at+end]...)
		// The length stands in the flags too, as far as it has room there: git goes by that.
		if size := int(flags & 0xfff); len(name) != size && (size < 0xfff || len(name) < size) {
			return x, false
		}
		whole[i] = kept == 0
		if at += end + 1; version < 4 {
			at = from + (at-from+7)&^7
		}
		if at > len(body) || !isMode(mode) {
			return x, false
		}
		switch {
		case len(name) == 0:
			split = true
		case !soundPath(string(name), mode), !order.next(name, flags>>12&3):
			return x, false
		}
		if yield != nil {
			yield(Staged{string(name), mode, b[from+40 : from+40+size], binary.BigEndian.Uint64(b[from+8:]) != 0})
		}
	}
	x.entries = at
	linked := false
	for at+8 <= len(body) {
		size := int(binary.BigEndian.Uint32(body[at+4:]))
		if size > len(body)-at-8 {
			return x, false
		}
		p := part{string(body[at : at+4]), at, at + 8 + size}
		switch p.name {
		case "link":
			linked = true
		case "IEOT":
			if !soundBlocks(body[at+8:p.to], starts, whole) {
				return x, false
			}
		}
		x.parts = append(x.parts, p)
		at = p.to
	}
	// By this, at its very end, git finds the extensions before it has read the entries.
	if i := len(body) - (8 + 4 + size); i >= 0 && string(body[i:i+4]) == "EOIE" && binary.BigEndian.Uint32(body[i+8:]) != uint32(x.entries) {
		return x, false
	}
	return x, linked || !split
}

// isMode reports whether an entry is what git makes: a file, a link, a submodule, a directory of a sparse index.
func isMode(mode uint32) bool {
	switch mode {
	case 0o100644, 0o100755, 0o120000, 0o160000, 0o040000:
		return true
	}
	return false
}

// An ordered list goes through the entries of an index, and finds those that are out of order, twice there, or
// lie below a file.
type ordered struct {
	last  []byte
	stage uint16
	files [][]byte // of stage 0, each of which the last name begins with
}

func (o *ordered) next(name []byte, stage uint16) bool {
	if c := bytes.Compare(o.last, name); c > 0 || c == 0 && o.stage >= stage && o.last != nil {
		return false
	}
	o.last, o.stage = bytes.Clone(name), stage
	if stage != 0 {
		return true
	}
	for len(o.files) > 0 && !bytes.HasPrefix(name, o.files[len(o.files)-1]) {
		o.files = o.files[:len(o.files)-1]
	}
	for _, file := range o.files { // a directory of a sparse index ends in a slash
		if name[len(file)] == '/' || file[len(file)-1] == '/' {
			return false
		}
	}
	o.files = append(o.files, o.last)
	return true
}

// soundBlocks reports whether the table of blocks, from which several threads of git read the entries, says of
// them what they say themselves.
func soundBlocks(table []byte, starts []uint32, whole []bool) bool {
	if len(table)%8 != 4 || binary.BigEndian.Uint32(table) != 1 {
		return false
	}
	n := 0
	for table = table[4:]; len(table) > 0; table = table[8:] {
		offset, count := binary.BigEndian.Uint32(table), int(binary.BigEndian.Uint32(table[4:]))
		if count > len(starts)-n || count > 0 && (starts[n] != offset || !whole[n] && n > 0) {
			return false
		}
		n += count
	}
	return n == len(starts)
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

// soundPath is verify_path of git, for all platforms.
func soundPath(path string, mode uint32) bool {
	if mode == 0o040000 {
		path = strings.TrimSuffix(path, "/")
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." || isDotGit(name) {
			return false
		}
	}
	return true
}

// isDotGit reports whether some platform takes a name for .git: Windows leaves out blanks, points and streams
// at its end, and knows a short name; macOS leaves out characters that are not seen (path.c and utf8.c of git).
func isDotGit(name string) bool {
	if !strings.ContainsAny(name, "gG") {
		return false
	}
	seen := strings.Map(func(r rune) rune {
		if r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff {
			return -1
		}
		return r
	}, name)
	if strings.EqualFold(seen, ".git") {
		return true
	}
	name, _, _ = strings.Cut(name, ":")
	name, _, _ = strings.Cut(name, `\`)
	name = strings.TrimRight(name, " .")
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
}

// computed are the extensions that git computes again from the entries.
const computed = "TREE REUC UNTR FSMN EOIE IEOT"

// PlainIndex returns an index that is sound without the extensions that git computes; has says that it had some. It
// calls yield, where there is one, with each entry; in a split index some have no name.
func PlainIndex(b []byte, f vcs.Format, yield func(Staged)) (plain []byte, has, sound bool) {
	x, ok := readIndex(b, f, yield)
	if !ok {
		return nil, false, false
	}
	has = slices.ContainsFunc(x.parts, func(p part) bool { return strings.Contains(computed, p.name) })
	if !has {
		return b, false, true
	}
	plain = append(plain, b[:x.entries]...)
	for _, p := range x.parts {
		if !strings.Contains(computed, p.name) {
			plain = append(plain, b[p.from:p.to]...)
		}
	}
	if f == vcs.FormatSHA256 {
		sum := sha256.Sum256(plain)
		return append(plain, sum[:]...), true, true
	}
	sum := sha1.Sum(plain)
	return append(plain, sum[:]...), true, true
}
