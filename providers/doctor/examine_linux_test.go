package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/profiles"
)

// launcher writes a program that answers as the script says.
func launcher(t *testing.T, script string) string {
	file := filepath.Join(t.TempDir(), "pccrun")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755))
	return file
}

// A launcher that refuses: nothing is kept, whatever its plan says.
func TestRefused(t *testing.T) {
	at := launcher(t, `case "$*" in
*--dry-run*) echo '{"guarantees":[{"guarantee":"fs.hide","state":"kept","mechanism":"mounts"}]}'; exit 0;;
esac
echo "pccrun: guarantee fs.hide: somewhat" >&2
echo "pccrun: mount proc on /proc: operation not permitted: covered" >&2
echo "pccrun: hint: uncover it" >&2
exit 125`)
	r, err := Examine(context.Background(), Options{Launcher: at, Environ: os.Environ(), Home: t.TempDir(), Programs: &programs.Finder{Environ: os.Environ()}})
	require.NoError(t, err)
	require.False(t, r.OK())
	p := r.Providers[0]
	require.Equal(t, "mount proc on /proc: operation not permitted: covered", p.Refused)
	require.Equal(t, "uncover it", p.Hint)
	for _, a := range p.Guarantees {
		require.Equal(t, profiles.Missing, a.State, a.Guarantee)
		require.Equal(t, p.Refused, a.Cause)
	}
	for _, trial := range p.Trials {
		require.Equal(t, Refused, trial.Verdict, trial.Name)
		require.Equal(t, "uncover it", trial.Hint, trial.Name)
	}
}

// A guarantee that is missed is named, and so are all others.
func TestMissing(t *testing.T) {
	at := launcher(t, `case "$*" in
*"--allow-missing fs.hide --allow-missing res.pids"*) echo '{"guarantees":[{"guarantee":"fs.hide","state":"missing","cause":"none"},{"guarantee":"env.scrub","state":"kept","mechanism":"own"},{"guarantee":"ipc.unix","state":"weak","mechanism":"some","cause":"gap"}]}'; exit 0;;
*"--allow-missing fs.hide"*) echo "pccrun: guarantee res.pids: missing: too" >&2; exit 125;;
esac
echo "pccrun: guarantee fs.hide: missing: none (required by default: x)" >&2
echo "pccrun: guarantee res.pids: missing: too" >&2
echo "pccrun: hint: mend that" >&2
echo "pccrun: hint: --allow-missing fs.hide,res.pids runs although they are not kept" >&2
exit 125`)
	r, err := Examine(context.Background(), Options{Launcher: at, Environ: os.Environ(), Home: t.TempDir(), Programs: &programs.Finder{Environ: os.Environ()}})
	require.NoError(t, err)
	states := map[profiles.Guarantee]profiles.State{}
	for _, a := range r.Providers[0].Guarantees {
		states[a.Guarantee] = a.State
	}
	require.Equal(t, "guarantee fs.hide: missing: none (required by default: x)", r.Providers[0].Refused, "the first of them")
	require.Empty(t, r.Providers[0].Hint, "which is not the second's")
	require.Equal(t, profiles.Missing, states[profiles.FSHide])
	require.Equal(t, profiles.Kept, states[profiles.EnvScrub])
	require.Equal(t, profiles.Weak, states[profiles.IPCUnix])
}

// What becomes of the network shows where there is one.
func TestCaptured(t *testing.T) {
	const plan = `case "$*" in
*--dry-run*) echo '{"guarantees":[{"guarantee":"net.transparent","state":"kept","mechanism":"rules"}]}'; exit 0;;
*"--local "*) `
	for script, want := range map[string]profiles.Answer{
		"exit 0": {State: profiles.Kept, Mechanism: "rules"},
		`echo "pccrun: guarantee net.transparent: weak, by routes: no rules" >&2; exit 0`: {State: profiles.Weak, Mechanism: "routes", Cause: "no rules"},
		`echo "pccrun: guarantee net.transparent: missing: no way (required by flag --local)" >&2; echo "pccrun: hint: go without" >&2; exit 125`: {
			State: profiles.Missing, Cause: "no way (required by flag --local)", Hint: "go without"},
	} {
		r, err := Examine(context.Background(), Options{Launcher: launcher(t, plan+script+";;\nesac"), Environ: os.Environ(), Home: t.TempDir(), Programs: &programs.Finder{Environ: os.Environ()}})
		require.NoError(t, err)
		i := slices.IndexFunc(r.Providers[0].Guarantees, func(a profiles.Answer) bool { return a.Guarantee == profiles.NetTransparent })
		want.Guarantee = profiles.NetTransparent
		require.Equal(t, want, r.Providers[0].Guarantees[i], script)
	}
}

// Where the default profile runs and strict does not, that is what is reported.
func TestStrictIsRefused(t *testing.T) {
	at := launcher(t, `case "$*" in
*strict*) echo "pccrun: guarantee sys.filter: only weakly kept" >&2; echo "pccrun: hint: --allow-missing sys.filter" >&2; exit 125;;
*--dry-run*) echo '{"guarantees":[{"guarantee":"fs.hide","state":"kept","mechanism":"m"},{"guarantee":"res.memory","state":"missing","cause":"c","hint":"h"}]}'; echo "pccrun: a warning" >&2;;
esac`)
	r, err := Examine(context.Background(), Options{Launcher: at, Environ: os.Environ(), Home: t.TempDir(), Programs: &programs.Finder{Environ: os.Environ()}})
	require.NoError(t, err)
	p := r.Providers[0]
	require.True(t, p.Runs && r.OK())
	require.Positive(t, p.Launch)
	require.Contains(t, p.Guarantees, profiles.Answer{Guarantee: profiles.FSHide, Mechanism: "m"})
	require.Contains(t, p.Limits, profiles.Answer{Guarantee: profiles.ResMemory, State: profiles.Missing, Cause: "c", Hint: "h"})
	require.Equal(t, Trial{Name: "default", Verdict: Runs}, p.Trials[0])
	require.Equal(t, Trial{Name: "strict", Verdict: Refused, Seen: "guarantee sys.filter: only weakly kept", Hint: "--allow-missing sys.filter"}, p.Trials[3])
}

func TestLaunchFails(t *testing.T) {
	x := &examiner{Options: Options{Launcher: "/nonexistent", Environ: os.Environ(), Home: t.TempDir()}}
	require.NoError(t, x.prepare())
	defer x.close()
	text, _, ok := refusal(x.launch(context.Background()))
	require.False(t, ok)
	require.Contains(t, text, "no such file")
	x.Launcher = launcher(t, "exit 3")
	text, _, _ = refusal(x.launch(context.Background()))
	require.Equal(t, "exit status 3", text)
}

// A line that names a guarantee is the refusal, also where its text has a flag; one about a flag of the trial is not.
func TestRefusalNamesTheGuarantee(t *testing.T) {
	l := launch{code: 125, errors: "pccrun: run: --cpus: noted\npccrun: guarantee res.cpu: missing: a fraction needs a control group: --cpus 1 would be more\npccrun: hint: --cpus 1\n"}
	text, hint, ok := refusal(l)
	require.False(t, ok)
	require.Equal(t, "--cpus 1", hint)
	name, is := missing(text)
	require.True(t, is, text)
	require.Equal(t, "res.cpu", name)
}
