package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// A stub stands for a directory in quarantine, and holds nothing; when the run is over it is gone, wherever it is. Where
// none can be made the directory is moved away.
func TestStubs(t *testing.T) {
	w := newWatchman(t)
	w.sh("mkdir p r node_modules")
	staged := filepath.Dir(w.root) + "/staged"
	require.NoError(t, os.Mkdir(staged, 0o700))
	w.begin()
	w.guard.stash.Staged = staged
	var noted, foreign atomic.Uint64
	stubs := NewStubs()
	stubs.Staged = staged
	stubs.Note = func(_, ino uint64) error {
		noted.Store(ino)
		return nil
	}
	stubs.Mount = func(path string, _ *unix.Stat_t, _ int, _ string, _ *unix.Stat_t) error {
		if path == w.path("r/.vscode") {
			return errors.New("no mount")
		}
		return nil
	}
	var taken atomic.Int32
	stubs.Taken = func(path string) {
		if path == w.path(".husky") {
			taken.Add(1)
		}
	}
	stubs.Foreign = func(_, ino uint64) bool { return ino == foreign.Load() }
	w.guard.peers.Stubs(stubs)
	w.guard.Watch()
	told := func(path string) {
		t.Helper()
		require.Equal(t, w.path(path), await.Receive(t, path, w.told).Path)
	}
	ino := func(name string) uint64 {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(w.path(name), &st))
		return st.Ino
	}

	w.sh("mkdir d; echo x > d/t; mv d .vscode")
	told(".vscode")
	require.Equal(t, noted.Load(), ino(".vscode"))
	require.NoFileExists(t, w.path(".vscode/t"))
	w.sh("echo host > .vscode/mine")
	told(".vscode/mine")
	require.DirExists(t, w.path(".vscode"))
	w.sh("mkdir d; echo x > d/t; mv d r/.vscode")
	told("r/.vscode")
	require.NoDirExists(t, w.path("r/.vscode"))

	// Another run's.
	w.sh("mkdir d")
	foreign.Store(ino("d"))
	w.sh("mv d .husky; echo x > .husky/h")
	told(".husky/h")
	require.DirExists(t, w.path(".husky"))
	require.EqualValues(t, 1, taken.Load())

	// One that has come to where no name is protected.
	w.sh("mkdir p/.vscode")
	told("p/.vscode")
	require.Equal(t, noted.Load(), ino("p/.vscode"))
	w.sh("mv p node_modules/")

	// What nothing is in is no finding.
	require.Equal(t, []string{"stashed .husky/h", "stashed .vscode", "stashed .vscode/mine", "stashed r/.vscode"}, w.end())
	for _, name := range []string{".vscode", "node_modules/p/.vscode"} {
		require.NoDirExists(t, w.path(name))
	}
	require.DirExists(t, w.path("node_modules/p"))
	require.DirExists(t, w.path(".husky"))
}

// What a run has left that was killed is known by its inode alone.
func TestStubsOfKilled(t *testing.T) {
	w := newWatchman(t)
	w.begin()
	w.sh("mkdir .vscode .husky; echo x > .husky/h")
	stubs := NewStubs()
	for _, name := range []string{".vscode", ".husky"} {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(w.path(name), &st))
		stubs.Knows(st.Dev, st.Ino, -1)
	}
	w.guard.peers.Stubs(stubs)
	require.Equal(t, []string{"stashed .husky/h"}, w.end())
	require.NoDirExists(t, w.path(".vscode"))
	require.NoDirExists(t, w.path(".husky"))
}
