package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/providers/inside"
)

func listingOf(entries ...listed) *listing {
	l := &listing{Entries: entries}
	if err := l.index(); err != nil {
		panic(err)
	}
	return l
}

func TestDiffer(t *testing.T) {
	at := func(kind byte, times int64, name, target string) listed {
		return listed{inside.Text(name), entry{Kind: kind, Mode: 0o644, Size: 1, Inode: 7, Modified: times, Changed: times, Target: inside.Text(target)}}
	}
	before := listingOf(at('d', 1, "d", ""), at('f', 1, "d/same", ""), at('f', 1, "d/changed", ""),
		at('f', 1, "d/gone", ""), at('d', 1, "old", ""), at('f', 1, "old/in", ""), at('l', 1, "link", "a"), at('d', 1, "became", ""), at('f', 1, "became/in", ""))
	after := listingOf(at('d', 2, "d", ""), at('f', 1, "d/same", ""), at('f', 2, "d/changed", ""),
		at('l', 1, "link", "b"), at('d', 2, "build", ""), at('f', 2, "build/x", ""), at('d', 2, ".git", ""), at('o', 2, "fifo", ""),
		at('f', 2, "became", ""), at('f', 2, "-new\n", ""))
	m := &filesync.Manifest{Ignore: map[string]map[string]string{".gitignore": {"": "build/\n"}}}
	for name := range before.of {
		m.Items = append(m.Items, filesync.Item{Path: name})
	}
	// What an earlier command made in a sandbox that was kept stands before this run's, and stays there.
	for line, stands := range map[listed][2]bool{at('d', 1, "build/old", ""): {true, false}, at('d', 1, "build/.git", ""): {true, true}} {
		for i, to := range []*listing{before, after} {
			if stands[i] {
				to.of[string(line.Path)] = line.entry
			}
		}
	}
	d := differ(before, after, m)
	require.Equal(t, []string{"-new\n", "became", "d", "d/changed", "link"}, d.ask)
	require.Equal(t, []string{"d/gone", "old"}, d.gone)
	require.Equal(t, []string{"build"}, d.stays)
	require.Equal(t, []string{".git"}, d.git)
	require.Equal(t, []string{"fifo"}, d.odd)

	none := differ(before, before, m)
	require.Empty(t, append(none.ask, none.gone...))
}

func TestListingThatIsNone(t *testing.T) {
	for name, is := range map[string]bool{"a": true, "a\n/..b": true, "": false, ".": false, "..": false, "../a": false, "/a": false, "a/": false, "a/../b": false, "a\x00": false} {
		l := &listing{Entries: []listed{{inside.Text(name), entry{Kind: 'f'}}}}
		require.Equal(t, is, l.index() == nil, "%q", name)
	}
	require.Error(t, (&listing{Entries: []listed{{Path: "a"}}}).index())
}

func TestRoom(t *testing.T) {
	l := limited{most: 3}
	n, err := l.Write([]byte("abcd"))
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.Equal(t, "abc", l.String())
	require.True(t, l.over)
}
