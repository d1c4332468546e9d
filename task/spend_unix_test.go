//go:build unix

package task

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a killed process leaves that had tasks count together goes when another makes the like, and what stands stays.
func TestTogether(t *testing.T) {
	s := StoreIn(t.TempDir())
	_, standing, end, err := s.Together("", 5)
	require.NoError(t, err)
	for _, name := range []string{"left", "left.lock", "9.new", "other"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, togetherFile+name), nil, 0o600))
	}
	file, path, endOther, err := s.Together("", 0)
	require.NoError(t, err)
	_, _, err = file.Add(3)
	require.NoError(t, err)
	names := func() (list []string) {
		all, err := filepath.Glob(s.dir + "/.*")
		require.NoError(t, err)
		for _, path := range all {
			list = append(list, filepath.Base(path))
		}
		return list
	}
	require.ElementsMatch(t, []string{filepath.Base(standing), filepath.Base(standing) + lockEnd, filepath.Base(path), filepath.Base(path) + lockEnd,
		togetherFile + "other", togetherFile + lockEnd}, names())
	end()
	endOther()
	require.ElementsMatch(t, []string{togetherFile + "other", togetherFile + lockEnd}, names())
}
