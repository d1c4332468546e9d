package kernel

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCovers(t *testing.T) {
	for release, want := range map[string]bool{
		"5.14": true, "5.14-rc1": true, "5.14.0": true, "6.1.0-18-amd64": true, "5.100": true, "10.0": true, "6.6.87.2-microsoft-standard-WSL2": true,
		"5.10.262": false, "5.9.1": false, "4.19": false, "": false, "rubbish": false, "x.y": false, "6": false, "6.": false, "6.x": false, ".15": false,
	} {
		require.Equal(t, want, Covers(release, 5, 14), release)
	}
}

// What runs is asked by uname(2), which says what /proc does.
func TestAtLeast(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	require.NoError(t, err)
	for _, v := range [][2]int{{0, 0}, {5, 12}, {6, 3}, {6, 12}, {1000, 0}} {
		require.Equal(t, Covers(strings.TrimSpace(string(text)), v[0], v[1]), AtLeast(v[0], v[1]), v)
	}
	require.True(t, AtLeast(2, 6), "else it says no to all")
	require.False(t, AtLeast(1000, 0), "else it says yes to all")
}
