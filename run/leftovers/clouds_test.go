package leftovers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
)

// shelf is a provider that has some resources, and makes none.
type shelf struct {
	providers.Provider
	has       []providers.Resource
	destroyed []string
	lost      error
	account   string
}

func (s *shelf) Account() string { return s.account }

func (s *shelf) Find(_ context.Context, label string) (found []providers.Resource, err error) {
	for _, r := range s.has {
		if label == "" || r.Labels[providers.LabelKey] == label {
			found = append(found, r)
		}
	}
	return found, s.lost
}

func (s *shelf) Destroy(_ context.Context, r providers.Resource) error {
	if r.ID == "stuck" {
		return errors.New("stuck")
	}
	s.destroyed = append(s.destroyed, r.ID)
	return nil
}

// built is a program with two clouds, of which one has its key.
func built(place *shelf) run.Program {
	return run.Program{Provider: func(name string, _ *profiles.Request, _ providers.Host) (providers.Provider, error) {
		if name != "e2b" && name != "modal" {
			return nil, nil
		}
		return place, nil
	}}
}

// stderr is what a function prints there.
func stderr(t *testing.T, do func()) string {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	defer func(was *os.File) { os.Stderr = was }(os.Stderr)
	os.Stderr = f
	do()
	text, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	return string(text)
}

func labelled(id, label string) providers.Resource {
	return providers.Resource{Provider: "e2b", ID: id, Labels: map[string]string{providers.LabelKey: label}}
}

// What no session goes on with is destroyed, what could not be fetched only if all is.
func TestOrphans(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("E2B_API_KEY", "e2b_0000")
	home, err := run.Sessions()
	require.NoError(t, err)
	record := func(id, label string) *sessions.Session {
		s := home.Begin(sessions.Info{})
		dir, err := s.Dir()
		require.NoError(t, err)
		require.NoError(t, dir.WriteFile(sessions.UnfetchedName, nil, 0o600))
		require.NoError(t, s.Update(func(i *sessions.Info) { r := labelled(id, label); i.Resource = &r }))
		s.Keep(run.KeepUnfetched)
		return s
	}
	running := record("runs", "a")
	require.NoError(t, record("unfetched", "b").End(0))
	kept, ok, err := home.Newest(func(e sessions.Entry) bool { return e.Unfetched })
	require.NoError(t, err)
	require.True(t, ok)
	c := &Kept{home: home, Entry: kept}
	require.ErrorContains(t, c.Begin(run.Program{}), "its changes were not all downloaded")
	dir, err := home.Open(kept.ID)
	require.NoError(t, err)
	require.NoError(t, dir.WriteFile(sessions.UnfetchedName, []byte(`{"came":true}`), 0o600))
	require.True(t, c.came(), "what can come is here")
	require.NoError(t, dir.Close())
	place := &shelf{has: []providers.Resource{labelled("runs", "a"), labelled("unfetched", "b"), labelled("orphan", "c"), labelled("stuck", "d")}}
	program := built(place)

	gone, unasked, err := Orphans(program, home, true, false)
	require.NoError(t, err)
	require.Equal(t, []string{"e2b orphan", "e2b stuck"}, gone)
	require.Empty(t, place.destroyed, "a dry run")
	require.Contains(t, unasked, Unasked{"modal", "not set: MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"})
	require.NotContains(t, fmt.Sprint(unasked), "e2b")
	gone, _, err = Orphans(program, home, false, false)
	require.EqualError(t, err, "stuck")
	require.Equal(t, []string{"e2b orphan"}, gone)
	_, _, err = Orphans(program, home, false, true)
	require.Error(t, err)
	require.Equal(t, []string{"orphan", "unfetched", "orphan"}, place.destroyed)
	require.NoError(t, running.End(0))

	require.Error(t, ClearCrashed(program, home, sessions.Entry{Info: sessions.Info{Resource: kept.Resource}, Unfetched: true}), "no session")
	require.NoError(t, ClearCrashed(program, home, kept))
	kept, err = home.Find(kept.ID)
	require.NoError(t, err)
	require.False(t, kept.Unfetched, "there is nothing to be downloaded any more")

	r := labelled("", "a")
	require.NoError(t, run.Destroy(program, &r), "by its label")
	require.Contains(t, place.destroyed, "runs")
	r, place.has, place.account = labelled("elsewhere", "e"), nil, "one"
	for account, want := range map[string]string{"": "", "one": "", "another": "pccrun: sandbox elsewhere was not found with this key of e2b, and the run had another one: "} {
		r.Account = account
		say := stderr(t, func() { require.NoError(t, run.Destroy(program, &r)) })
		require.Equal(t, want != "", say != "", say)
		require.Contains(t, say, want)
	}
	gone, unasked, err = Orphans(run.Program{}, home, false, true)
	require.NoError(t, err)
	require.Empty(t, gone, "a program without providers")
	require.Empty(t, unasked)
	program.Become = func() int { return 0 }
	require.ErrorContains(t, run.Destroy(program, &r), "pccrun gc removes it")
}

// A sandbox that stands for the next run is no orphan until all goes, and ends with its session.
func TestKeptSandbox(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("E2B_API_KEY", "e2b_0000")
	home, err := run.Sessions()
	require.NoError(t, err)
	s := home.Begin(sessions.Info{})
	dir, err := s.Dir()
	require.NoError(t, err)
	require.NoError(t, dir.WriteFile(sessions.KeptName, nil, 0o600))
	s.Keep(sessions.KeepSandbox)
	require.NoError(t, s.Update(func(i *sessions.Info) {
		r := labelled("stands", "a")
		r.Until = time.Now().Add(time.Hour)
		i.Resource = &r
	}))
	require.NoError(t, s.End(0))
	place := &shelf{has: []providers.Resource{labelled("stands", "a")}}
	program := built(place)
	gone, _, err := Orphans(program, home, false, false)
	require.NoError(t, err)
	require.Empty(t, gone)
	gone, _, err = Orphans(program, home, true, true)
	require.NoError(t, err)
	require.Equal(t, []string{"e2b stands"}, gone)
	e, err := home.Find(s.ID())
	require.NoError(t, err)
	require.True(t, e.Standing)
	require.NoError(t, ClearCrashed(program, home, e))
	require.Equal(t, []string{"stands"}, place.destroyed)
	_, err = home.Find(s.ID())
	require.ErrorIs(t, err, sessions.ErrNoSession)
}

// What cannot be found, or asked, is an error, and nothing is destroyed.
func TestDestroyFails(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("E2B_API_KEY", "e2b_0000")
	home, err := run.Sessions()
	require.NoError(t, err)
	place := &shelf{has: []providers.Resource{labelled("stuck", "d")}}
	program := built(place)
	r := labelled("stuck", "d")
	require.EqualError(t, ClearCrashed(program, home, sessions.Entry{Info: sessions.Info{Resource: &r}}), "stuck")
	require.ErrorContains(t, run.Destroy(program, &sessions.Resource{Provider: "nowhere"}), "nowhere")
	place.lost = errors.New("lost")
	require.ErrorContains(t, run.Destroy(program, &r), "find what session d left: lost")
	_, _, err = Orphans(program, home, false, true)
	require.ErrorContains(t, err, "lost")
	program.Provider = func(name string, _ *profiles.Request, _ providers.Host) (providers.Provider, error) {
		if name != "e2b" {
			return nil, nil
		}
		return nil, errors.New("no client")
	}
	require.ErrorContains(t, run.Destroy(program, &r), "no client")
	_, _, err = Orphans(program, home, false, true)
	require.EqualError(t, err, "no client")
	require.Empty(t, place.destroyed)
	_, err = OpenChanges("none")
	require.Error(t, err)
}
