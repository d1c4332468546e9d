package leftovers

import (
	"context"
	"errors"
	"fmt"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
)

// Unasked is a cloud that could not be asked what stands there, and why.
type Unasked struct {
	Provider string `json:"provider"`
	Why      string `json:"why"`
}

// Orphans finds what stands at clouds and belongs to no session that goes on, by its label, and destroys it. What a session
// has there that could not be fetched goes with all only. It returns what it destroyed, or would, and the clouds whose
// key is not set.
func Orphans(program run.Program, home sessions.Home, dryRun, all bool) (gone []string, unasked []Unasked, err error) {
	if program.Provider == nil {
		return nil, nil, nil
	}
	list, err := home.List()
	if err != nil {
		return nil, nil, err
	}
	stays := map[string]bool{}
	for _, e := range list {
		if e.Resource == nil {
			continue
		}
		if e.State == sessions.Running || e.State == sessions.Unknown || (e.Unfetched || e.Standing) && !all {
			stays[e.Resource.Labels[providers.LabelKey]] = true // of several that had one sandbox after the other
		}
	}
	req := &profiles.Request{Host: profiles.ThisHost()}
	dirs, err := run.Dirs()
	if err != nil {
		return nil, nil, err
	}
	for _, k := range providers.Known() {
		if !k.Cloud {
			continue
		}
		place, e := program.Provider(k.Name, req, providers.Host{Environ: req.Host.Environ, StateDir: dirs.State})
		if e != nil || place == nil {
			err = errors.Join(err, e)
			continue // one that is not built has made nothing
		}
		if keys := k.MissingKeys(req.Host.Getenv); keys != "" {
			unasked = append(unasked, Unasked{k.Name, "not set: " + keys})
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), run.DestroyWithin)
		found, e := place.Find(ctx, "")
		for _, r := range found {
			if stays[r.Labels[providers.LabelKey]] {
				continue
			}
			if !dryRun {
				if one := place.Destroy(ctx, r); one != nil {
					e = errors.Join(e, one)
					continue
				}
			}
			gone = append(gone, fmt.Sprintf("%s %s", r.Provider, r.ID))
		}
		cancel()
		err = errors.Join(err, e)
	}
	return gone, unasked, err
}

// WithoutDownload ends a session by kill, whose run at a cloud destroys what its command changed, where
// it would have downloaded it.
func WithoutDownload(home sessions.Home, e sessions.Entry, kill func() error) error {
	if kind, err := providers.KindOf(e.Provider); err != nil || !kind.Cloud || e.State != sessions.Running {
		return kill() // nothing is downloaded then
	}
	dir, err := home.Open(e.ID)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := state.WriteFile(dir, sessions.NoDownloadName, nil, state.Fast); err != nil {
		return err
	}
	err = kill()
	if err != nil && !errors.Is(err, sessions.ErrAlive) { // it was not asked to end: when it does, it downloads
		err = errors.Join(err, dir.Remove(sessions.NoDownloadName))
	}
	return err
}
