package quarantine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzParseJournal(f *testing.F) {
	f.Add(journalMagic + string(Finding{Kind: Stashed, Path: "/a\nb", Why: "w", What: "x", Stash: "12", Mode: 0o100644}.append(nil)))
	f.Add(journalMagic + "review 0 \"\" \"/x\" \"\" \"\"\nstash")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseJournal(text)
		if err != nil {
			return
		}
		b := []byte(journalMagic)
		for _, c := range list {
			require.True(t, strings.HasPrefix(c.Path, "/"))
			require.Empty(t, strings.Trim(c.Stash, "0123456789"))
			b = c.append(b)
		}
		again, err := ParseJournal(string(b))
		require.NoError(t, err)
		require.Equal(t, list, again)
	})
}
