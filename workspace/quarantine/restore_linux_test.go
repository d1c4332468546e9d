package quarantine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/fixture"
)

// newStash makes a stash in a session on the file system of the workspace, or on another,
// and opens the workspace.
func newStash(t *testing.T, elsewhere bool) (root string, at int, session *os.Root, s *Stash) {
	root, dir := fixture.Dir(t), fixture.Dir(t)
	if elsewhere {
		var err error
		dir, err = os.MkdirTemp("/dev/shm", "pccrun-test")
		require.NoError(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	session, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { session.Close() })
	at, err = unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(at) })
	return root, at, session, &Stash{Open: func() (*os.Root, error) { return session, nil }}
}

func read(t *testing.T, path string) string {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// TestRestore: a tree is shown and comes back as it was, whatever file system the stash is on,
// whatever else led to its files, and not while something has its name.
func TestRestore(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprintf("elsewhere=%t", elsewhere), func(t *testing.T) {
			root, at, session, s := newStash(t, elsewhere)
			tree := root + "/.vscode"
			fixture.Write(t, tree+"/d/task", "run")
			fixture.Write(t, tree+"/big", strings.Repeat("x", 300<<10))
			fixture.Link(t, "../README", tree+"/l")
			require.NoError(t, unix.Mkfifo(tree+"/pipe", 0o600))
			require.NoError(t, os.Link(tree+"/d/task", root+"/other")) // which the next run can write to
			require.NoError(t, os.Chmod(tree, 0o500))                  // whose owner cannot even move it
			c, err := s.Take(at, ".vscode", Finding{Kind: Stashed, Path: tree, Why: ".vscode"})
			require.NoError(t, err)
			require.NotEmpty(t, c.Stash)
			require.NoDirExists(t, tree)
			require.True(t, c.Protected())
			s.Settle()

			found, err := ReadFindings(session)
			require.NoError(t, err)
			require.Len(t, found, 1)
			shown := map[string]string{}
			require.NoError(t, found[0].Show(session, func(path string, content []byte, why string) {
				shown[path] = string(content) + why
			}))
			require.Equal(t, map[string]string{
				"/d/task": "run", "/big": "307200 bytes, not shown", "/l": "a link to ../README", "/pipe": "a special file",
			}, shown)
			_, err = found[0].Seal(session, false)
			require.ErrorIs(t, err, ErrUnseen, "a large file")
			sealed, err := found[0].Seal(session, true)
			require.NoError(t, err)
			require.Len(t, sealed, 1)
			require.NoError(t, os.WriteFile(root+"/other", []byte("changed"), 0o600))
			again, err := found[0].Seal(session, true)
			require.NoError(t, err)
			require.Equal(t, sealed, again)
			body := session.Name() + "/" + StashName + "/" + c.Stash + "/d/task"
			require.NoError(t, os.WriteFile(body, []byte("ran"), 0o600))
			other, err := found[0].Seal(session, true)
			require.NoError(t, err)
			require.NotEqual(t, sealed, other)
			require.NoError(t, os.WriteFile(body, []byte("run"), 0o600))
			require.Nil(t, found[0].Left(session))

			fixture.Write(t, tree, "mine")
			require.ErrorIs(t, found[0].Restore(session), ErrInTheWay)
			require.Equal(t, "mine", read(t, tree))
			require.NoError(t, os.Remove(tree))
			require.NoError(t, found[0].Restore(session))
			require.Equal(t, "run", read(t, tree+"/d/task"), "what was shown")
			target, err := os.Readlink(tree + "/l")
			require.NoError(t, err)
			require.Equal(t, "../README", target)
			info, err := os.Stat(tree)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o500), info.Mode().Perm()&^0o200)
			found, err = ReadFindings(session)
			require.NoError(t, err)
			require.Empty(t, found)
			require.NoError(t, os.Chmod(tree, 0o700))
		})
	}
}

// TestManyVersions: of many versions of a path the first ones and the very last are kept, also
// where they have to be copied, and what was written to the last after that.
func TestManyVersions(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		root, at, session, s := newStash(t, elsewhere)
		var last *os.File
		for i := range maxSame + 4 {
			var err error
			last, err = os.Create(root + "/.envrc")
			require.NoError(t, err)
			fmt.Fprint(last, i)
			_, err = s.Take(at, ".envrc", Finding{Kind: Stashed, Path: root + "/.envrc"})
			require.NoError(t, err)
		}
		fmt.Fprint(last, "!")
		_, err := s.Take(at, ".envrc", Finding{Kind: Stashed, Path: root + "/.envrc"})
		require.ErrorIs(t, err, unix.ENOENT)
		found := s.Settle()
		require.Len(t, found, maxSame)
		require.Equal(t, "0", read(t, session.Name()+"/"+StashName+"/"+found[0].Stash))
		require.Equal(t, fmt.Sprint(maxSame+3, "!"), read(t, session.Name()+"/"+StashName+"/"+found[maxSame-1].Stash))
		left, err := os.ReadDir(root)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// TestStashAway: what is beyond the bound stays where it is, under a name that no tool knows.
func TestStashAway(t *testing.T) {
	root, at, _, s := newStash(t, false)
	require.NoError(t, s.open())
	s.next = maxStash
	fixture.Write(t, root+"/.envrc", "x")
	c, err := s.Take(at, ".envrc", Finding{Kind: Stashed, Path: root + "/.envrc"})
	require.NoError(t, err)
	require.Contains(t, c.What, "the stash is full")
	left, err := filepath.Glob(root + "/" + Prefix + "*")
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, "x", read(t, left[0]))
	_, err = s.renameInPlace(at, ".envrc", Finding{}, unix.EXDEV)
	require.ErrorIs(t, err, unix.ENOENT)
	require.NotEmpty(t, s.Note(Finding{Kind: Review, Path: root + "/AGENTS.md"}, []byte("was"), true).Stash)
}

// TestSettingRestored: a setting that was not taken over is set in what the host's
// configuration is by now, unless it says another thing there.
func TestSettingRestored(t *testing.T) {
	for now, want := range map[string]string{
		"[core]\n\tbare = false\n[user]\n\tname = me\n": "pager = less",
		"[core]\n\tbare = false\n\tpager = mine\n":      "",
	} {
		root, _, session, s := newStash(t, false)
		path := root + "/config"
		before := "[core]\n\tbare = false\n"
		c := s.Pair(Finding{Kind: Setting, Path: path}, []byte(before+"\tpager = less\n"), []byte(before))
		require.NotEmpty(t, c.Stash)
		s.Settle()
		fixture.Write(t, path, now)
		err := c.Restore(session)
		if want == "" {
			require.ErrorIs(t, err, ErrInTheWay)
			require.Equal(t, now, read(t, path))
			continue
		}
		require.NoError(t, err)
		require.Contains(t, read(t, path), want)
		require.Contains(t, read(t, path), "name = me")
		require.Error(t, c.Restore(session), "it is gone from the stash")
	}
}

// TestComplete: of two versions of a configuration, both put back, the later one's settings hold and
// those that only the first had join them, and what the host has set since stays.
func TestComplete(t *testing.T) {
	root, _, session, s := newStash(t, false)
	path := root + "/config"
	left := "[core]\n\tbare = false\n"
	fixture.Write(t, path, left+"[user]\n\tname = me\n")
	take := func(more string) Finding {
		return s.Pair(Finding{Kind: Inert, Path: path}, []byte(left+more), []byte(left))
	}
	first := take("\tpager = old\n[alias]\n\tx = !first\n")
	second := take("\tpager = new\n")
	s.Settle()
	require.Equal(t, left, string(second.Left(session)))
	require.NoError(t, second.Restore(session))
	require.ErrorIs(t, first.Restore(session), ErrInTheWay)
	require.NoError(t, first.Complete(session))
	require.Equal(t, left+"\tpager = new\n[user]\n\tname = me\n[alias]\n\tx = !first\n", read(t, path))
	found, err := ReadFindings(session)
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestMerge: what lay in one git directory is one finding, also when it is read again, and goes back whole or not at all.
func TestMerge(t *testing.T) {
	root, at, session, s := newStash(t, false)
	take := func(name, content string) {
		fixture.Write(t, root+"/"+name, content)
		_, err := s.Take(at, name, Finding{Kind: Inert, Path: root + "/" + name, Why: "foreign", Of: root})
		require.NoError(t, err)
	}
	take("z", "first")
	_, err := s.Take(at, "none", Finding{Kind: Inert, Path: root + "/none", Of: root})
	require.ErrorIs(t, err, unix.ENOENT)
	s.Note(Finding{Kind: Review, Path: root + "/AGENTS.md"}, nil, false)
	take("z", "second")
	for i := range maxPartNames {
		take(fmt.Sprint("a", i), "x")
	}
	for _, found := range [][]Finding{s.Settle(), func() []Finding { list, _ := ReadFindings(session); return list }()} {
		require.Len(t, found, 2)
		require.Equal(t, root, found[0].Path)
		require.Equal(t, "z, a0, a1, a2, a3, 1 more: foreign", found[0].Why)
		require.Len(t, found[0].Parts, 2+maxPartNames)
		require.Nil(t, found[1].Parts)
	}
	found, err := ReadFindings(session)
	require.NoError(t, err)
	fixture.Write(t, root+"/a3", "mine")
	require.ErrorIs(t, found[0].Restore(session), ErrInTheWay)
	require.NoFileExists(t, root+"/a0")
	require.NoError(t, os.Remove(root+"/a3"))
	require.NoError(t, found[0].Restore(session))
	require.Equal(t, "second", read(t, root+"/z"))
	require.FileExists(t, root+"/a4")
	found, err = ReadFindings(session)
	require.NoError(t, err)
	require.Len(t, found, 2, "the first version")
	require.Equal(t, root+"/z", found[0].Path)
}
