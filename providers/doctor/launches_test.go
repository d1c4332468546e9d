//go:build unix

package doctor

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// A launcher that is a script stands in for one that runs on another system.
func TestByLaunches(t *testing.T) {
	launcher := t.TempDir() + "/pccrun"
	write := func(text string) { require.NoError(t, os.WriteFile(launcher, []byte("#!/bin/sh\n"+text), 0o755)) }
	o := Options{Launcher: launcher, Environ: []string{"PATH=/usr/bin:/bin"}}
	write(`case "$*" in
	*--dry-run*) echo '{"guarantees":[{"guarantee":"fs.hide","state":"kept","mechanism":"m"},{"guarantee":"res.memory","state":"missing","cause":"c","hint":"h"}]}'; echo "pccrun: a warning" >&2;;
	*strict*) echo "pccrun: guarantee sys.filter: only weakly kept" >&2; echo "pccrun: hint: --allow-missing sys.filter" >&2; exit 125;;
	esac`)
	r, err := byLaunches(t.Context(), o, "/bin/true")
	require.NoError(t, err)
	p := r.Providers[0]
	require.True(t, p.Runs && r.OK())
	require.Equal(t, []profiles.Answer{
		{Guarantee: profiles.FSHide, Mechanism: "m"}, {Guarantee: profiles.ResMemory, State: profiles.Missing, Cause: "c", Hint: "h"},
	}, p.Guarantees)
	require.Equal(t, []Trial{{Name: "strict", Verdict: Refused, Seen: "guarantee sys.filter: only weakly kept", Hint: "--allow-missing sys.filter"}}, p.Trials)
	require.Positive(t, p.Launch)

	write(`echo "pccrun: provider native: in a sandbox already" >&2; echo "pccrun: hint: another terminal" >&2; exit 125`)
	r, err = byLaunches(t.Context(), o, "/bin/true")
	require.NoError(t, err)
	require.False(t, r.OK())
	require.Equal(t, "provider native: in a sandbox already", r.Providers[0].Refused)
	require.Equal(t, "another terminal", r.Providers[0].Hint)

	write(`echo no plan`)
	_, err = byLaunches(t.Context(), o, "/bin/true")
	require.ErrorContains(t, err, "the plan of a run")
	require.NoError(t, os.Remove(launcher))
	_, err = byLaunches(t.Context(), o, "/bin/true")
	require.ErrorContains(t, err, "start "+launcher)
}
