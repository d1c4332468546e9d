package remote

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/workspace"
)

func listingOf(entries ...listed) *listing {
	l := &listing{Entries: entries}
	if err := l.index(); err != nil {
		panic(err)
	}
	return l
}

func TestDiffer(t *testing.T) {
	at := func(kind workspace.Kind, times int64, name, target string) listed {
		return listed{inside.Text(name), entry{Kind: kind, Mode: 0o644, Size: 1, Inode: 7, Modified: times, Changed: times, Target: inside.Text(target)}}
	}
	before := listingOf(at(workspace.Dir, 1, "d", ""), at(workspace.File, 1, "d/same", ""), at(workspace.File, 1, "d/changed", ""),
		at(workspace.File, 1, "d/gone", ""), at(workspace.Dir, 1, "old", ""), at(workspace.File, 1, "old/in", ""), at(workspace.Link, 1, "link", "a"), at(workspace.Dir, 1, "became", ""), at(workspace.File, 1, "became/in", ""))
	after := listingOf(at(workspace.Dir, 2, "d", ""), at(workspace.File, 1, "d/same", ""), at(workspace.File, 2, "d/changed", ""),
		at(workspace.Link, 1, "link", "b"), at(workspace.Dir, 2, "build", ""), at(workspace.File, 2, "build/x", ""), at(workspace.Dir, 2, ".git", ""), at(workspace.Special, 2, "fifo", ""),
		at(workspace.File, 2, "became", ""), at(workspace.File, 2, "-new\n", ""))
	sent := map[string]bool{}
	for name := range before.of {
		sent[name] = true
	}
	// What an earlier command made in a sandbox that was kept stands before this run's, and stays there.
	for line, stands := range map[listed][2]bool{at(workspace.Dir, 1, "build/old", ""): {true, false}, at(workspace.Dir, 1, "build/.git", ""): {true, true}} {
		for i, to := range []*listing{before, after} {
			if stands[i] {
				to.of[string(line.Path)] = line.entry
			}
		}
	}
	d := differ(before, after, sent, map[string]string{"build": ".gitignore:1"})
	require.Equal(t, []string{"-new\n", "became", "d", "d/changed", "link"}, d.names())
	require.Equal(t, []string{"d/gone", "old"}, d.gone)
	require.Equal(t, []string{"build"}, d.stays)
	require.Equal(t, []string{".git"}, d.git)
	require.Equal(t, []string{"fifo"}, d.odd)

	none := differ(before, before, sent, nil)
	require.Empty(t, append(none.names(), none.gone...))
}

func TestListingThatIsNone(t *testing.T) {
	for name, is := range map[string]bool{"a": true, "a\n/..b": true, "": false, ".": false, "..": false, "../a": false, "/a": false, "a/": false, "a/../b": false, "a\x00": false,
		strings.Repeat("d/", 4096) + "a": true, strings.Repeat("d/", 4097) + "a": false, strings.Repeat("x", 2<<20): false} {
		l := &listing{Entries: []listed{{inside.Text(name), entry{Kind: workspace.File}}}}
		require.Equal(t, is, l.index() == nil, "%q", name)
	}
}

// A listing that says much in few bytes is not taken in: a hostile place fills no memory.
func TestListingThatIsTooLong(t *testing.T) {
	for _, one := range []string{`{"p":"YQ=="}`, "{}", "null", `{"x":[1,2,"],\"\\"],"y":"{,"}`} {
		var list entries
		require.NoError(t, list.read([]byte("["+one+","+one+"]"), 2), "the control")
		require.Len(t, list, 2)
		require.ErrorContains(t, list.read([]byte("["+one+","+one+","+one+"]"), 2), "more than 2 names")
	}
	var l listing
	require.ErrorContains(t, json.Unmarshal([]byte(`{"entries":[`+strings.Repeat("{},", maxListed)+`{}]}`), &l), "more than 1048576 names")
	require.Error(t, json.Unmarshal([]byte(`{"entries":{"p":"YQ=="}}`), &l))
	require.NoError(t, json.Unmarshal([]byte(`{"entries":null}`), &l), "a directory that is empty")
}

func TestRoom(t *testing.T) {
	l := Printed{Most: 3}
	n, err := l.Write([]byte("abcd"))
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.Equal(t, "abc", l.String())
	require.True(t, l.over)
}
