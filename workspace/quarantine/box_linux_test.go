package quarantine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/internal/fixture"
)

// TestBoxes: directories that nobody has looked into are moved as they are; where there is no stash
// they stay, closed, under a name that is said.
func TestBoxes(t *testing.T) {
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
		for _, name := range []string{"box", "one", "two"} {
			require.NoError(t, os.MkdirAll(filepath.Join(root, name, "d"), 0o755))
		}
		c, left, err := s.Box(at, "box", Finding{Kind: Stashed, Path: root + "/box", Why: TooMuch, What: "directory"})
		require.NoError(t, err)
		require.NoDirExists(t, root+"/box")
		require.False(t, c.Protected())
		require.Equal(t, kept, c.Stash != "" && left == "")

		k, err := s.NewCrate(at, Finding{Kind: Stashed, Path: root, Why: TooMuch})
		require.NoError(t, err)
		for _, name := range []string{"one", "two"} {
			require.NoError(t, Move(at, name, k.FD, name))
			k.Count++
		}
		require.NoError(t, k.Close())
		require.Contains(t, k.Finding.What, "2 directories")
		require.Equal(t, kept, k.Finding.Stash != "")
		for _, left := range []string{left, k.Left} {
			if info, err := os.Stat(filepath.Join(root, left)); left != "" {
				require.NoError(t, err)
				require.Zero(t, info.Mode().Perm(), "it is closed")
				require.NoError(t, os.Chmod(filepath.Join(root, left), 0o700))
			}
		}
		_, _, err = s.Box(at, "none", Finding{})
		require.ErrorIs(t, err, unix.ENOENT)
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
