package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/workspace/changes"
)

// fetcher is a provider with a copy of the workspace, which outlives a run whose download failed.
type fetcher interface {
	Fetch(ctx context.Context, r providers.Resource, stdio providers.Stdio, o providers.Observer) error
}

// Download brings what a session's command changed at a cloud, and returns how many paths that are.
// They are in the session then, as if its own download had come through.
func Download(ctx context.Context, program Program, home sessions.Home, e sessions.Entry, progress func(what string, done, total int64), o providers.Observer) (paths int, err error) {
	switch {
	case e.State == sessions.Running:
		return 0, fmt.Errorf("session %s: %w; it downloads when it ends", e.ID, sessions.ErrAlive)
	case !e.Unfetched:
		return 0, fmt.Errorf("session %s: nothing is left to be downloaded", e.ID)
	}
	kind, err := providers.KindOf(e.Resource.Provider)
	if err != nil {
		return 0, err
	}
	req := &profiles.Request{Host: profiles.ThisHost()}
	dirs, err := Dirs()
	if err != nil {
		return 0, err
	}
	place, err := program.build(kind, req, providers.Host{Environ: req.Host.Environ, StateDir: dirs.State, CacheDir: dirs.Cache})
	if err != nil {
		return 0, err
	}
	from, is := place.(fetcher)
	if !is {
		return 0, fmt.Errorf("BUG: provider %s: a cloud that cannot download", e.Resource.Provider)
	}
	dir, err := home.Open(e.ID)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	// Its directory stays, whatever comes of it: with the changes, or for another attempt.
	if err := errors.Join(home.Retain(e.ID, KeepUnfetched), home.Retain(e.ID, KeepUpper)); err != nil {
		return 0, err
	}
	var stays interface{ Stays() }
	if err = from.Fetch(ctx, *e.Resource, providers.Stdio{Changes: dir, Progress: progress}, o); errors.As(err, &stays) {
		return 0, err
	}
	if _, gone := dir.Lstat(sessions.UnfetchedName); err != nil && gone == nil {
		return 0, err
	}
	if changes.Stands(dir) {
		upper, e := changes.OpenUpper(dir, nil)
		if e == nil {
			paths, _, e = upper.Settle()
			upper.Close()
		}
		err = errors.Join(err, e)
	}
	err = errors.Join(err, home.Release(e.ID, KeepUnfetched))
	if paths == 0 {
		err = errors.Join(err, dropUpper(home, e.ID))
	}
	return paths, err
}
