package vcs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
					err = EachStaged(b, f, func(id string) ([]byte, error) { return os.ReadFile(dir + "/.git/sharedindex." + id) }, func(path string, mode uint32, id string) error {
						got = append(got, fmt.Sprintf("%o %x 0\t%s\n", mode, id, path))
						return nil
					})
					require.NoError(t, err)
					want := slices.Collect(strings.Lines(git("git ls-files -s")))
					slices.Sort(got)
					slices.Sort(want)
					require.Equal(t, want, got)
					x, ok := ParseIndex(b, f, func(*IndexEntry) bool { return true })
					require.True(t, ok)
					require.Equal(t, strings.Contains(then, "split"), x.Part("link") != nil, "it is what it should be")
				})
			}
		}
	}
}

func FuzzEachStaged(f *testing.F) {
	split := append([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00link\x00\x00\x00\x4c"), bytes.Repeat([]byte("x"), 20)...)
	pairs := []byte("\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00")
	split = append(append(append(split, pairs...), pairs...), make([]byte, 20)...)
	f.Add(split, gitIndex(2, FormatSHA1, "a", "b"))
	f.Add(gitIndex(4, FormatSHA1, "a", ""), []byte(nil))
	f.Fuzz(func(t *testing.T, b, shared []byte) {
		_ = EachStaged(b, FormatSHA1, func(id string) ([]byte, error) { return shared, nil }, func(path string, _ uint32, id string) error {
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
