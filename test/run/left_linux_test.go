package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTidy(t *testing.T) {
	dir := t.TempDir()
	dirs := []string{dir, filepath.Join(dir, "none")}
	place := func(name string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(path, 0o700))
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
		return path
	}
	who := identity{cred: &syscall.Credential{Uid: uint32(os.Getuid())}}
	stood, changed := place("stood"), place("changed")
	before := who.belongings(dirs)
	require.Len(t, before, 2)
	came := place("came")
	for _, path := range []string{came, changed} {
		require.NoError(t, os.WriteFile(filepath.Join(path, "file"), nil, 0o600))
	}
	for _, other := range []identity{{}, {cred: &syscall.Credential{Uid: who.cred.Uid + 1}}} {
		left, err := other.tidy(dirs, nil)
		require.NoError(t, err)
		require.Empty(t, left, "the caller's, and another user's")
	}
	left, err := who.tidy(dirs, before)
	require.NoError(t, err)
	require.Equal(t, []string{came, changed}, left)
	require.NoDirExists(t, came)
	require.NoDirExists(t, changed)
	require.DirExists(t, stood)
}
