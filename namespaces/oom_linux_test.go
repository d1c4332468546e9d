package namespaces

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOOMScore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "oom_score_adj")
	for text, want := range map[string]int{"0\n": 200, "-1000\n": -800, "100": 300, "900\n": 1000, "1000\n": 1000} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		got, err := oomScore(file)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
	require.NoError(t, os.WriteFile(file, []byte("much\n"), 0o644))
	_, err := oomScore(file)
	require.ErrorContains(t, err, file)
	_, err = oomScore(file + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
}
