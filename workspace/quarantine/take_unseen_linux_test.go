package quarantine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/fixture"
)

// TestTakeUnseen: directories that nobody has looked into are moved as they are; where there is no stash
// they stay, closed, under a name that is said.
func TestTakeUnseen(t *testing.T) {
	for _, kept := range []bool{true, false} {
		root := fixture.Dir(t)
		session, err := os.OpenRoot(fixture.Dir(t))
		require.NoError(t, err)
		s := &Stash{Open: func() (*os.Root, error) {
			if !kept {
				return nil, errors.New("no room")
			}
			return session, nil
		}}
		at, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(at)
		for _, name := range []string{"stood", "one", "two"} {
			require.NoError(t, os.MkdirAll(filepath.Join(root, name, "d"), 0o755))
		}
		c, left, moved, err := s.TakeUnseen(at, Finding{Kind: Stashed, Path: root, Why: TooMuch}, func(name string) bool { return name != "stood" })
		require.NoError(t, err)
		require.Equal(t, 2, moved)
		require.DirExists(t, root+"/stood/d")
		require.NoDirExists(t, root+"/one")
		require.False(t, c.Protected())
		require.Equal(t, kept, c.Stash != "" && left == "")
		require.Contains(t, c.What, "2 directories")
		require.Equal(t, []Finding{c}, s.Settle())
		if kept {
			continue
		}
		info, err := os.Stat(filepath.Join(root, left))
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm(), "it is closed")
		require.NoError(t, os.Chmod(filepath.Join(root, left), 0o700))
	}
}

// TestNothingKept: where nothing was kept there is nothing to read, to fetch or to put back.
func TestNothingKept(t *testing.T) {
	session, err := os.OpenRoot(fixture.Dir(t))
	require.NoError(t, err)
	list, err := ReadFindings(session)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = ReadNow(session.Name() + "/none")
	require.Error(t, err)
	_, err = ReadNow(session.Name())
	require.Error(t, err)
	require.Error(t, Finding{Kind: Stashed, Path: session.Name() + "/x", Stash: "1"}.Restore(session))
	require.Error(t, Finding{Kind: Setting, Path: session.Name() + "/x", Stash: "1"}.Restore(session))
	_, err = SaveLost(session, nil, "/x", session.Name()+"/y")
	require.Error(t, err)
}

// TestJournal: a line that is cut short is left out, and no other line is guessed at.
func TestJournal(t *testing.T) {
	line := string(Finding{Kind: Review, Path: "/a", Why: "w", What: "x", Stash: "1", Mode: 0o100644}.append(nil))
	for text, want := range map[string]int{
		"": 0, journalMagic[:4]: 0, journalMagic: 0, journalMagic + line: 1, journalMagic + line + line[:7]: 1,
		"other": -1, journalMagic + "stolen 0 \"\" \"/x\" \"\" \"\"\n": -1, journalMagic + "review 9 \"\" \"/x\" \"\" \"\"\n": -1,
		journalMagic + "review 0 \"\" \"x\" \"\" \"\"\n": -1, journalMagic + "review 0 \"a\" \"/x\" \"\" \"\"\n": -1,
		journalMagic + "review 0 \"\" \"/x\"\n": -1, journalMagic + "review 0 \"\" \"/x\" \"\" \"\" more\n": -1,
	} {
		list, err := ParseJournal(text)
		require.Equal(t, want < 0, err != nil, "%q", text)
		require.Len(t, list, max(want, 0), "%q", text)
	}
}
