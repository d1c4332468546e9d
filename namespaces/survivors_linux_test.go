package namespaces

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

func TestSurvivors(t *testing.T) {
	const runs = `runs() { until grep -qsx "$1" /proc/[0-9]*/comm; do :; done; }; `
	for name, c := range map[string]struct {
		script string
		want   []string
		off    []profiles.Layer
	}{
		"none":                 {script: "sleep 0; true"},
		"one that is waited":   {script: "sleep 0.01 & wait"},
		"in the background":    {script: "sleep 60 & runs sleep; exit 0", want: []string{"sleep"}},
		"two, in sessions":     {script: "setsid sleep 60 & (setsid setsid tail -f /dev/null &) ; runs sleep; runs tail", want: []string{"sleep", "tail"}},
		"a grandchild":         {script: "sh -c 'sleep 60; true' & runs sleep", want: []string{"sh", "sleep"}},
		"who ignores signals":  {script: "(trap '' HUP TERM INT; exec sleep 60) & runs sleep", want: []string{"sleep"}},
		"no namespace of pids": {script: "true", off: []profiles.Layer{profiles.LayerPidns}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newBench(t, nil).sh(runs + c.script).without(c.off...).run()
			slices.Sort(o.Survivors)
			require.Equal(t, c.want, o.Survivors)
			require.Zero(t, o.Status.ExitStatus())
		})
	}
	alone(t)
}

// At the deadline everything is ended, and nobody is blamed for being there.
func TestNoSurvivorsAtDeadline(t *testing.T) {
	b := newBench(t, nil).sh("sleep 60 & sleep 60")
	b.plan.Deadline, b.plan.Grace = 50e6, 50e6
	o := b.run()
	require.True(t, o.TimedOut)
	require.Empty(t, o.Survivors)
}
