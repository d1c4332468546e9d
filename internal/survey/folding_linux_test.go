package survey

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A file system that does fold names is in test/hosts.
func TestFoldedAt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ".Env")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.Zero(t, foldedAt(path), "nothing else is there")
	require.Zero(t, foldedAt(dir+"/.git"), "nor is it itself")
	require.Zero(t, foldedAt(dir+"/123"), "no capitals to change")
	require.NoError(t, os.WriteFile(dir+"/.eNV", nil, 0o600))
	require.Zero(t, foldedAt(path), "another file")
	require.NoError(t, os.Remove(dir+"/.eNV"))
	require.NoError(t, os.Link(path, dir+"/.eNV"))
	require.Zero(t, foldedAt(path), "two names of one file, as a command can make them, are no reason to refuse the next run")
	require.True(t, foldsItself(unix.EXT4_SUPER_MAGIC))
	require.False(t, foldsItself(unix.FUSE_SUPER_MAGIC))
	require.False(t, foldsItself(unix.V9FS_MAGIC))
}
