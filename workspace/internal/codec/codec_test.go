package codec

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

type inner struct{ Text string }

type all struct {
	Text      string
	Yes, No   bool
	Number    int
	Time      time.Time
	Small     uint8
	Large     uint64
	List      []inner
	Two       [2]uint32
	Nil, None map[string][]string
	Some      map[string]*inner
	There     *inner
	Absent    *inner
	Rule      profiles.ProtectRule
	hidden    int
}

// TestRead reads what Append wrote, whatever the values are, and nothing else.
func TestRead(t *testing.T) {
	v := all{
		Text: "not \xff UTF-8", Yes: true, Number: -7, Time: time.Unix(1, 2), Small: 255, Large: 1<<64 - 1, List: []inner{{"a"}, {""}}, Two: [2]uint32{1, 2},
		None: map[string][]string{}, Some: map[string]*inner{"x": {"y"}, "z": nil}, There: &inner{"b"},
		Rule: profiles.ProtectRule{Pattern: "p", Review: true, Origin: profiles.Origin{Source: "left out"}}, hidden: 1,
	}
	text := string(Append(nil, &v))
	var got all
	require.True(t, Read(text, &got))
	v.hidden, v.Rule.Origin = 0, profiles.Origin{}
	require.Equal(t, v, got, "nil is not an empty map")
	for i := range len(text) {
		require.False(t, Read(text[:i], &all{}), "cut at %d", i)
	}
	require.False(t, Read(text+"x", &all{}))
}
