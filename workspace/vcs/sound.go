package vcs

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// Git looks at the paths of an index when it makes the entries, and not when it reads
// them: `git restore .` writes each where it says, through `..` and into .git/hooks.
// So an index that a run has written is read once more, entry by entry as git does
// (do_read_index and create_from_disk of its read-cache.c, 2.51); of what git could
// take in another way than this, nothing is sound.

// WhyIndex says why an index is set aside.
const WhyIndex = "git would write outside of the working tree, or into .git, what it lists; git reset makes another"

// The bytes that are read of a configuration of git, and of an index: of a larger one
// nothing is tracked, and nothing is sound.
const (
	MaxConfig   = 1 << 20
	MaxGitIndex = 256 << 20
)

// IsIndex reports whether a file in a repository's own directory is an index, or the
// part of one that is split.
func IsIndex(name string) bool { return name == "index" || strings.HasPrefix(name, "sharedindex.") }

// MergeRR is the list of the files whose conflicts git remembers (git-rerere(1)). Where
// that is on, which a directory rr-cache makes it, each commit goes through the list: it
// copies a file into the repository when no conflict is left in it, and writes one that a
// known resolution fits, wherever the path leads. Git looks at none of them.
const MergeRR = "MERGE_RR"

// WhyRR says why such a list is set aside.
const WhyRR = "git would copy or write what it lists, which is no file of the working tree; git does without it"

// ListedRR returns the paths in such a list; false for what git itself does not write.
func ListedRR(b []byte) (paths []string, ok bool) {
	for len(b) > 0 {
		entry, rest, whole := bytes.Cut(b, []byte{0})
		_, path, tab := strings.Cut(string(entry), "\t")
		if !whole || !tab || !soundPath(path, 0) {
			return nil, false
		}
		paths = append(paths, path)
		b = rest
	}
	return paths, true
}

// SoundIndex reports whether an index lists nothing but paths that git itself would
// put there.
func SoundIndex(b []byte, f Format) bool {
	const head, known = 12, 0x6000 // the bits of the second flags that git knows
	if len(b) < head+f.size() || string(b[:4]) != "DIRC" {
		return false
	}
	version, n := binary.BigEndian.Uint32(b[4:]), int(binary.BigEndian.Uint32(b[8:]))
	body := b[:len(b)-f.size()]
	if version < 2 || version > 4 || n > len(b)/(40+f.size()) {
		return false
	}
	starts, whole := make([]uint32, n), make([]bool, n) // whole: of version 4, nothing is of the name before
	var name []byte
	split := false // names are missing, which another file has
	at := head
	for i := range n {
		starts[i] = uint32(at)
		from := at
		at += 40 + f.size()
		if at+2 > len(body) {
			return false
		}
		mode, flags := binary.BigEndian.Uint32(b[from+24:]), binary.BigEndian.Uint16(b[at:])
		if at += 2; flags&0x4000 != 0 {
			if version < 3 || at+2 > len(body) || binary.BigEndian.Uint16(b[at:])&^known != 0 {
				return false
			}
			at += 2
		}
		kept := 0
		if version == 4 {
			strip, size := varint(body[at:])
			if size == 0 || strip > len(name) {
				return false
			}
			at += size
			kept = len(name) - strip
		}
		end := bytes.IndexByte(body[at:], 0)
		if end < 0 {
			return false
		}
		name = append(name[:kept], body[at:at+end]...)
		// The length stands in the flags too, as far as it has room there: git goes by that.
		if size := int(flags & 0xfff); len(name) != size && (size < 0xfff || len(name) < size) {
			return false
		}
		whole[i] = kept == 0
		if at += end + 1; version < 4 {
			at = from + (at-from+7)&^7
		}
		if at > len(body) {
			return false
		}
		if len(name) == 0 {
			split = true
		} else if !soundPath(string(name), mode) {
			return false
		}
	}
	rest := body[at:]
	linked := false
	for len(rest) >= 8 {
		size := int(binary.BigEndian.Uint32(rest[4:]))
		if size > len(rest)-8 {
			return false
		}
		data := rest[8 : 8+size]
		switch string(rest[:4]) {
		case "link":
			linked = true
		case "IEOT":
			if !soundBlocks(data, starts, whole) {
				return false
			}
		}
		rest = rest[8+size:]
	}
	// By this, at its very end, git finds the extensions before it has read the entries.
	if i := len(body) - (8 + 4 + f.size()); i >= 0 && string(body[i:i+4]) == "EOIE" && binary.BigEndian.Uint32(body[i+8:]) != uint32(at) {
		return false
	}
	return linked || !split
}

// soundBlocks reports whether the table of blocks, from which several threads of git
// read the entries, says of them what they say themselves.
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

// varint reads a number of version 4, and says how many bytes it has; none where it is
// longer than a name can be.
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

// soundPath is verify_path of git.
func soundPath(path string, mode uint32) bool {
	if mode>>12 == 0o4 { // a directory of a sparse index
		path = strings.TrimSuffix(path, "/")
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." || strings.EqualFold(name, ".git") {
			return false
		}
	}
	return true
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
