// Package hosts tests pccrun on what machines are made of: file systems, paths,
// tables of mounts, another pccrun around it.
package hosts

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/doctor"
	"github.com/pccrun/pccrun/test/internal/host"
)

// The doctor, with the real launcher: nothing of a secret is in the report, nothing is left.
func TestDoctor(t *testing.T) {
	tmp := t.TempDir()
	for _, dir := range []string{tmp, filepath.Dir(tmp)} { // for the identity that root takes
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	t.Setenv("TMPDIR", tmp)
	environ := append(os.Environ(), "MODAL_API_KEY=doctor-secret")
	r, err := doctor.Examine(context.Background(), doctor.Options{Launcher: host.Program(t), Environ: environ, Programs: &programs.Finder{Environ: environ}})
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
		if trial.Name != "strict" {
			require.Equal(t, doctor.Runs, trial.Verdict, "%+v", trial)
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

// What the launcher carries starts where nothing is executed from memory, from a
// directory that no variable names, and leaves no file. Where there is none that
// is the user's own and may hold programs, it says so.
func TestNoProgramsInMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to set vm.memfd_noexec")
	}
	const script = `
mount -t tmpfs none /run; mkdir -p /run/user/0; chmod 700 /run/user/0
mount -t tmpfs -o ro none "$D"
$PREPARE
export TMPDIR="$D" XDG_RUNTIME_DIR="$D" XDG_STATE_HOME="$D"
code=0
unshare --pid --fork --mount-proc sh -c 'echo $LEVEL > /proc/sys/vm/memfd_noexec || exit 77; "$PCCRUN" escape --explain FS-001' || code=$?
find /run/user "$OWN" -name 'pccrun-whole-*'
exit $code`
	noexec := `mount -t tmpfs -o noexec none /run/user/0; mount -t tmpfs -o noexec none "$OWN"`
	for name, c := range map[string]struct {
		level, prepare, refused string
	}{
		"from memory":            {level: "0", prepare: noexec},
		"from /run/user":         {level: "2"},
		"the lower level":        {level: "1"},
		"from the home":          {level: "2", prepare: `rmdir /run/user/0; mount -t tmpfs -o mode=700 none "$OWN"`},
		"nowhere":                {level: "2", prepare: noexec, refused: "mounted noexec"},
		"another can write":      {level: "2", prepare: `mount -t tmpfs -o mode=777 none /run/user/0; mount -t tmpfs -o mode=777 none "$OWN"`, refused: "writable for all"},
		"it is somebody else's":  {level: "2", prepare: `chown 1 /run/user/0; mount -t tmpfs -o uid=1 none "$OWN"`, refused: "belongs to uid 1"},
		"what a killed one left": {level: "2", prepare: "touch -d '1 hour ago' /run/user/0/pccrun-whole-999999999-1"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := bash(t, strings.Replace(script, "$PREPARE", c.prepare, 1), "D="+place(t), "LEVEL="+c.level, "OWN="+profiles.ThisHost().Home)
			if code == 77 {
				t.Skip("needs a kernel with vm.memfd_noexec")
			}
			require.NotContains(t, out, "pccrun-whole-", "nothing is left")
			if c.refused != "" {
				require.Equal(t, 125, code)
				require.Contains(t, errs, c.refused)
				require.Contains(t, errs, "/run/user/0")
				return
			}
			require.Zero(t, code, errs)
			require.Contains(t, out, "FS-001")
		})
	}
	t.Run("a signal reaches it", func(t *testing.T) {
		ended := strings.Replace(script, `"$PCCRUN" escape --explain FS-001`, `"$PCCRUN" escape --wrap "env --" --id LCH-026 & while kill -0 $! && ! pgrep -f "[_]_cage" >/dev/null; do sleep 0.05; done; kill -TERM $!; wait $!; echo status $?; pgrep -c pccrun`, 1)
		out, errs, _ := bash(t, strings.Replace(ended, "$PREPARE", "", 1), "D="+place(t), "LEVEL=2", "OWN="+profiles.ThisHost().Home)
		if out == "" {
			t.Skip("needs a kernel with vm.memfd_noexec")
		}
		require.Equal(t, "status 143\n0\n", out[max(0, strings.LastIndex(out, "status")):], "%s%s", out, errs)
	})
}
