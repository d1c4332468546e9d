package programs

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where a process's own links lead, their text does not say: /proc/N/root of a sandbox reads "/".
func TestFindByAProcess(t *testing.T) {
	w := newWorld(t)
	w.program(w.own+"/tool", "#!/bin/sh")
	w.path("/proc/self/root" + w.own)
	require.Contains(t, w.found("tool"), "sandboxed commands can write /proc/")
	w.path(w.own)
	require.Equal(t, w.own+"/tool", w.found("tool"), "control")
	w.Environ = append(w.Environ, "GNUPGHOME=/proc/self/root/opt", "TZ=/opt")
	p, err := w.Find("tool", nil)
	require.NoError(t, err)
	require.NotContains(t, p.Env, "GNUPGHOME=/proc/self/root/opt")
	require.Contains(t, p.Env, "TZ=/opt", "control")
	covers, err := w.Covers("/proc/self/status")
	require.False(t, covers, "no link but self itself")
	require.NoError(t, err)
	_, err = os.Stat("/proc/self/root" + w.own + "/tool")
	require.NoError(t, err, "control: the kernel goes there")
}

// A tree that was renamed, or whose parent was, is still what a run could write; a new one in its place is so by its path.
func TestFindInARenamedTree(t *testing.T) {
	w := newWorld(t)
	tree := w.dir + "/parent/tree"
	require.NoError(t, os.MkdirAll(tree+"/bin", 0o755))
	w.program(tree+"/bin/tool", "#!/bin/sh")
	w.path(w.dir + "/other/tree/bin")
	require.NoError(t, os.Rename(w.dir+"/parent", w.dir+"/other"))
	require.Equal(t, w.dir+"/other/tree/bin/tool", w.found("tool"), "control: no run could write it")
	require.NoError(t, os.Rename(w.dir+"/other", w.dir+"/parent"))
	require.NoError(t, w.Cover([]string{tree}))
	require.NoError(t, os.Rename(w.dir+"/parent", w.dir+"/other"))
	require.Contains(t, w.found("tool"), "sandboxed commands can write "+w.dir+"/other/tree")
}
