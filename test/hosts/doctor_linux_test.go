// Package hosts tests pccrun on what machines are made of: file systems, paths,
// tables of mounts, another pccrun around it.
package hosts

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/doctor"
	"github.com/pccrun/pccrun/test/internal/host"
)

// The doctor, with the real launcher: every layer shows, nothing of a secret is
// in the report, nothing is left.
func TestDoctor(t *testing.T) {
	tmp := t.TempDir()
	for _, dir := range []string{tmp, filepath.Dir(tmp)} { // for the identity that root takes
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	t.Setenv("TMPDIR", tmp)
	environ := append(os.Environ(), "MODAL_API_KEY=doctor-secret")
	r, err := doctor.Examine(context.Background(), doctor.Options{Launcher: host.Program(t), Environ: environ})
	require.NoError(t, err)
	require.True(t, r.OK())
	p := r.Providers[0]
	require.Positive(t, p.Launch)
	require.Len(t, p.Guarantees, len(profiles.Guarantees)-2)
	require.Len(t, p.Limits, 3)
	for _, a := range p.Guarantees {
		require.True(t, a.Mechanism != "" || a.Cause != "", a.Guarantee)
	}
	for _, trial := range p.Trials {
		switch trial.Name {
		case "default", "limits":
			require.Equal(t, doctor.Runs, trial.Verdict, "%+v", trial)
		case "strict":
		default:
			require.Equal(t, doctor.Holds, trial.Verdict, "%+v", trial)
			require.NotEqual(t, trial.Seen, trial.Control)
		}
	}
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(text), "MODAL_API_KEY")
	require.NotContains(t, string(text), "doctor-secret")
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}

// What the launcher carries starts where nothing is executed from memory, and
// leaves no file.
func TestNoProgramsInMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to set vm.memfd_noexec")
	}
	for _, level := range []string{"0", "1", "2"} {
		d := place(t)
		out, errs, code := bash(t, `exec unshare --pid --fork --mount-proc sh -c 'echo $LEVEL > /proc/sys/vm/memfd_noexec || exit 77; "$PCCRUN" escape --explain FS-001'`, "TMPDIR="+d, "LEVEL="+level)
		if code == 77 {
			t.Skip("needs a kernel with vm.memfd_noexec")
		}
		require.Zero(t, code, errs)
		require.Contains(t, out, "FS-001")
		left, err := os.ReadDir(d)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}
