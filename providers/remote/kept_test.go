package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/workspace"
)

func TestSince(t *testing.T) {
	const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	l := &listing{Entries: []listed{
		{"d", entry{Kind: workspace.Dir, Mode: 0o755, Size: 40, Names: 2}}, {"d/sums", entry{Kind: workspace.File, Mode: 0o644, Size: 3, Names: 1, Sum: sum}},
		{"sums", entry{Kind: workspace.Link, Mode: 0o777, Size: 1, Names: 1, Target: "sums"}}, {"odd\n", entry{Kind: workspace.Special, Mode: 0o644, Names: 1}},
	}}
	require.NoError(t, l.index())
	s := l.since([]string{"d"})
	require.Equal(t, []string{"d"}, s.Sent)
	require.Equal(t, map[string]filesync.Standing{
		"d":      {Kind: workspace.Dir, Mode: 0o755, Size: 40, Names: 2},
		"d/sums": {Kind: workspace.File, Mode: 0o644, Size: 3, Names: 1, Sum: sum},
		"sums":   {Kind: workspace.Link, Mode: 0o777, Size: 1, Names: 1, Target: "sums"},
		"odd\n":  {Kind: workspace.Special, Mode: 0o644, Names: 1},
	}, s.Items)
}

// What the next run trusts has to be kept by pccrun in the sandbox, each guarantee of it.
func TestDoubts(t *testing.T) {
	all := func() (list []profiles.Answer) {
		for _, g := range trusted {
			list = append(list, profiles.Answer{Guarantee: g})
		}
		return list
	}
	require.Empty(t, doubtOf(all()), "the control")
	require.NotEmpty(t, doubtOf(nil))
	for i, g := range trusted {
		list := all()
		list[i].State, list[i].Cause = profiles.Missing, "why"
		require.Contains(t, doubtOf(list), string(g)+" is not kept: why")
		list[i].State = profiles.Weak
		require.Equal(t, g == profiles.IPCUnix, doubtOf(list) == "", g)
	}
	r, end := &plan{policy: &profiles.Policy{Workspace: "/w", Files: []profiles.FileRule{{Path: "/w", Access: profiles.Write}, {Path: "/", Access: profiles.Read}}}}, &ended{seen: true}
	require.Empty(t, r.doubts(end), "the control")
	end.seen = false
	require.Equal(t, "the command was not seen to end", r.doubts(end))
	r.policy.Files = append(r.policy.Files, profiles.FileRule{Path: "/srv", Access: profiles.Write})
	require.Equal(t, "the policy lets the command write to /srv", r.doubts(end))
}
