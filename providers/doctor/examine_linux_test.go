package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/profiles"
)

// Every layer but the terminal has a look: a new one needs one as well.
func TestEveryLayerIsLookedAt(t *testing.T) {
	has := map[profiles.Layer]bool{profiles.LayerTTY: true}
	for _, l := range looks {
		has[l.layer] = true
	}
	for _, l := range profiles.Layers {
		require.True(t, has[l], l)
	}
}

// launcher writes a program that answers as the script says.
func launcher(t *testing.T, script string) string {
	file := filepath.Join(t.TempDir(), "pccrun")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755))
	return file
}

// A launcher that refuses: nothing is kept, and the trials say which layer is
// to blame.
func TestRefused(t *testing.T) {
	at := launcher(t, `case "$*" in
*"--without pidns "*) exit 0;;
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
		require.Equal(t, trial.Name == "pidns", trial.Control != "", trial.Name)
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

func TestLaunchFails(t *testing.T) {
	x := &examiner{launcher: "/nonexistent", environ: os.Environ(), home: t.TempDir()}
	require.NoError(t, x.lay())
	defer x.close()
	text, _, ok := refusal(x.launch(context.Background(), nil, "true"))
	require.False(t, ok)
	require.Contains(t, text, "no such file")
	x.launcher = launcher(t, "exit 3")
	text, _, _ = refusal(x.launch(context.Background(), nil, "true"))
	require.Equal(t, "exit status 3", text)
	_, err := x.inside(context.Background(), nil)
	require.EqualError(t, err, "exit status 3")
	x.launcher = launcher(t, "echo nonsense")
	require.Equal(t, Refused, x.layer(context.Background(), looks[0], true).Verdict)
}

// A layer that lets through what it should stop, and one without a control.
func TestLayerVerdicts(t *testing.T) {
	for script, want := range map[string]Verdict{
		`echo '{"seccomp":"no filter"}'`: Open,
		`echo '{"seccomp":"a filter"}'`:  Shows,
		`case "$*" in *"--without seccomp"*) echo '{"seccomp":"no filter"}';; *) echo '{"seccomp":"a filter"}';; esac`: Holds,
		`case "$*" in *"--without seccomp"*) exit 1;; *) echo '{"seccomp":"a filter"}';; esac`:                         Refused,
	} {
		x := &examiner{launcher: launcher(t, script), environ: os.Environ(), home: t.TempDir()}
		require.NoError(t, x.lay())
		require.Equal(t, want, x.layer(context.Background(), looks[0], true).Verdict, script)
		require.NoError(t, x.close())
	}
}

// What somebody around has done already is not open, and shows nothing.
func TestLayerOfSomebodyElse(t *testing.T) {
	at := slices.IndexFunc(looks, func(l look) bool { return l.layer == profiles.LayerRlimits })
	for host, want := range map[string]Verdict{"core dumps of at most 0": Shows, "core dumps of at most 5": Open} {
		x := &examiner{launcher: launcher(t, `echo '{"rlimits":"`+host+`"}'`), environ: os.Environ(), home: t.TempDir()}
		require.NoError(t, x.lay())
		x.scene.Host[profiles.LayerRlimits] = host
		require.Equal(t, want, x.layer(context.Background(), looks[at], true).Verdict, host)
		require.NoError(t, x.close())
	}
}

func TestInside(t *testing.T) {
	require.Equal(t, 125, Inside(nil))
	require.Equal(t, 125, Inside([]string{"{"}))
	require.Zero(t, Inside([]string{`{"Shown":"/nonexistent","Hidden":"/nonexistent","Workspace":"/nonexistent"}`}))
	s := scene{Shown: "/nonexistent"}
	seen := s.look()
	require.Equal(t, "ENOENT", seen[profiles.LayerHide])
	require.Equal(t, "ENOENT", seen[profiles.LayerReadonly])
	require.True(t, strings.HasPrefix(seen[profiles.LayerPidns], "pid:["))
	require.Equal(t, "unknown", status("NoSuchField"))
}
