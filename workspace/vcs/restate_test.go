package vcs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What was taken out is put back behind what there is, and says the same.
func TestRestate(t *testing.T) {
	const whole = "\uFEFF[core]\n\tbare = false\n\tpager = \"a \\\"b\\\" # \\\\c\" ; why\n[alias]\n x\n[filter \"a \\\"b\\\" \\\\c\"] clean = d\\\n e\n[core] fsmonitor = f"
	left, dropped, ok := Strip([]byte(whole), func(s *Setting) bool { return !s.Inert() })
	require.True(t, ok)
	require.Len(t, dropped, 4)
	taken := Taken([]byte(whole), left)
	require.Len(t, taken, 4)
	for _, b := range []string{"", "[user]\n\tname = x", "[user]\n\tname = x ; c\n", "[a]\r\nb = c\r\n", string(left)} {
		out, ok := Restate([]byte(b), []byte(whole), taken)
		require.True(t, ok, b)
		before, err := ParseConfig([]byte(b))
		require.NoError(t, err)
		now, err := ParseConfig(out)
		require.NoError(t, err)
		require.Len(t, now, len(before)+4)
		for i, s := range now[len(before):] {
			require.True(t, s.same(taken[i]), "%+v", s)
		}
	}
	// The controls: nothing was taken; another configuration; none that git could read.
	require.Empty(t, Taken([]byte(whole), []byte(whole)))
	require.Nil(t, Taken(left, []byte(whole)))
	require.Nil(t, Taken([]byte("[a"), nil))
	_, ok = Restate([]byte("[a]\nb = c\\"), []byte(whole), taken)
	require.False(t, ok)
	_, ok = Restate([]byte("[a"), []byte(whole), taken)
	require.False(t, ok)
}
