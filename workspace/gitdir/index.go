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
// more, as git does; of what git could take in another way than this, nothing is sound.

// IsIndex reports whether a file in a git directory is an index, or the part of one that is split.
func IsIndex(name string) bool { return name == "index" || strings.HasPrefix(name, "sharedindex.") }

// SoundIndex reports whether an index lists nothing but paths that git itself would put there.
func SoundIndex(b []byte, f vcs.Format) bool {
	_, _, ok := PlainIndex(b, f, nil)
	return ok
}

// A Staged is what an index says of a path, "" where it is the one of an entry that it shares.
type Staged struct {
	Path    string
	Mode    uint32
	ID      []byte // of the content
	Written bool   // git has once found that in the working tree, or put it there
}

func readIndex(b []byte, f vcs.Format, yield func(Staged)) (x vcs.Index, ok bool) {
	var order ordered
	var starts []uint32
	var whole []bool // of version 4, nothing is of the name before
	split := false   // names are missing, which another file has
	x, ok = vcs.ParseIndex(b, f, func(e *vcs.IndexEntry) bool {
		starts, whole = append(starts, uint32(e.From)), append(whole, e.Kept == 0)
		split = split || len(e.Name) == 0
		if !isMode(e.Mode) || len(e.Name) > 0 && (!soundPath(string(e.Name), e.Mode) || !order.next(e.Name, e.Stage)) {
			return false
		}
		if yield != nil {
			yield(Staged{string(e.Name), e.Mode, e.ID, e.Found})
		}
		return true
	})
	if !ok {
		return x, false
	}
	for _, p := range x.Parts {
		if p.Name == "IEOT" && !soundBlocks(x.Body[p.From+8:p.To], starts, whole) {
			return x, false
		}
	}
	// By this, at its very end, git finds the extensions before it has read the entries.
	if i := len(x.Body) - (8 + 4 + f.Digits()/2); i >= 0 && string(x.Body[i:i+4]) == "EOIE" && binary.BigEndian.Uint32(x.Body[i+8:]) != uint32(x.Entries) {
		return x, false
	}
	return x, !split || x.Part("link") != nil
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
	has = slices.ContainsFunc(x.Parts, func(p vcs.IndexPart) bool { return strings.Contains(computed, p.Name) })
	if !has {
		return b, false, true
	}
	plain = append(plain, b[:x.Entries]...)
	for _, p := range x.Parts {
		if !strings.Contains(computed, p.Name) {
			plain = append(plain, b[p.From:p.To]...)
		}
	}
	if f == vcs.FormatSHA256 {
		sum := sha256.Sum256(plain)
		return append(plain, sum[:]...), true, true
	}
	sum := sha1.Sum(plain)
	return append(plain, sum[:]...), true, true
}
