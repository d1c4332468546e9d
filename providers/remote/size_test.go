package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// TestFit: a place gives the nearest size at or above what is asked for, and none where it has none so large.
func TestFit(t *testing.T) {
	small, large := profiles.Size{CPUs: 1, MemoryMB: 2048}, profiles.Size{CPUs: 4, MemoryMB: 8192}
	own := profiles.Size{CPUs: 2, MemoryMB: 512}
	list := &Facts{Size: small, Sizes: []profiles.Size{large, small}, PerCPU: 1, PerGiB: 1}
	steps := &Facts{Size: own, Step: profiles.Size{CPUs: 0.5, MemoryMB: 256}, Most: large}
	decided := &Facts{Size: own, SizedBy: "the template"}
	for _, c := range []struct {
		facts *Facts
		want  string
		fits  string
	}{
		{list, "1cpu", "1cpu,2g"}, {list, "1.5cpu", "4cpu,8g"}, {list, "8cpu", ""}, {list, "3g", "4cpu,8g"},
		{steps, "0.7cpu", "1cpu,512m"}, {steps, "1g", "2cpu,1g"}, {steps, "4cpu,8g", "4cpu,8g"}, {steps, "9g", ""},
		{decided, "1cpu", "2cpu,512m"}, {decided, "2cpu,512m", "2cpu,512m"}, {decided, "1g", ""},
	} {
		want, err := profiles.SizeOf(c.want)
		require.NoError(t, err)
		got, ok := c.facts.Fit(want)
		require.Equal(t, c.fits != "", ok, c.want)
		require.Equal(t, c.fits, got.String(), c.want)
	}
}
