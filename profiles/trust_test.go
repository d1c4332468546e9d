package profiles

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Only what a user said is an entry: whatever else lies in the file is none, and
// what is one is written as it was read.
func FuzzTrusted(f *testing.F) {
	e := Trusted{Workspace: "/w/a\nb", Since: time.Unix(1, 0), Content: []byte("{}\n")}
	f.Add(e.append(nil))
	f.Add([]byte(trustMagic + "\"/w\" 1"))
	f.Add([]byte("\"/w\" 1\n{}"))
	f.Add([]byte(trustMagic + "\"w\" 1\n{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseTrusted(b)
		if err != nil {
			require.Nil(t, e)
			return
		}
		require.Equal(t, byte('/'), e.Workspace[0])
		again, err := parseTrusted(e.append(nil))
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}
