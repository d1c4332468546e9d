//go:build linux

package escape

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// TestLayers holds the launcher to its promise of depth: critical and high
// probes on writes and on the kernel's surface are stopped by two layers, or
// stand in the list of those that one stops, with the reason; those on reads
// by one.
func TestLayers(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a minute")
	}
	needCage(t)
	target := Native(testLauncher(t), nil)
	site, err := openSite()
	require.NoError(t, err)
	defer site.close()
	s := &Suite{Targets: []*Target{target}, Command: "pccrun", site: site}
	for _, p := range Probes() {
		switch p.Guarantee {
		case profiles.FSReadonly, profiles.FSSpecial, profiles.SysFilter, profiles.SysNoNewUserns, profiles.PrivNone, profiles.FSHide:
			if p.Severity >= High && !p.Long {
				s.Probes = append(s.Probes, p)
			}
		}
	}
	results, err := s.Run(t.Context())
	require.NoError(t, err)
	rows, err := s.layers(t.Context(), target, results)
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	var b strings.Builder
	writeLayers(&b, rows)
	t.Log(b.String())
	for _, row := range rows {
		switch _, excused := oneLayer[row.ID]; {
		case len(row.Stopped) >= 2, excused && len(row.Stopped) == 1, row.ID == "NS-008":
		case row.Guarantee == profiles.FSHide && len(row.Stopped) == 1:
		default:
			t.Errorf("%s is stopped by %v", row.ID, row.Stopped)
		}
	}
	for _, d := range depths(rows) {
		require.True(t, d.holds(), "%+v", d)
	}
	for id := range oneLayer {
		require.NotNil(t, Find(id), id)
	}
}
