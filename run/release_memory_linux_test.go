package run

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRest lets go of this very program's pages, and goes on.
func TestRest(t *testing.T) {
	program, err := os.Readlink("/proc/self/exe")
	require.NoError(t, err)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	sizes := uintptr(0)
	for line := range bytes.Lines(maps) {
		if _, size, ok := programPages(line, program); ok {
			sizes += size
		}
	}
	require.Greater(t, sizes, uintptr(1<<20), "the program's text and constants")

	before := mapped(t)
	rest()
	require.Less(t, mapped(t), before)
}

// mapped is how many KiB of files are mapped here.
func mapped(t *testing.T) int {
	data, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "RssFile:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(t, err)
			return kib
		}
	}
	t.Fatal("no RssFile")
	return 0
}

// TestProgramPages lists what is never let go of.
func TestProgramPages(t *testing.T) {
	const program = "/usr/bin/pccrun"
	from, size, ok := programPages([]byte("00400000-00c00000 r-xp 00000000 fe:01 42   /usr/bin/pccrun\n"), program)
	require.True(t, ok)
	require.Equal(t, [2]uintptr{0x400000, 0x800000}, [2]uintptr{from, size})
	for _, line := range []string{
		"",
		"00400000-00c00000 rw-p 00000000 fe:01 42 /usr/bin/pccrun",
		"00400000-00c00000 r--s 00000000 fe:01 42 /usr/bin/pccrun",
		"00400000-00c00000 r-xp 00000000 fe:01 42 /usr/lib/other",
		"00400000-00c00000 rw-p 00000000 00:00 0",
		"00c00000-00400000 r-xp 00000000 fe:01 42 /usr/bin/pccrun",
		"00400000 r-xp 00000000 fe:01 42 /usr/bin/pccrun",
		"x-y r-xp 00000000 fe:01 42 /usr/bin/pccrun",
	} {
		_, _, ok := programPages([]byte(line), program)
		require.False(t, ok, line)
	}
}
