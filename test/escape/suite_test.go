//go:build linux

package escape

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// run performs probes in this process, against targets of the test's.
func run(t *testing.T, targets []*Target, choose func(*Probe) bool) []Result {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", shortDir(t))
	var probes []*Probe
	for _, p := range Probes() {
		if choose(p) {
			probes = append(probes, p)
		}
	}
	s := &Suite{Probes: probes, Targets: targets, Command: "pccrun"}
	results, err := s.Run(t.Context())
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(os.Getenv("XDG_CACHE_HOME"), "pccrun"), "the suite left something behind")
	require.NoDirExists(t, s.site.dir, "the suite left something behind")
	return results
}

// shortDir is a directory in the home, if there is one: sockets' paths are
// short, and what lies below /tmp lies below a place that sandboxes may write.
func shortDir(t *testing.T) string {
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = os.MkdirTemp(home, ".e-")
	}
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	return home
}

// worldReadable is a temporary directory whose parents others may pass.
func worldReadable(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "pccrun-escape-test-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func needCage(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if o := firstCage(); o.Kind == Broke {
		t.Skip("needs namespaces: " + o.Detail)
	}
}

// firstCage is what came of the first control of this process.
var firstCage = sync.OnceValue(func() Outcome {
	site, err := openSite()
	if err != nil {
		return Broken("%v", err)
	}
	defer site.close()
	s := &Suite{site: site, host: survey()}
	return s.control(context.Background(), Find("FS-001"))
})
