package vcs

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHashOf(t *testing.T) {
	for text, want := range map[string]Format{"": FormatSHA1, "[extensions]\nobjectFormat = sha256\n": FormatSHA256, "[extensions]\nobjectFormat = sha1\n": FormatSHA1} {
		f, known := HashOf([]byte(text))
		require.True(t, known, text)
		require.Equal(t, want, f, text)
	}
	for _, text := range []string{"[extensions]\nobjectFormat = x\n", "[extensions]\nobjectFormat = sha1\nobjectFormat = sha256\n", "["} {
		_, known := HashOf([]byte(text))
		require.False(t, known, text)
	}
}

// What git remembers of files' times is no part of what an index says.
func TestIndexDigest(t *testing.T) {
	a := gitIndex(2, FormatSHA1, "a", "b")
	require.NotZero(t, IndexDigest(a))
	b := bytes.Clone(a)
	b[12] ^= 1 // the time of the first
	require.Equal(t, IndexDigest(a), IndexDigest(b))
	require.NotEqual(t, IndexDigest(a), IndexDigest(gitIndex(2, FormatSHA1, "a", "c")))
	require.Zero(t, IndexDigest(nil))
}
