//go:build linux

package escape

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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

// open is a launcher that protects nothing, in a cage: with it, what the
// control did is done once more.
func controlsEscape(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	site, err := openSite()
	require.NoError(t, err)
	defer site.close()
	s := &Suite{Probes: Probes(), site: site, host: survey()}
	native := &Target{Name: "none", Native: true}
	work := make(chan *Probe)
	failed := make(chan string, len(s.Probes))
	done := make(chan struct{})
	for range 2 {
		go func() {
			for p := range work {
				o := s.control(t.Context(), p)
				if o.Kind == DidEscape || o.Kind == Unmet || o.Kind == DidBlock && absent(o.Errno) {
					continue
				}
				failed <- p.ID + " " + p.Severity.String() + ": " + string(o.Kind) + ": " + o.Detail
			}
			done <- struct{}{}
		}()
	}
	for _, p := range s.Probes {
		if native.lacks(p, s.host) == "" && !p.Long {
			work <- p
		}
	}
	close(work)
	<-done
	<-done
	close(failed)
	for line := range failed {
		t.Error(line)
	}
}

// TestControls holds every probe against a place without protection: it must
// escape there, or it proves nothing anywhere.
func TestControls(t *testing.T) {
	if testing.Short() {
		t.Skip("needs half a minute")
	}
	needCage(t)
	controlsEscape(t)
}

// TestControlsAsUser does the same as somebody without rights.
func TestControlsAsUser(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("needs root, to become somebody else, and half a minute")
	}
	home := worldReadable(t)
	self := filepath.Join(home, "escape.test")
	require.NoError(t, place("/proc/self/exe", self))
	require.NoError(t, os.Chmod(self, 0o755))
	require.NoError(t, os.Chown(home, 54321, 54321))
	cmd := exec.Command(self, "-test.run=^TestControls$", "-test.v")
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	if bytes.Contains(out, []byte("--- SKIP")) {
		t.Skip("needs user namespaces without root")
	}
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
	site, err := openSite()
	require.NoError(t, err)
	defer site.close()
	s := &Suite{site: site, host: survey()}
	if o := s.control(t.Context(), Find("FS-001")); o.Kind == Broke {
		t.Skip("needs namespaces: " + o.Detail)
	}
}
