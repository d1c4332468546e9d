package remote

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/filesync"
)

func listed(t *testing.T, lines ...string) *listing {
	l, err := parseListing([]byte(strings.Join(lines, "")))
	require.NoError(t, err)
	return l
}

func TestDiffer(t *testing.T) {
	entry := func(kind, mode, times, name, target string) string {
		return kind + " " + mode + " 1 7 " + times + "\x00" + name + "\x00" + target + "\x00"
	}
	before := listed(t, entry("d", "755", "1 1", "d", ""), entry("f", "644", "1 1", "d/same", ""), entry("f", "644", "1 1", "d/changed", ""),
		entry("f", "644", "1 1", "d/gone", ""), entry("d", "755", "1 1", "old", ""), entry("f", "644", "1 1", "old/in", ""), entry("l", "777", "1 1", "link", "a"), entry("d", "755", "1 1", "became", ""), entry("f", "644", "1 1", "became/in", ""))
	after := listed(t, entry("d", "755", "2 2", "d", ""), entry("f", "644", "1 1", "d/same", ""), entry("f", "644", "2 2", "d/changed", ""),
		entry("l", "777", "1 1", "link", "b"), entry("d", "755", "2 2", "build", ""), entry("f", "644", "2 2", "build/x", ""), entry("d", "755", "2 2", ".git", ""), entry("p", "644", "2 2", "fifo", ""),
		entry("f", "644", "2 2", "became", ""), entry("f", "644", "2 2", "-new\n", ""))
	m := &filesync.Manifest{}
	for name := range before.of {
		m.Items = append(m.Items, filesync.Item{Path: name})
	}
	// What an earlier command made in a sandbox that was kept stands before this run's, and stays there.
	for line, stands := range map[string][2]bool{entry("d", "755", "1 1", "build/old", ""): {true, false}, entry("d", "755", "1 1", "build/.git", ""): {true, true}} {
		l := listed(t, line)
		for name, e := range l.of {
			for i, to := range []*listing{before, after} {
				if stands[i] {
					to.of[name] = e
				}
			}
		}
	}
	d := differ(before, after, m, map[string]string{"build": ".gitignore:1"})
	require.Equal(t, []string{"-new\n", "became", "d", "d/changed", "link"}, d.ask)
	require.Equal(t, []string{"d/gone", "old"}, d.gone)
	require.Equal(t, []string{"build"}, d.stays)
	require.Equal(t, []string{".git"}, d.git)
	require.Equal(t, []string{"fifo"}, d.odd)

	none := differ(before, before, m, nil)
	require.Empty(t, append(none.ask, none.gone...))
}

func TestListingThatIsNone(t *testing.T) {
	for _, text := range []string{"", "f 1\x00", "f 1\x00a\x00", "f 1\x00a\x00\x00x", "\x00a\x00\x00", "f 1\x00\x00\x00"} {
		_, err := parseListing([]byte(text))
		require.Equal(t, text == "", err == nil, "%q", text)
	}
}

func TestRoom(t *testing.T) {
	l := limited{most: 3}
	n, err := l.Write([]byte("abcd"))
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.Equal(t, "abc", l.String())
	require.True(t, l.over)
}
