package workspace

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/vcs"
)

func FuzzParseStanding(f *testing.F) {
	s := Standing{Session: "s", Root: "/w", Names: []string{"a\nb"}, Commands: []string{"./x y"}, Awaited: map[string]string{"/w/x y": "z\n"}, Formats: map[string]vcs.Format{"/r/.git": vcs.FormatSHA256}, Keys: map[string][]string{"/w/.git/config": {"a.b=c"}}, Known: []Known{{Node: Node{Path: "/w/x", Kind: File, Dev: 1, Ino: 2}, Ctime: 3, Pin: true, Why: "y"}}}
	f.Add(string(s.Append(nil)))
	f.Add("pccrun rec")
	f.Fuzz(func(t *testing.T, text string) {
		one, _, err := ParseStanding(text)
		if err != nil {
			return
		}
		again, rest, err := ParseStanding(string(one.Append(nil)))
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, string(one.Append(nil)), string(again.Append(nil)))
	})
}

func TestParseStanding(t *testing.T) {
	s := Standing{Session: "s", Root: "/w", Names: []string{"a"}}
	text := string(s.Append(nil))
	for i := range len(text) - 1 {
		_, _, err := ParseStanding(text[:i])
		require.True(t, CutShort(err), "cut at %d: %v", i, err)
	}
	for _, bad := range []string{"x", standingMagic + "\x00\x00\x00\x00", standingMagic + "\x00\x00\x00\x01\x7f", strings.Replace(text, "\x01s\x02/w", "\x01s\x7f/w", 1), strings.Replace(text, "\x01\x01a", "\x01\x00a", 1)} {
		require.NotEqual(t, text, bad)
		_, _, err := ParseStanding(bad)
		require.ErrorIs(t, err, errNoStanding, "%q", bad)
	}
	for _, old := range []string{"pccrun record 5\n \"s\" \"/w\"", "20260101T000000Z-00000000.1\npccrun record 5\n"} {
		_, _, err := ParseStanding(old)
		require.ErrorIs(t, err, errOtherVersion, old)
	}
	full := Standing{Start: time.Unix(1, 2), Files: []profiles.FileRule{{Path: "/w", Access: profiles.Write}}, Names: []string{"not \xff UTF-8"}, Git: map[string]GitEntry{}, Known: []Known{{Node: Node{Path: "/y", Ino: 1 << 63}}}}
	again, _, err := ParseStanding(string(full.Append(nil)))
	require.NoError(t, err)
	require.Equal(t, full, *again, "nil is not an empty map")
	// Where a rule comes from is in no record.
	full.Files[0].Origin.Source = "x"
	again, _, err = ParseStanding(string(full.Append(nil)))
	require.NoError(t, err)
	require.Empty(t, again.Files[0].Origin.Source)
}
