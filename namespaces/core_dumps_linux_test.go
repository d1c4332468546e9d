package namespaces

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestCoreHandler(t *testing.T) {
	for _, c := range []struct {
		pattern string
		hard    uint64
		want    string
	}{
		{"core\n", 0, ""}, {"core\n", unix.RLIM_INFINITY, ""}, {"/var/core/%p\n", 0, ""}, {"\n", 0, ""}, {"", 0, ""},
		{"|/usr/lib/handler %p\n", 1, ""}, {"|/usr/lib/handler %p\n", unix.RLIM_INFINITY, ""},
		{"|/usr/lib/handler %p\n", 0, "|/usr/lib/handler %p"}, {"|", 0, "|"},
		{"@/run/handler\n", 0, "@/run/handler"}, {"@@/run/handler\n", 1, "@@/run/handler"},
	} {
		require.Equal(t, c.want, coreHandler(c.pattern, c.hard), "%q, hard limit %d", c.pattern, c.hard)
	}
}

func TestReadCorePattern(t *testing.T) {
	require.Equal(t, "", readCorePattern("/proc/sys/kernel/core_pattern_that_is_not"), "a kernel without core dumps")
	file := filepath.Join(t.TempDir(), "core_pattern")
	require.NoError(t, os.WriteFile(file, []byte("|handler\n"), 0o644))
	require.Equal(t, "|handler\n", readCorePattern(file))
	require.NotEmpty(t, readCorePattern(corePattern), "the real one")
	unknown := coreHandler(readCorePattern(file+"/x"), unix.RLIM_INFINITY)
	require.Contains(t, unknown, "unknown: open "+file)
}
