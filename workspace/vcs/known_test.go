package vcs

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/adler32"
	"hash/crc32"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A packed is an object in a pack that a test writes, or a forgery of one.
type packed struct {
	id       string
	text     string // what git should read
	bytes    []byte
	base     int   // of a delta: which of the others, else -1
	in       int   // it lies so many bytes within the one before, which has its bytes
	at       int64 // where it was written
	nameless bool  // no index has it
}

func entryHead(kind ObjectKind, size int) []byte {
	c := byte(kind)<<4 | byte(size&15)
	size >>= 4
	var b []byte
	for ; size > 0; size >>= 7 {
		b, c = append(b, c|0x80), byte(size&0x7f)
	}
	return append(b, c)
}

func blob(f Format, text string) packed {
	return packed{id: f.ID(Object{Blob, []byte(text)}), text: text, bytes: append(entryHead(Blob, len(text)), deflated(text)...), base: -1}
}

// deltaOf says that an object is another and more.
func deltaOf(f Format, base int, had, more string) packed {
	delta := string([]byte{byte(len(had)), byte(len(had) + len(more)), 0x90, byte(len(had)), byte(len(more))}) + more
	o := packed{id: f.ID(Object{Blob, []byte(had + more)}), text: had + more, base: base}
	o.bytes = []byte(delta)
	return o
}

// pack writes a pack and its index, and returns them less what they end with.
func pack(f Format, list []packed) (pack, index []byte) {
	pack = binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(named(list))))
	for i := range list {
		o := &list[i]
		if o.in > 0 {
			o.at = list[i-1].at + int64(o.in)
			continue
		}
		o.at = int64(len(pack))
		if o.base < 0 {
			pack = append(pack, o.bytes...)
			continue
		}
		pack = append(pack, entryHead(offsetDelta, len(o.bytes))...)
		back := int(o.at - list[o.base].at)
		far := []byte{byte(back & 0x7f)}
		for back >>= 7; back > 0; back >>= 7 {
			back--
			far = append([]byte{byte(back&0x7f) | 0x80}, far...)
		}
		pack = append(append(pack, far...), deflated(string(o.bytes))...)
	}
	return pack, indexOf(list)
}

func named(list []packed) []packed {
	return slices.DeleteFunc(slices.Clone(list), func(o packed) bool { return o.nameless })
}

func indexOf(list []packed) []byte {
	sorted := named(list)
	slices.SortFunc(sorted, func(a, b packed) int { return cmp.Compare(a.id, b.id) })
	index := []byte("\xfftOc\x00\x00\x00\x02")
	for i := range 256 {
		n := uint32(0)
		for _, o := range sorted {
			if int(o.id[0]) <= i {
				n++
			}
		}
		index = binary.BigEndian.AppendUint32(index, n)
	}
	for _, o := range sorted {
		index = append(index, o.id...)
	}
	for _, o := range sorted {
		index = binary.BigEndian.AppendUint32(index, crc32.ChecksumIEEE(o.bytes))
	}
	for _, o := range sorted {
		index = binary.BigEndian.AppendUint32(index, uint32(o.at))
	}
	return index
}

func (f Format) sealOf(pack, index []byte) (p, i []byte) {
	h := f.sum()
	h.Write(pack)
	p = h.Sum(pack[:len(pack):len(pack)])
	index = append(index[:len(index):len(index)], p[len(pack):]...)
	h = f.sum()
	h.Write(index)
	return p, h.Sum(index)
}

func opened(t *testing.T, f Format, pack, index []byte) *Pack {
	p, err := OpenPack(bytes.NewReader(index), bytes.NewReader(pack), int64(len(pack)), f)
	require.NoError(t, err)
	return p
}

// sealed opens a pack that ended so when it was known.
func sealed(f Format, pack, index, then []byte) (*Pack, error) {
	return OpenSealed(bytes.NewReader(index), bytes.NewReader(pack), int64(len(index)), int64(len(pack)), f, then[len(then)-SealSize:], asMuch)
}

func only(list ...*Pack) iter.Seq[*Pack] { return slices.Values(list) }

// forgedIn returns what of a pack is not what it should be, and how many objects were read.
func forgedIn(t *testing.T, p *Pack, known iter.Seq[*Pack]) (id string, read int) {
	id, err := p.Forged(known, 1<<20, func(string, int64) (Object, error) { return Object{}, io.EOF }, func(n int64) error {
		if n > 0 {
			read++
		}
		return nil
	})
	require.NoError(t, err)
	return id, read
}

// gitReads returns what git takes an object of a pack for.
func gitReads(t *testing.T, f Format, pack, index []byte, id string) string {
	dir := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := cmd.Output()
		require.NoError(t, err, "%v", args)
		return string(out)
	}
	git("init", "-q", "--object-format="+map[Format]string{FormatSHA1: "sha1", FormatSHA256: "sha256"}[f])
	at := filepath.Join(dir, ".git/objects/pack/pack-"+strings.Repeat("0", f.Digits()))
	require.NoError(t, os.WriteFile(at+".pack", pack, 0o600))
	require.NoError(t, os.WriteFile(at+".idx", index, 0o600))
	return git("cat-file", "blob", hex.EncodeToString([]byte(id)))
}

// before is the name next before another.
func before(id string) string {
	b := []byte(id)
	b[len(b)-1]--
	return string(b)
}

// inside is where what lies in a stored object begins, behind one byte.
const inside = 2 + 2 + 5 + 1

// stored is an object whose content is not compressed, so that another can lie in it, and which
// ends with the sum of another content if that is said.
func stored(f Format, text, instead string) packed {
	b := append(entryHead(Blob, len(text)), 0x78, 0x01, 0x01, byte(len(text)), byte(len(text)>>8), ^byte(len(text)), ^byte(len(text)>>8))
	b = append(b, text...)
	return packed{id: f.ID(Object{Blob, []byte(cmp.Or(instead, text))}), text: text, bytes: binary.BigEndian.AppendUint32(b, adler32.Checksum([]byte(text))), base: -1}
}

// What a known pack has need not be read, and what it has not is. That git takes each forgery
// for what it is named is the control.
func TestKnownPacks(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	for _, f := range []Format{FormatSHA1, FormatSHA256} {
		a, b, c := blob(f, "the one\n"), blob(f, "a base\n"), blob(f, "a bass\n")
		d, e := deltaOf(f, 1, "a base\n", "and more\n"), blob(f, strings.Repeat("long, ", 20_000))
		outer := stored(f, "x"+string(a.bytes)+"y", "")
		g := stored(f, "x"+string(c.bytes)+"y", outer.text)
		old := []packed{a, b, c, d, e, outer}
		theirs, index := f.sealOf(pack(f, old))
		hold, err := sealed(f, theirs, index, index)
		require.NoError(t, err)

		move := func(o packed, base int) packed { o.base = base; return o }
		nameless := func(o packed) packed { o.nameless = true; return o }
		wrong := func(o packed, text string) packed { n := blob(f, text); n.id = o.id; return n }
		for name, n := range map[string]struct {
			list   []packed
			mend   func(list []packed) // before the index is written
			forged string
			reads  string
			read   int
		}{
			"control: as they were":          {list: []packed{a, b, c, d, e}},
			"control: in another order":      {list: []packed{e, c, b, move(d, 2), a}},
			"control: one is new":            {list: []packed{e, b, move(d, 1), blob(f, "new\n")}, read: 1},
			"control: a delta of another":    {list: []packed{a, deltaOf(f, 0, "the one\n", "more\n"), b}, read: 1},
			"control: what was one is none":  {list: []packed{blob(f, d.text), b}, read: 1},
			"other bytes":                    {list: []packed{wrong(a, "the two\n"), b}, forged: a.id, reads: "the two\n"},
			"other bytes, of which a delta":  {list: []packed{a, wrong(b, "a bass\n"), move(d, 1)}, forged: b.id, reads: "a bass\n"},
			"bytes that are longer":          {list: []packed{wrong(a, "the one\nlonger"), b}, forged: a.id, reads: "the one\nlonger"},
			"another at the end of all":      {list: []packed{a, wrong(e, e.text[:len(e.text)-1]+".")}, forged: e.id, reads: e.text[:len(e.text)-1] + "."},
			"a delta of another":             {list: []packed{a, b, c, move(d, 2)}, forged: d.id, reads: "a bass\nand more\n"},
			"places that are exchanged":      {list: []packed{a, b, c}, mend: func(l []packed) { l[0].at, l[2].at = l[2].at, l[0].at }, forged: c.id, reads: "the one\n"},
			"a name that nobody has":         {list: []packed{{id: before(a.id), base: -1, bytes: a.bytes}}, forged: before(a.id), reads: a.text},
			"one that goes on in the next":   {list: []packed{g, {id: c.id, base: -1, in: inside}}, forged: outer.id, reads: g.text},
			"a place of two names":           {list: []packed{a, b, c}, mend: func(l []packed) { l[2].at = l[1].at }, forged: min(b.id, c.id), reads: "a base\n"},
			"a delta of what has no name":    {list: []packed{a, nameless(c), move(d, 1)}, forged: d.id, reads: "a bass\nand more\n"},
			"a kind that is another's":       {list: []packed{{id: a.id, base: -1, bytes: append(entryHead(Tag, len(a.text)), deflated(a.text)...)}, b}, forged: a.id},
			"a size that is another's":       {list: []packed{{id: e.id, base: -1, bytes: append(entryHead(Blob, 6), deflated("long, ")...)}, b}, forged: e.id, reads: "long, "},
			"a part of the one that is next": {list: []packed{stored(f, "x"+string(a.bytes)+"y", ""), {id: a.id, base: -1, text: a.text, in: inside}}, forged: f.ID(Object{Blob, []byte("x" + string(a.bytes) + "y")}), reads: "x" + string(a.bytes) + "y"},
		} {
			t.Run(fmt.Sprint(name, " ", f), func(t *testing.T) {
				theirs, _ := pack(f, n.list)
				if n.mend != nil {
					n.mend(n.list)
				}
				p, index := f.sealOf(theirs, indexOf(n.list))
				id, read := forgedIn(t, opened(t, f, p, index), only(hold))
				require.Equal(t, hex.EncodeToString([]byte(n.forged)), hex.EncodeToString([]byte(id)))
				if n.forged == "" {
					require.Equal(t, n.read, read)
				}
				if n.reads != "" {
					require.Equal(t, n.reads, gitReads(t, f, p, index, n.forged))
				}
			})
		}

		// Who is not what he was vouches for nothing. The control: with the seal that he has now he does.
		forgery := []packed{wrong(a, "the two\n"), b}
		p, i := f.sealOf(pack(f, forgery))
		require.Equal(t, "the two\n", gitReads(t, f, p, i, a.id))
		other, err := sealed(f, p, i, i)
		require.NoError(t, err)
		id, read := forgedIn(t, opened(t, f, p, i), only(other))
		require.Empty(t, id, "control")
		require.Zero(t, read, "control")
		_, err = sealed(f, p, i, index)
		require.ErrorIs(t, err, ErrUnsealed, "the index is another")
		again := bytes.Clone(index)
		at := len(index) - 2*f.size() - 4*len(old)
		copy(again[at:at+4], again[at+4:])
		_, err = sealed(f, theirs, again, index)
		require.ErrorIs(t, err, ErrUnsealed, "it was written in its place, less its end")
		copied := slices.Concat(theirs[:len(theirs)-1], []byte{theirs[len(theirs)-1] ^ 1}) // the pack's own sum is not asked
		other, err = sealed(f, copied, index, index)
		require.NoError(t, err)
		id, _ = forgedIn(t, opened(t, f, theirs, index), only(other))
		require.Empty(t, id)
		written := bytes.Replace(theirs, a.bytes, wrong(a, "the two\n").bytes, 1)
		require.Len(t, written, len(theirs), "in its place")
		other, err = sealed(f, written, index, index)
		require.NoError(t, err)
		id, read = forgedIn(t, opened(t, f, p, i), only(other))
		require.Equal(t, a.id, id)
		require.Equal(t, 1, read)
		id, read = forgedIn(t, opened(t, f, p, i), only(other, hold))
		require.Equal(t, a.id, id)
		require.Equal(t, 1, read, "and of the next only what is")
		short, err := sealed(f, theirs[:40], index, index)
		require.NoError(t, err)
		id, read = forgedIn(t, opened(t, f, theirs, index), only(short))
		require.Empty(t, id)
		require.Equal(t, len(old), read)

		// An object that reaches into the next has no end of its own: who is taken for sound in
		// spite of it vouches for another. So it is told of (above), whatever it is.
		inner := blob(f, "inner\n")
		outer = stored(f, "x"+string(inner.bytes)+"y", "")
		p, i = f.sealOf(pack(f, []packed{outer, {id: inner.id, base: -1, in: inside}}))
		id, _ = forgedIn(t, opened(t, f, p, i), nil)
		require.Equal(t, outer.id, id)
		other, err = sealed(f, p, i, i)
		require.NoError(t, err)
		instead := blob(f, "Inner\n")
		require.Len(t, instead.bytes, len(inner.bytes))
		evil := stored(f, "x"+string(instead.bytes)+"z", outer.text)
		p, i = f.sealOf(pack(f, []packed{evil, {id: instead.id, base: -1, in: inside}}))
		id, read = forgedIn(t, opened(t, f, p, i), only(other))
		require.Empty(t, id, "control")
		require.Equal(t, 1, read, "control")
		require.Equal(t, evil.text, gitReads(t, f, p, i, outer.id), "control")
	}
}
