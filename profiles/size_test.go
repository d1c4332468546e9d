package profiles

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizeOf(t *testing.T) {
	for text, want := range map[string]Size{
		"2cpu,4g": {2, 4096}, "4g,2cpu": {2, 4096}, "0.5cpu": {CPUs: 0.5}, "512m": {MemoryMB: 512}, "1.5g": {MemoryMB: 1536},
	} {
		got, err := SizeOf(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := SizeOf(got.String())
		require.NoError(t, err, got.String())
		require.Equal(t, got, again)
	}
	for _, text := range []string{"", "2", "2cpu,", "cpu", "2cpu,3cpu", "4g,4g", "-1cpu", "0cpu,4g", "large", "1e3cpu"} {
		_, err := SizeOf(text)
		require.ErrorContains(t, err, "want processors, memory or both", text)
	}
}
