//go:build linux

package escape

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

type mutation struct {
	off   []profiles.Layer
	probe string
}

// mutations are hardening steps of pccrun that are switched off, one at a time,
// and the probe that must then escape. Where two steps stand behind each other
// the second is switched off too: each alone stops the probe.
var mutations = []mutation{
	{[]profiles.Layer{profiles.LayerSeccomp}, "KS-012"},
	{[]profiles.Layer{profiles.LayerFloor}, "KS-074"},
	{[]profiles.Layer{profiles.LayerSeccomp, profiles.LayerFloor}, "KS-001"},
	{[]profiles.Layer{profiles.LayerSeccomp, profiles.LayerFloor}, "NS-009"},
	{[]profiles.Layer{profiles.LayerUsernsLimit, profiles.LayerSeccomp, profiles.LayerFloor}, "NS-004"},
	{[]profiles.Layer{profiles.LayerKeyring, profiles.LayerSeccomp, profiles.LayerFloor}, "IPC-019"},
	{[]profiles.Layer{profiles.LayerPidns}, "NS-001"},
	{[]profiles.Layer{profiles.LayerNetns}, "NET-001"},
	{[]profiles.Layer{profiles.LayerIpcns}, "IPC-005"},
	{[]profiles.Layer{profiles.LayerUtsns}, "NS-016"},
	{[]profiles.Layer{profiles.LayerCgroupns}, "NS-016"},
	{[]profiles.Layer{profiles.LayerHide}, "FS-001"},
	{[]profiles.Layer{profiles.LayerProtect}, "PER-001"},
	{[]profiles.Layer{profiles.LayerProtect}, "PER-002"},
	{[]profiles.Layer{profiles.LayerProtect}, "PER-037"},
	{[]profiles.Layer{profiles.LayerProtect}, "PER-038"},
	{[]profiles.Layer{profiles.LayerProtect}, "PER-039"},
	{[]profiles.Layer{profiles.LayerProtect}, "PER-040"},
	{[]profiles.Layer{profiles.LayerProcMasks}, "INF-004"},
	{[]profiles.Layer{profiles.LayerDumpable}, "NS-012"},
	{[]profiles.Layer{profiles.LayerNoNewPrivs}, "NS-008"},
	{[]profiles.Layer{profiles.LayerCaps}, "NS-008"},
	{[]profiles.Layer{profiles.LayerEnv}, "LCH-001"},
	{[]profiles.Layer{profiles.LayerFds}, "IPC-011"},
	{[]profiles.Layer{profiles.LayerRlimits}, "RES-007"},
	{[]profiles.Layer{profiles.LayerSockets}, "IPC-003"},
	{[]profiles.Layer{profiles.LayerLandlock}, "FS-038"},
	{[]profiles.Layer{profiles.LayerReadonly}, "FS-015"},
	{[]profiles.Layer{profiles.LayerReadonly, profiles.LayerLandlock}, "FS-002"},
	{[]profiles.Layer{profiles.LayerTTY}, "TTY-004"},
}

// TestMutationsAreComplete wants a row for every step that can be switched off.
func TestMutationsAreComplete(t *testing.T) {
	for _, layer := range Layers {
		require.True(t, slices.ContainsFunc(mutations, func(m mutation) bool { return slices.Contains(m.off, layer) }), "%s is never off", layer)
	}
	for _, name := range profiles.LayerNames() {
		require.Contains(t, Layers, profiles.Layer(name), "the suite does not know this layer")
	}
}

// TestMutations switches hardening steps of the launcher off and wants the
// suite to notice each.
func TestMutations(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	needCage(t)
	pccrun := testLauncher(t)
	for _, m := range mutations {
		target := Native(pccrun, nil).without(m.off)
		t.Run(strings.TrimPrefix(target.Name, "pccrun ")+" "+m.probe, func(t *testing.T) {
			results := run(t, []*Target{Native(pccrun, nil), target}, func(p *Probe) bool { return p.ID == m.probe })
			whole, mutated := results[0], results[1]
			if whole.Verdict == VerdictSkipped {
				t.Skip(whole.Reason)
			}
			require.Equal(t, VerdictBlocked, whole.Verdict, "with all layers: %s %s", whole.Reason, whole.Inside.Detail)
			if mutated.Verdict == VerdictError {
				t.Skipf("needs a host on which the launcher starts so: %s", mutated.Reason)
			}
			require.Equal(t, VerdictEscaped, mutated.Verdict, mutated.Inside.Detail)
		})
	}
}

// testLauncher is the launcher that the environment names, or one that is
// built for the test.
func testLauncher(t *testing.T) string {
	for _, name := range []string{"PCCRUN_LAUNCHER", "PCCRUN_TEST_BIN"} {
		if path := os.Getenv(name); path != "" {
			return path
		}
	}
	pccrun := filepath.Join(t.TempDir(), "pccrun")
	build := exec.Command("go", "build", "-o", pccrun, "github.com/pccrun/pccrun/cmd/pccrun")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("needs the go command and a launcher that builds: %v: %s", err, out)
	}
	return pccrun
}
