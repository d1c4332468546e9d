package changes

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// Who may write beside a directory that root makes could put one of his own there.
func TestCreateIsClosed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	d := fixture.Dir(t)
	fd, err := unix.Open(d, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	made, err := create(fd, "new", workspace.Dir) // the control
	require.NoError(t, err)
	require.NoError(t, beneath.Closed(int(made.Fd())))
	require.NoError(t, made.Chown(fixture.Someone, fixture.Someone))
	require.ErrorIs(t, beneath.Closed(int(made.Fd())), beneath.ErrNotMade)
	made.Close()
}
