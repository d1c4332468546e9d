package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// TestSmallest is what `make test` has of `make test-vm`: one machine boots, an
// unprivileged user launches there, asks the doctor, and tries to escape, and
// what is advised is followed.
//
//test:root
func TestSmallest(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	for _, program := range []string{"qemu-system-x86_64", "apt-get", "dpkg-deb", "mke2fs", "depmod", "modprobe", "xz", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs " + program)
		}
	}
	user, err := os.UserCacheDir()
	require.NoError(t, err)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	// What is downloaded is kept; what is made of this source is not.
	c := cache{filepath.Join(user, "pccrun-test", "vm"), log}
	require.NoError(t, os.MkdirAll(c.dir, 0o755))
	s := findSetup("busybox")
	require.NotNil(t, s)
	m := &machine{cache: c, jobs: 1, dir: t.TempDir(), root: root, pccrun: os.Getenv("PCCRUN_TEST_BIN"), tests: "none"}
	if _, _, err := m.images(t.Context(), s); err != nil {
		t.Skipf("needs a kernel from the package archive: %v", err)
	}
	w := m.row(t.Context(), s, nil)
	t.Log(w.line())
	said, _ := os.ReadFile(log.Name())
	require.Empty(t, w.problems, "%s", tail(string(said), 4000))
	require.Equal(t, "runs", w.verdict())
	require.True(t, w.fixed)
	require.Equal(t, "kept", w.states["sys.filter"])
	require.NotEmpty(t, w.blocked, "no probe was stopped")
	require.False(t, strings.Contains(w.line(), "not tried"))
}
