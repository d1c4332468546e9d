package gitdir

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace/vcs"
)

func TestSoundIndex(t *testing.T) {
	f, g := fixture.Entry{Path: "d/f", Mode: 0o100644}, fixture.Entry{Path: "d/g", Mode: 0o100644}
	at := func(n int) uint32 { return uint32(12 + n*72) } // of an entry with such a name
	for name, c := range map[string]struct {
		index []byte
		want  bool
	}{
		"nothing":        {fixture.Index(2, nil), true},
		"a file":         {fixture.Index(2, nil, f), true},
		"of version 4":   {fixture.Index(4, nil, f, g), true},
		"flags":          {fixture.Index(3, nil, fixture.Entry{Path: "x", Mode: 0o100644, Flags: 0x4000}), true},
		"names that are": {fixture.Index(2, nil, fixture.Entry{Path: ".gitignore", Mode: 0o100644}, fixture.Entry{Path: "a..d/.git2/.../a b", Mode: 0o100644}), true},
		"a long name":    {fixture.Index(2, nil, fixture.Entry{Path: strings.Repeat("x/", 3000) + "x", Mode: 0o100644}), true},
		"a directory":    {fixture.Index(2, nil, fixture.Entry{Path: "d/", Mode: 0o040000}), true},
		"split":          {fixture.Index(2, fixture.Extension("link"), fixture.Entry{Mode: 0o100644}, f), true},
		"blocks":         {fixture.Index(2, fixture.Extension("IEOT", fixture.Numbers(1, at(0), 1, at(1), 1)...), f, g), true},
		"the end":        {fixture.Index(2, fixture.Extension("EOIE", append(fixture.Numbers(at(1)), make([]byte, 20)...)...), f), true},

		"git's own":           {fixture.Index(2, nil, f, fixture.Entry{Path: ".git/hooks/post-checkout", Mode: 0o100755}), false},
		"spelled otherwise":   {fixture.Index(2, nil, fixture.Entry{Path: "a/.GIT/x", Mode: 0o100755}), false},
		"above":               {fixture.Index(2, nil, fixture.Entry{Path: "../x", Mode: 0o100755}), false},
		"from the root":       {fixture.Index(2, nil, fixture.Entry{Path: "/etc/x", Mode: 0o100755}), false},
		"above, of version 4": {fixture.Index(4, nil, f, fixture.Entry{Path: "../x", Mode: 0o100755}), false},
		"two slashes":         {fixture.Index(2, nil, fixture.Entry{Path: "a//x", Mode: 0o100755}), false},
		"a file as directory": {fixture.Index(2, nil, fixture.Entry{Path: "d/", Mode: 0o100644}), false},
		"no name":             {fixture.Index(2, nil, fixture.Entry{Mode: 0o100644}, f), false},
		"another length":      {fixture.Index(2, nil, fixture.Entry{Path: "abc", Mode: 0o100644, Length: 2}), false},
		"flags too early":     {fixture.Index(2, nil, fixture.Entry{Path: "x", Mode: 0o100644, Flags: 0x4000}), false},
		"another version":     {fixture.Index(5, nil), false},
		"blocks elsewhere":    {fixture.Index(2, fixture.Extension("IEOT", fixture.Numbers(1, at(0), 1, at(0), 1)...), f, g), false},
		"blocks of less":      {fixture.Index(2, fixture.Extension("IEOT", fixture.Numbers(1, at(0), 1)...), f, g), false},
		"the end elsewhere":   {fixture.Index(2, fixture.Extension("EOIE", append(fixture.Numbers(at(0)), make([]byte, 20)...)...), f), false},
		"an end in an end":    {fixture.Index(2, fixture.Extension("XXXX", fixture.Extension("EOIE", append(fixture.Numbers(at(0)), make([]byte, 20)...)...)...), f), false},
		"too long extensions": {fixture.Index(2, fixture.Numbers(0x41414141, 1000), f), false},
		"empty":               {nil, false},
		"twice":               {fixture.Index(2, nil, f, f), false},
		"stages":              {fixture.Index(2, nil, fixture.Entry{Path: "d/f", Mode: 0o100644, Flags: 0x1000}, fixture.Entry{Path: "d/f", Mode: 0o100644, Flags: 0x2000}), true},
		"out of order":        {fixture.Index(2, nil, g, f), false},
		"below a file":        {fixture.Index(2, nil, fixture.Entry{Path: "d", Mode: 0o120000}, fixture.Entry{Path: "d-", Mode: 0o100644}, f), false},
		"below a directory":   {fixture.Index(2, nil, fixture.Entry{Path: "d/", Mode: 0o040000}, f), false},
		"beside a file":       {fixture.Index(2, nil, fixture.Entry{Path: "d", Mode: 0o120000}, fixture.Entry{Path: "d-/x", Mode: 0o100644}), true},
		"another mode":        {fixture.Index(2, nil, fixture.Entry{Path: "d", Mode: 0o104755}), false},
		"of Windows":          {fixture.Index(2, nil, fixture.Entry{Path: "GIT~1/hooks/x", Mode: 0o100755}), false},
		"with a stream":       {fixture.Index(2, nil, fixture.Entry{Path: ".git::$INDEX_ALLOCATION/x", Mode: 0o100755}), false},
		"with a blank":        {fixture.Index(2, nil, fixture.Entry{Path: ".git ./x", Mode: 0o100755}), false},
		"of macOS":            {fixture.Index(2, nil, fixture.Entry{Path: ".g\u200cit/x", Mode: 0o100755}), false},
	} {
		require.Equal(t, c.want, SoundIndex(c.index, vcs.FormatSHA1), name)
	}
	whole := fixture.Index(4, nil, f, fixture.Entry{Path: "x/y/z", Mode: 0o100644})
	for n := range whole {
		require.False(t, SoundIndex(whole[:n], vcs.FormatSHA1), n)
	}
}

// What git computes goes, what it cannot go without stays, and the sum is right.
func TestPlainIndex(t *testing.T) {
	f := fixture.Entry{Path: "d/f", Mode: 0o100644}
	parts := append(fixture.Extension("TREE", 1, 2), append(fixture.Extension("sdir"), append(fixture.Extension("REUC", 3), fixture.Extension("UNTR")...)...)...)
	var listed []string
	plain, shorter, sound := PlainIndex(fixture.Index(2, parts, f), vcs.FormatSHA1, func(s Staged) { listed = append(listed, fmt.Sprintf("%o %s", s.Mode, s.Path)) })
	require.True(t, shorter && sound)
	require.Equal(t, []string{"100644 d/f"}, listed)
	require.Equal(t, fixture.Index(2, fixture.Extension("sdir"), f), plain)
	_, shorter, sound = PlainIndex(plain, vcs.FormatSHA1, nil)
	require.True(t, sound && !shorter)
	_, _, sound = PlainIndex(nil, vcs.FormatSHA1, nil)
	require.False(t, sound)
}

func TestIsIndex(t *testing.T) {
	require.True(t, IsIndex("index") && IsIndex("sharedindex.x"))
	require.False(t, IsIndex("index.lock"))
}
