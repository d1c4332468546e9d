package workspace

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/fixture"
)

func TestKinds(t *testing.T) {
	for kind, want := range map[Kind]string{File: "file", Dir: "directory", Link: "link", Special: "special file", 9: "BUG: unknown kind"} {
		require.Equal(t, want, kind.String())
	}
	require.Equal(t, Special, KindOf(unix.S_IFIFO|0o644))
	require.Equal(t, Link, KindOf(unix.S_IFLNK|0o777))
}

// More than a launch can mount is refused, with the path that was too much.
func TestScanTooManyMounts(t *testing.T) {
	root := fixture.Dir(t)
	fixture.Write(t, root+"/a/.envrc", "x")
	full := func() *scan {
		fd, err := openRoot(root)
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		s := newScan(Query{Root: root}, &walker{rules: &rules{root: root, files: hide(root, "**/.env*")}, fd: fd}, &dir{}, &index{})
		for i := range maxMounts - 1 {
			s.pins[fmt.Sprint(root, "/", i)] = Pin{Node: Node{Path: fmt.Sprint(root, "/", i)}}
			s.matches[fmt.Sprint(root, "/", i)] = Match{}
		}
		return s
	}
	s := full()
	defer s.close()
	require.NoError(t, s.pin(root+"/a/.envrc", fixture.Protect(".envrc")[0])) // the control: the last one
	err := s.pin(root+"/a", fixture.Protect("a")[0])
	require.ErrorIs(t, err, ErrTooMuch)
	require.ErrorContains(t, err, root+"/a")
	_, err = s.finish() // its anchor is one too many
	require.ErrorIs(t, err, ErrTooMuch)

	require.NoError(t, s.match(root+"/a", hit{}))
	err = s.match(root+"/a/.envrc", hit{})
	require.ErrorIs(t, err, ErrTooMuch)
	require.ErrorContains(t, err, root+"/a/.envrc")
}
