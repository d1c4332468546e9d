package beneath_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/fixture"
	. "github.com/pccrun/pccrun/workspace/beneath"
)

// Between the making of a name and its use another file can come to stand there:
// what is given away is what was made, or nothing.
//
//test:root
func TestChownMade(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for name, put := range map[string]func(at string) error{
		"a file with other names": func(at string) error { return os.Link(filepath.Join(filepath.Dir(at), "victim"), at) },
		"somebody's link":         func(at string) error { return os.Lchown(at, fixture.Someone+1, fixture.Someone+1) },
		"a file of root's":        func(at string) error { _ = os.Remove(at); return os.WriteFile(at, nil, 0o600) },
		"a directory":             func(at string) error { _ = os.Remove(at); return os.Mkdir(at, 0o700) },
		"nothing":                 func(at string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			d := fixture.Dir(t)
			fd, err := unix.Open(d, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			defer unix.Close(fd)
			victim, at := filepath.Join(d, "victim"), filepath.Join(d, "at")
			require.NoError(t, os.WriteFile(victim, nil, 0o600))
			if name != "a file with other names" {
				require.NoError(t, os.Symlink("victim", at))
			}
			require.NoError(t, put(at))
			before := fixture.Owner(t, at)
			err = ChownMade(fd, "at", fixture.Someone, fixture.Someone)
			if name == "nothing" { // the control
				require.NoError(t, err)
				require.Equal(t, fixture.Someone, fixture.Owner(t, at))
				require.Zero(t, fixture.Owner(t, victim), "the link was meant, not what it leads to")
				return
			}
			require.ErrorIs(t, err, ErrNotMade)
			require.Equal(t, before, fixture.Owner(t, at))
			require.NoError(t, unix.Fchownat(fd, "at", fixture.Someone, fixture.Someone, unix.AT_SYMLINK_NOFOLLOW), "by name it would be given away")
			require.Equal(t, fixture.Someone, fixture.Owner(t, at))
		})
	}
}
