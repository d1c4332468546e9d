package vcs

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func deflated(text string) []byte {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.Bytes()
}

func TestLoose(t *testing.T) {
	o, err := Loose(bytes.NewReader(deflated("blob 5\x00hello")), 5)
	require.NoError(t, err)
	require.Equal(t, Object{Kind: Blob, Body: []byte("hello")}, o)
	_, err = Loose(bytes.NewReader(deflated("blob 5\x00hello")), 4)
	require.ErrorIs(t, err, ErrLarge)
	for _, text := range []string{"", "blob 5\x00hell", "blob 5\x00hello!", "blob\x00", "blub 1\x00x", "blob -1\x00", "blob 99999999999999999999\x00", "blob 5 hello, and more than is looked at"} {
		_, err := Loose(bytes.NewReader(deflated(text)), 1<<20)
		require.ErrorIs(t, err, errObjectSyntax, "%q", text)
	}
	_, err = Loose(strings.NewReader("not deflated"), 5)
	require.ErrorIs(t, err, errObjectSyntax)
}

func TestParseCommit(t *testing.T) {
	a, b := strings.Repeat("a", 40), strings.Repeat("b", 40)
	bin := func(s string) string { x, _ := hex.DecodeString(s); return string(x) }
	tree, parents, when, err := ParseCommit([]byte("tree " + a + "\nparent " + b + "\nparent " + a + "\nauthor x\ncommitter x <x@x> 1700000000 +0100\n\nparent " + b + "\n"))
	require.NoError(t, err)
	require.Equal(t, int64(1700000000), when)
	require.Equal(t, bin(a), tree)
	require.Equal(t, []string{bin(b), bin(a)}, parents)
	for _, text := range []string{"", "tree " + a, "tree x\n", "parent " + a + "\n", "tree " + a + "\nparent x\n"} {
		_, _, _, err := ParseCommit([]byte(text))
		require.ErrorIs(t, err, errObjectSyntax, "%q", text)
	}
	id, err := ParseTag([]byte("object " + a + "\ntype commit\n"))
	require.NoError(t, err)
	require.Equal(t, bin(a), id)
	_, err = ParseTag([]byte("tree " + a + "\n"))
	require.ErrorIs(t, err, errObjectSyntax)
	for _, body := range []string{"100644 x", "100644 x\x00short", "100644\x00" + strings.Repeat("x", 20), "9 x\x00" + strings.Repeat("x", 20), "100644 \x00" + strings.Repeat("x", 20)} {
		_, err := ParseTree([]byte(body), FormatSHA1)
		require.ErrorIs(t, err, errObjectSyntax, "%q", body)
	}
}

func TestUndelta(t *testing.T) {
	base := []byte("hello, world")
	out, err := undelta(base, []byte("\x0c\x08\x90\x05\x03abc"), 8)
	require.NoError(t, err)
	require.Equal(t, "helloabc", string(out))
	_, err = undelta(base, []byte("\x0c\x08\x90\x05\x03abc"), 7)
	require.ErrorIs(t, err, ErrLarge)
	for _, delta := range []string{"", "\x0c", "\x0b\x05\x90\x05", "\x0c\x05\x90", "\x0c\x05\x00", "\x0c\x05\x90\x0d", "\x0c\x05\x91\x0c\x05", "\x0c\x05\x03ab", "\x0c\x04\x90\x05", "\x0c\x06\x90\x05", "\x0c\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"} {
		_, err := undelta(base, []byte(delta), 1<<20)
		require.Error(t, err, "%q", delta)
	}
}

// What git has in a pack is read as git reads it, from both kinds of deltas.
func TestPackAsGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	for _, c := range []struct {
		hash, base string
		f          Format
	}{{"sha1", "true", FormatSHA1}, {"sha1", "false", FormatSHA1}, {"sha256", "true", FormatSHA256}} {
		dir := t.TempDir()
		git := func(args ...string) []byte {
			cmd := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x", "-c", "repack.useDeltaBaseOffset=" + c.base, "-C", dir}, args...)...)
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
			out, err := cmd.Output()
			require.NoError(t, err, "%v", args)
			return out
		}
		git("init", "-q", "--object-format="+c.hash)
		var text strings.Builder
		for i := range 60 {
			fmt.Fprintln(&text, strings.Repeat("line ", i), i)
			require.NoError(t, os.WriteFile(fmt.Sprintf("%s/f%d", dir, i%7), []byte(text.String()), 0o600))
			git("add", ".")
			git("commit", "-q", "-m", "x")
		}
		git("tag", "-a", "-m", "x", "x")
		git("repack", "-q", "-a", "-d", "-f", "--depth=50", "--window=50")
		packs, err := filepath.Glob(dir + "/.git/objects/pack/*.pack")
		require.NoError(t, err)
		require.Len(t, packs, 1)
		require.Regexp(t, `chain length = [5-9]`, string(git("verify-pack", "-v", packs[0])), "control: there are deltas")
		p := openPack(t, packs[0], c.f)
		n := 0
		var read func(id string) (Object, error)
		read = func(id string) (Object, error) {
			at, err := p.Find(id)
			if err != nil || at < 0 {
				return Object{}, errors.New("not there")
			}
			return p.Read(at, 1<<20, func(id string, _ int64) (Object, error) { return read(id) }, func() error { return nil })
		}
		for line := range strings.Lines(string(git("cat-file", "--batch-all-objects", "--batch-check"))) {
			words := strings.Fields(line)
			id, f, ok := ParseID(words[0])
			require.True(t, ok && f == c.f)
			o, err := read(id)
			require.NoError(t, err, line)
			require.Equal(t, words[1], kindNames[o.Kind])
			require.Equal(t, id, c.f.ID(o))
			n++
		}
		require.Greater(t, n, 150)
		at, err := p.Find(strings.Repeat("\x00", c.f.size()))
		require.NoError(t, err)
		require.EqualValues(t, -1, at)
	}
}

func openPack(t *testing.T, path string, f Format) *Pack {
	pack, err := os.Open(path)
	require.NoError(t, err)
	index, err := os.Open(strings.TrimSuffix(path, ".pack") + ".idx")
	require.NoError(t, err)
	t.Cleanup(func() { pack.Close(); index.Close() })
	st, err := pack.Stat()
	require.NoError(t, err)
	p, err := OpenPack(index, pack, st.Size(), f)
	require.NoError(t, err)
	return p
}

func FuzzObject(f *testing.F) {
	f.Add([]byte("100644 x\x00aaaaaaaaaaaaaaaaaaaa"))
	f.Add([]byte("tree " + strings.Repeat("a", 40) + "\nparent " + strings.Repeat("b", 40) + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _, _ = ParseCommit(b)
		_, _ = ParseTag(b)
		_, _ = Loose(bytes.NewReader(b), 1<<16)
		list, err := ParseTree(b, FormatSHA1)
		var again []byte
		for _, e := range list {
			again = append(append(fmt.Appendf(again, "%o %s", e.Mode, e.Name), 0), e.ID...)
		}
		if err == nil && len(again) > len(b) { // modes may have zeros before them
			t.Fatalf("%q: %v", b, list)
		}
	})
}

func FuzzPack(f *testing.F) {
	f.Add([]byte("\x95\x01x"), []byte("\x0c\x08\x90\x05\x03abc"), int64(12))
	f.Fuzz(func(t *testing.T, b, delta []byte, at int64) {
		const limit = 1 << 16
		if out, err := undelta(b, delta, limit); err == nil && len(out) > limit {
			t.Fatalf("%d bytes", len(out))
		}
		if p, err := OpenPack(bytes.NewReader(b), bytes.NewReader(delta), int64(len(delta)), FormatSHA1); err == nil {
			_, _ = p.Find(strings.Repeat("a", 20))
		}
		p := &Pack{pack: bytes.NewReader(append(b, delta...)), size: int64(len(b) + len(delta))}
		o, err := p.Read(at, limit, func(string, int64) (Object, error) { return Object{Kind: Blob, Body: []byte("hello, world")}, nil }, func() error { return nil })
		if err == nil && (len(o.Body) > limit || o.Kind == 0) {
			t.Fatalf("%d bytes of kind %d", len(o.Body), o.Kind)
		}
	})
}

// What an index lists is what git says that it does, also where it is split: entries of the
// part that is shared stay, change, go, and others come.
func TestEachStaged(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		for _, version := range []string{"2", "4"} {
			for name, then := range map[string]string{
				"whole":          "",
				"split":          "git update-index --split-index",
				"with new ones":  "git update-index --split-index; echo new > new; echo a > aa; git add new aa",
				"in all ways":    "git update-index --split-index; echo new > new; echo other > f7; chmod +x f70; git add .; git rm -q --cached f3 f64 f65 f199",
				"many changed":   "git update-index --split-index; git config splitIndex.maxPercentChange 100; for i in $(seq 20 190); do echo x > f$i; done; git add .; git rm -q --cached $(seq -f f%g 1 15)",
				"shared by none": "git update-index --split-index; git read-tree --empty; git update-index --split-index",
			} {
				t.Run(format+" "+version+" "+name, func(t *testing.T) {
					dir := t.TempDir()
					git := func(script string) string {
						cmd := exec.Command("sh", "-ec", script)
						cmd.Dir = dir
						cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "LC_ALL=C")
						out, err := cmd.CombinedOutput()
						require.NoError(t, err, string(out))
						return string(out)
					}
					git("git init -q --object-format=" + format + " .; git config index.version " + version + "; for i in $(seq 200); do echo $i > f$i; done; git add .; " + then)
					b, err := os.ReadFile(dir + "/.git/index")
					require.NoError(t, err)
					var got []string
					f := map[string]Format{"sha1": FormatSHA1, "sha256": FormatSHA256}[format]
					err = EachStaged(b, f, func(id string) ([]byte, error) { return os.ReadFile(dir + "/.git/sharedindex." + id) }, func(path string, mode uint32, id string, _ bool) error {
						got = append(got, fmt.Sprintf("%o %x 0\t%s\n", mode, id, path))
						return nil
					})
					require.NoError(t, err)
					want := slices.Collect(strings.Lines(git("git ls-files -s")))
					slices.Sort(got)
					slices.Sort(want)
					require.Equal(t, want, got)
					ext, err := entries(bytes.NewReader(b), f, func([]byte, uint32, uint16, []byte, bool) {})
					require.NoError(t, err)
					require.Equal(t, strings.Contains(then, "split"), ext.link != nil, "it is what it should be")
				})
			}
		}
	}
}

// Of a large index git reads the extensions, and parts of what it lists, by offsets that it
// holds: it is refused where those say something else than what stands there in order.
func TestEachStagedInParts(t *testing.T) {
	for _, version := range []string{"2", "4"} {
		dir := t.TempDir()
		git := func(script string) {
			cmd := exec.Command("sh", "-ec", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
		}
		git("git init -q .; git config index.version " + version + "; git config index.threads 4; b=$(echo x | git hash-object -w --stdin); seq -f \"100644 $b 0\tname%g\" 50000 | git update-index --index-info")
		b, err := os.ReadFile(dir + "/.git/index")
		require.NoError(t, err)
		n := 0
		each := func(b []byte) error {
			return EachStaged(b, FormatSHA1, nil, func(string, uint32, string, bool) error { n++; return nil })
		}
		require.NoError(t, each(b))
		require.Equal(t, 50000, n)
		part, end := bytes.Index(b, []byte("IEOT")), bytes.LastIndex(b, []byte("EOIE"))
		require.Positive(t, part)
		require.Positive(t, end)
		for name, at := range map[string]int{"where a part begins": part + 12 + 8 + 3, "how much a part has": part + 12 + 4 + 3, "where the entries end": end + 8 + 3} {
			forged := bytes.Clone(b)
			forged[at] ^= 1
			require.ErrorIs(t, each(forged), errIndexSyntax, "%s %s", version, name)
		}
		// The control: by the offset of the first part git lists that again for the second.
		copy(b[part+20:part+24], b[part+12:part+16])
		require.NoError(t, os.WriteFile(dir+"/.git/index", b, 0o644))
		git("test $(git ls-files | sort -u | wc -l) = 37500; git config index.threads 1; test $(git ls-files | sort -u | wc -l) = 50000")
		require.ErrorIs(t, each(b), errIndexSyntax)
	}
}

func FuzzEachStaged(f *testing.F) {
	split := append([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00link\x00\x00\x00\x4c"), bytes.Repeat([]byte("x"), 20)...)
	pairs := []byte("\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00")
	split = append(append(append(split, pairs...), pairs...), make([]byte, 20)...)
	f.Add(split, gitIndex(2, FormatSHA1, "a", "b"))
	f.Add(gitIndex(4, FormatSHA1, "a", ""), []byte(nil))
	f.Fuzz(func(t *testing.T, b, shared []byte) {
		_ = EachStaged(b, FormatSHA1, func(id string) ([]byte, error) { return shared, nil }, func(path string, _ uint32, id string, _ bool) error {
			if len(id) != 20 {
				t.Fatalf("%q %q", path, id)
			}
			return nil
		})
	})
}

// Each word of a bitmap may say that as many bits are clear as an index has entries: no
// more than those are gone through.
func TestBitmapOfManyRuns(t *testing.T) {
	const bits, words = 1 << 20, 1 << 20
	b := binary.BigEndian.AppendUint32(nil, bits)
	b = binary.BigEndian.AppendUint32(b, words)
	for range words {
		b = binary.BigEndian.AppendUint64(b, bits/64<<1)
	}
	b = append(b, 0, 0, 0, 0)
	began := time.Now()
	_, _, err := bitmap(b, bits)
	require.ErrorIs(t, err, errIndexSyntax)
	require.Less(t, time.Since(began), 20*time.Second)
}
