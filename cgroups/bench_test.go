//go:build linux

package cgroups

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func BenchmarkSurvey(b *testing.B) {
	for range b.N {
		Survey(Memory | CPUs | Pids)
	}
}

func BenchmarkGroup(b *testing.B) {
	p := Survey(Memory|CPUs|Pids).Plan(Limits{Memory: 1 << 30, CPUs: 1000, Pids: 100}, Options{})
	if len(p.Dirs) == 0 {
		b.Skip("needs control groups")
	}
	for range b.N {
		g, err := p.Create()
		require.NoError(b, err)
		require.NoError(b, g.Remove(time.Second))
	}
}
