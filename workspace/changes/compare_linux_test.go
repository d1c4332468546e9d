package changes

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a run left as a sparse file of a terabyte, and was applied, or moved, is not
// read through.
func TestCompareSparse(t *testing.T) {
	before, after := t.TempDir(), t.TempDir()
	sparse := func(path string, marks ...int64) *os.File {
		f, err := os.Create(path)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		require.NoError(t, f.Truncate(1<<40))
		for _, at := range marks {
			_, err := f.WriteAt([]byte("x"), at)
			require.NoError(t, err)
		}
		return f
	}
	const middle, end = 1 << 39, 1<<40 - 1
	a := sparse(filepath.Join(before, "same"), 1<<20, middle)
	began := bytesRead(t)
	for name, c := range map[string]struct {
		other *os.File
		same  bool
	}{
		"same":    {sparse(filepath.Join(after, "same"), 1<<20, middle), true},
		"zeros":   {sparse(filepath.Join(after, "zeros"), 1<<20, middle), true},
		"middle":  {sparse(filepath.Join(after, "middle"), 1<<20, middle+1), false},
		"nothing": {sparse(filepath.Join(after, "nothing")), false},
		"end":     {sparse(filepath.Join(after, "end"), 1<<20, middle, end), false},
	} {
		if name == "zeros" {
			_, err := c.other.WriteAt(make([]byte, 1<<20), 1<<30)
			require.NoError(t, err)
		}
		same, err := Equal(a, c.other)
		require.NoError(t, err)
		require.Equal(t, c.same, same, name)
	}
	sparse(filepath.Join(before, "moved"))
	x, err := os.OpenRoot(before)
	require.NoError(t, err)
	defer x.Close()
	y, err := os.OpenRoot(after)
	require.NoError(t, err)
	defer y.Close()
	set, err := Compare(x, y)
	require.NoError(t, err)
	require.Len(t, set.Changes, 5)
	require.Less(t, bytesRead(t)-began, int64(1<<30))
}

// bytesRead is how much this process has read by now, proc_pid_io(5).
func bytesRead(t *testing.T) (n int64) {
	text, err := os.ReadFile("/proc/self/io")
	require.NoError(t, err)
	_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
	require.NoError(t, err)
	return n
}
