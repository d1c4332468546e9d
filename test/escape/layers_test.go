//go:build linux

package escape

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// TestLayers holds the launcher to its promise of depth: critical and high
// probes on writes and on the kernel's surface are stopped by two layers, or
// stand in the list of those that one stops, with the reason; those on reads
// by one, and by two under strict, all of them.
func TestLayers(t *testing.T) {
	reads := []profiles.Guarantee{profiles.FSHide}
	for _, c := range []struct {
		name  string
		flags []string
		on    []profiles.Guarantee
	}{
		{"default", nil, append(reads, profiles.FSReadonly, profiles.FSSpecial, profiles.SysFilter, profiles.SysNoNewUserns, profiles.PrivNone)},
		{"strict", []string{"--strict", "--allow-missing", "ipc.unix,info.host"}, reads},
	} {
		t.Run(c.name, func(t *testing.T) {
			chosen := func(p *Probe) bool { return slices.Contains(c.on, p.Guarantee) && p.Severity >= High && !p.Long }
			var results []Result
			if c.flags == nil {
				_, results = native(t, chosen)
			} else {
				verdicts.SkipUnlessLong(t)
			}
			s, target := nativeSuite(t, c.flags...)
			require.Equal(t, c.name == "strict", target.strict)
			want := func(p *Probe) int {
				if p.Guarantee == profiles.FSHide && !target.strict {
					return 1
				}
				return 2
			}
			if results == nil {
				s.Probes = slices.DeleteFunc(slices.Clone(Probes()), func(p *Probe) bool { return !chosen(p) })
				var err error
				results, err = s.Run(t.Context())
				require.NoError(t, err)
			}
			if os.Getenv("PCCRUN_LONG") == "" {
				s.enough = want // else all of them are found, for the table
			}
			rows, err := s.layers(t.Context(), target, results)
			require.NoError(t, err)
			require.NotEmpty(t, rows)
			defer func() { // after what failed: a long table, of which a log may show the beginning
				var b strings.Builder
				writeLayers(&b, rows, target.strict)
				t.Log(b.String())
			}()
			for _, row := range rows {
				if _, excused := oneLayer[row.ID]; len(row.Stopped) < want(Find(row.ID)) && !excused {
					t.Errorf("%s is stopped by %v", row.ID, row.Stopped)
				}
			}
			for _, d := range depths(rows, target.strict) {
				goal, holds := d.goal()
				require.True(t, holds, "%s: %+v", goal, d)
				if target.strict && d.name == kindReads {
					require.Empty(t, d.single)
				}
			}
		})
	}
	for id := range oneLayer {
		require.NotNil(t, Find(id), id)
	}
}
