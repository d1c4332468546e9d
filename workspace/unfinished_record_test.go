package workspace

import (
	"fmt"
	"strings"
	"testing"

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
		require.True(t, Unfinished(err), "cut at %d: %v", i, err)
	}
	for _, bad := range []string{"x", text[:len(text)-5] + " 1\nend\n", strings.Replace(text, `"a"`, "7", 1), strings.Replace(text, `"a"`, "", 1), strings.Replace(text, `"a"`, `"a`, 1), strings.Replace(text, "\n1 ", "\n2 ", 1), strings.Replace(text, "\n0", "\n999", 1), strings.Replace(text, "\n0", "\nx", 1)} {
		require.NotEqual(t, text, bad)
		_, _, err := ParseStanding(bad)
		require.Error(t, err, bad)
		require.False(t, Unfinished(err), bad)
	}
	full := Standing{Files: []profiles.FileRule{{Path: "/w", Access: profiles.Write}}, Git: map[string]GitEntry{}}
	text = string(full.Append(nil))
	again, _, err := ParseStanding(text)
	require.NoError(t, err)
	require.Equal(t, full.Files, again.Files)
	require.NotNil(t, again.Git)
	require.Nil(t, again.Late)
	_, _, err = ParseStanding(strings.Replace(text, fmt.Sprintf(`"" %d`, profiles.Write), `"" 9`, 1))
	require.Error(t, err)
}
