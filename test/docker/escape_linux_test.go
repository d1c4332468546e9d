package docker_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/escape"
)

// tried are probes of every kind: of the launcher in a cage and out of it, with an internet
// of the suite's and without, one that the host acts in, and one through a gap that the
// provider names. make test-long tries all.
const tried = "FS-001,FS-013,FS-030,FS-067,NS-003,NS-007,KS-046,NET-003,NET-012,DNS-002,IPC-003,RES-005,LCH-022,PER-001,TTY-003,INF-006"

// TestEscape holds what the provider claims against the probes of the suite.
func TestEscape(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		args := append([]string{"escape", "--json"}, on(runtime)...)
		if os.Getenv("PCCRUN_LONG") == "" {
			args = append(args, "--id", tried)
		}
		code, out, errs := status(t, pccrun(t, k.dir, args...))
		assert.Zero(t, code, errs)
		verdicts, gaps := map[string]int{}, 0
		for line := range strings.Lines(out) {
			var r struct{ ID, Name, Verdict, Reason, Gap, Target string }
			require.NoError(t, json.Unmarshal([]byte(line), &r))
			verdicts[r.Verdict]++
			assert.Contains(t, r.Target, "docker")
			assert.NotContains(t, []string{"error", "vacuous"}, r.Verdict, "%s %s: %s", r.ID, r.Name, r.Reason)
			if r.Verdict == "escaped" && r.Gap != "" {
				gaps++
			}
		}
		t.Log(verdicts)
		assert.Greater(t, verdicts["blocked"], 5)
		assert.Positive(t, gaps, "the control: the suite finds what the provider says that it does not keep")
	})
}

// TestGaps holds the words by which a probe knows a gap against what the provider says: one
// that is worded anew would count as an escape that nobody has named.
func TestGaps(t *testing.T) {
	causes := ""
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		k.request.Limits[5] = "48m"
		plan, err := k.plan(t, "true")
		require.NoError(t, err)
		for _, a := range plan.Answers() {
			if a.State == profiles.Weak {
				causes += a.Cause + "\n"
			}
		}
	})
	for _, p := range escape.Probes() {
		if world.gvisor || p.Guarantee != profiles.LaunchIntegrity && causes != "" {
			assert.Contains(t, causes, p.Gap, p.ID)
		}
	}
}
