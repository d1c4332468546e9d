//go:build linux

package workloads

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/host"
)

// Each workload is done twice, outside as the control and inside with its
// limits, in a project of its own.
func TestWorkloads(t *testing.T) {
	program := host.Program(t)
	for _, w := range All {
		t.Run(w.Name, func(t *testing.T) {
			for _, n := range w.Needs {
				if _, err := exec.LookPath(n); err != nil {
					t.Skip("needs", n)
				}
			}
			for _, prefix := range [][]string{nil, append(append([]string{program, "-q"}, w.Flags...), "--")} {
				dir := t.TempDir()
				require.NoError(t, w.Write(dir))
				argv := append(append([]string{}, prefix...), "bash", "-eu", "-c", w.Solution)
				cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				cmd.Dir = dir
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				require.NoErrorf(t, err, "%s said: %s", argv[0], stderr.String())
				require.NoError(t, w.Check(dir, string(out)))
			}
		})
	}
}

func TestCheckFinds(t *testing.T) {
	w := Workload{Name: "w", Output: "out", Want: map[string]string{"f": "right"}}
	dir := t.TempDir()
	require.ErrorContains(t, w.Check(dir, "else"), "printed")
	require.ErrorContains(t, w.Check(dir, "out"), "no such file")
	require.NoError(t, Workload{Files: map[string]string{"f": "wrong"}}.Write(dir))
	require.ErrorContains(t, w.Check(dir, "out"), `"wrong"`)
	require.NoError(t, Workload{Files: map[string]string{"f": "right"}}.Write(dir))
	require.NoError(t, w.Check(dir, "out"))
}
