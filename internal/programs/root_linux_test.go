package programs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const somebody = 54321

func give(t *testing.T, uid int, paths ...string) {
	for _, path := range paths {
		require.NoError(t, os.Lchown(path, uid, uid))
	}
}

// Root executes nothing that another user can change, whose runs root's record does not know, unless root trusts it.
//
//test:root
func TestRootExecutesItsOwn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	w := newWorld(t)
	honest := w.program(w.own+"/tool", "#!/bin/sh")
	first := w.dir + "/first"
	require.NoError(t, os.Mkdir(first, 0o755))
	planted := w.program(first+"/tool", "#!/bin/sh")
	w.path(first, w.own)
	require.Equal(t, planted, w.found("tool"), "the control")
	for name, lay := range map[string]func(){
		"a directory": func() { give(t, somebody, first) },
		"a file":      func() { give(t, 0, first); give(t, somebody, planted) },
		"a group's":   func() { give(t, 0, planted); require.NoError(t, os.Chown(first, 0, somebody)); w.mode("first", 0o775) },
		"a link": func() {
			require.NoError(t, os.Remove(planted))
			w.link(planted, honest)
			give(t, somebody, planted)
		},
		"its interpreter": func() {
			require.NoError(t, os.Remove(planted))
			sh := w.program(w.dir+"/sh", "#!/bin/sh")
			give(t, somebody, sh)
			w.program(planted, "#!"+sh)
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(first))
			require.NoError(t, os.Mkdir(first, 0o755))
			w.program(planted, "#!/bin/sh")
			w.notes = nil
			lay()
			require.Equal(t, honest, w.found("tool"))
			require.Len(t, w.notes, 1)
			require.Contains(t, w.notes[0], "root executes only what root alone can change, and not ")
		})
	}
	require.NoError(t, os.RemoveAll(first))
	require.NoError(t, os.Mkdir(first, 0o755))
	give(t, somebody, first, w.program(planted, "#!/bin/sh"))
	_, err := w.Trust(planted)
	require.NoError(t, err)
	require.Equal(t, planted, w.found("tool"), "what the hint says")
}

// What root's run can write stands in the record of whom it belongs to, made by his rights alone.
//
//test:root
func TestCoverFor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir() // which he can enter
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	home, tree := dir+"/home", dir+"/home/tree"
	require.NoError(t, os.MkdirAll(tree, 0o755))
	give(t, somebody, home, tree)
	groups, err := unix.Getgroups()
	require.NoError(t, err)
	require.NoError(t, CoverFor(somebody, somebody, home, []string{tree}))
	file := home + "/.local/state/pccrun/" + recordName
	info, err := os.Stat(file)
	require.NoError(t, err)
	uid, gid := owner(info)
	require.Equal(t, []uint32{somebody, somebody}, []uint32{uid, gid})
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, recorded(tree), string(text))
	now, err := unix.Getgroups()
	require.NoError(t, err)
	require.Equal(t, []any{0, groups}, []any{os.Geteuid(), now}, "it is root again")
	require.NoError(t, os.WriteFile(dir+"/roots", nil, 0o600), "with root's rights")

	// A link of his leads root nowhere.
	roots := dir + "/private"
	require.NoError(t, os.Mkdir(roots, 0o700))
	require.NoError(t, os.RemoveAll(home+"/.local"))
	require.NoError(t, os.Symlink(roots, home+"/.local"))
	require.Error(t, CoverFor(somebody, somebody, home, []string{tree}))
	require.NoFileExists(t, filepath.Join(roots, "state"))
	// A home that is not his holds no record.
	require.NoError(t, CoverFor(somebody, somebody, dir, []string{tree}))
	require.NoDirExists(t, dir+"/.local")
}
