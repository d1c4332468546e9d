package workspace

import (
	"testing"

	"github.com/stretchr/testify/require"

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
		require.True(t, Unfinished(err), "cut at %d: %v", i, err)
	}
	for _, bad := range []string{"x", standingMagic + "name\n", standingMagic + "name \"a\" \"b\"\n", standingMagic + "pin 1 2 3 \"x\"\n", standingMagic + "file 9 \"a\" \"\"\n", standingMagic + "key \"a\" \"b\"\n", standingMagic + "review 9 1 1 1 \"a\" \"b\"\n"} {
		_, _, err := ParseStanding(bad + "end\n")
		require.Error(t, err, bad)
		require.False(t, Unfinished(err), bad)
	}
}
