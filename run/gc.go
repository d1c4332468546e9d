package run

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// ClearCrashed ends what a crashed launcher left: the sandbox with its control groups, which
// are empty then, or what it has at another provider. It ends a sandbox that stands, too.
func ClearCrashed(program Program, home sessions.Home, e sessions.Entry) error {
	if e.Resource != nil {
		if err := Destroy(program, e.Resource); err != nil || !e.Unfetched && !e.Standing {
			return err
		}
		dir, err := home.Open(e.ID)
		if err != nil {
			return err
		}
		defer dir.Close()
		if e.Standing {
			return errors.Join(dir.Remove(sessions.KeptName), home.Release(e.ID, sessions.KeepSandbox))
		}
		return dir.Remove(sessions.UnfetchedName) // there is nothing to be downloaded any more
	}
	err := home.Kill(e, syscall.SIGKILL, 10*time.Second)
	if err != nil && !errors.Is(err, sessions.ErrGone) && !errors.Is(err, sessions.ErrElsewhere) {
		return err
	}
	return removeGroups(e.Cgroups)
}

// Destroy ends what a session has at a provider that is not this machine, by the name and
// the label that its record has.
func Destroy(program Program, r *sessions.Resource) error {
	if program.Become != nil {
		return fmt.Errorf("provider %s: the sandbox of a killed run still exists: pccrun gc removes it", r.Provider)
	}
	kind, err := providers.KindOf(r.Provider)
	if err != nil {
		return err
	}
	req := &profiles.Request{Host: profiles.ThisHost()}
	dirs, err := Dirs()
	if err != nil {
		return err
	}
	place, err := program.build(kind, req, providers.Host{Environ: req.Host.Environ, StateDir: dirs.State, CacheDir: dirs.Cache, Launcher: launcherFile()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), destroyWithin)
	defer cancel()
	list := []sessions.Resource{*r}
	if label := r.Labels[providers.LabelKey]; label != "" {
		found, err := place.Find(ctx, label)
		if err != nil {
			return fmt.Errorf("provider %s: find what session %s left: %w", r.Provider, label, err)
		}
		list = found // what is not found is gone
	}
	for _, one := range list {
		err = errors.Join(err, place.Destroy(ctx, one))
	}
	return err
}

// destroyWithin bounds how long a provider may take to end what it has.
const destroyWithin = time.Minute
