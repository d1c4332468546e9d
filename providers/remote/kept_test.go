package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/workspace"
)

func TestParseStanding(t *testing.T) {
	const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	s, err := parseStanding([]byte("d 755 40 2\x00d\x00\x00f 644 3 1\x00d/sums\x00\x00l 777 1 1\x00sums\x00sums\x00p 644 0 1\x00odd\n\x00\x00sums\x00" + sum + "  ./d/sums\x00"))
	require.NoError(t, err)
	require.Equal(t, map[string]filesync.Standing{
		"d":      {Kind: workspace.Dir, Mode: 0o755, Size: 40, Names: 2},
		"d/sums": {Kind: workspace.File, Mode: 0o644, Size: 3, Names: 1, Sum: sum},
		"sums":   {Kind: workspace.Link, Mode: 0o777, Size: 1, Names: 1, Target: "sums"},
		"odd\n":  {Kind: workspace.Special, Mode: 0o644, Names: 1},
	}, s.Items)
	s, err = parseStanding([]byte("sums\x00"))
	require.NoError(t, err)
	require.Empty(t, s.Items)
	for _, bad := range []string{
		"", "x", "d 755 40 2\x00d\x00\x00", "d 755 40 2\x00../d\x00\x00sums\x00", "d 755 40 2\x00/d\x00\x00sums\x00", "d 755 40\x00d\x00\x00sums\x00", "f 644 3 1\x00a\x00sums\x00",
		"f 644 3 1\x00a\x00\x00sums\x00" + sum, "f 644 3 1\x00a\x00\x00sums\x00" + sum + "  a\x00",
	} {
		_, err := parseStanding([]byte(bad))
		require.Error(t, err, "%q", bad)
	}
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
	r := &running{plan: &plan{policy: &profiles.Policy{Workspace: "/w", Files: []profiles.FileRule{{Path: "/w", Access: profiles.Write}, {Path: "/", Access: profiles.Read}}}}, ended: true}
	require.Empty(t, r.doubts(), "the control")
	r.ended = false
	require.Equal(t, "the command was not seen to end", r.doubts())
	r.policy.Files = append(r.policy.Files, profiles.FileRule{Path: "/srv", Access: profiles.Write})
	require.Equal(t, "the policy lets the command write to /srv", r.doubts())
}
