package leftovers

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/workspace/changes"
)

// fetcher is a provider with a copy of the workspace, which outlives a run whose download failed.
type fetcher interface {
	Fetch(ctx context.Context, r providers.Resource, stdio providers.Stdio, o providers.Observer) error
	Copy(ctx context.Context, r providers.Resource, c providers.Copy, stdio providers.Stdio, o providers.Observer) (paths int, err error)
}

func errNothingLeft(e sessions.Entry) error {
	return fmt.Errorf("session %s: nothing is left to be downloaded", e.ID)
}

// reach opens a session's cloud and its directory.
func reach(program run.Program, home sessions.Home, e sessions.Entry) (fetcher, *os.Root, error) {
	place, err := program.ProviderOf(e.Resource)
	if err != nil {
		return nil, nil, err
	}
	from, is := place.(fetcher)
	if !is {
		return nil, nil, fmt.Errorf("BUG: provider %s: a cloud that cannot download", e.Resource.Provider)
	}
	dir, err := home.Open(e.ID)
	return from, dir, err
}

// CopyOut writes files from a session's cloud to a directory outside of the workspace, and leaves the
// sandbox, the session and its run as they are. It returns how many names it wrote.
func CopyOut(ctx context.Context, program run.Program, home sessions.Home, e sessions.Entry, c providers.Copy, progress func(what string, done, total int64), o providers.Observer) (paths int, err error) {
	c.Running = e.State == sessions.Running
	switch {
	case c.Running && e.Resource == nil:
		return 0, fmt.Errorf("session %s: its files are on this machine", e.ID)
	case !c.Running && !e.Unfetched:
		return 0, errNothingLeft(e)
	}
	from, dir, err := reach(program, home, e)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	return from.Copy(ctx, *e.Resource, c, providers.Stdio{Changes: dir, Progress: progress}, o)
}

// Download brings what a session's command changed at a cloud, and returns how many paths that are.
// They are in the session then, as if its own download had come through.
func Download(ctx context.Context, program run.Program, home sessions.Home, e sessions.Entry, progress func(what string, done, total int64), o providers.Observer) (paths int, err error) {
	switch {
	case e.State == sessions.Running:
		return 0, fmt.Errorf("session %s: %w; it downloads when it ends", e.ID, sessions.ErrAlive)
	case !e.Unfetched:
		return 0, errNothingLeft(e)
	}
	from, dir, err := reach(program, home, e)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	// Its directory stays, whatever comes of it: with the changes, or for another attempt.
	if err := errors.Join(home.Retain(e.ID, run.KeepUnfetched), home.Retain(e.ID, run.KeepUpper)); err != nil {
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
	err = errors.Join(err, home.Release(e.ID, run.KeepUnfetched))
	if paths == 0 {
		err = errors.Join(err, dropUpper(home, e.ID))
	}
	return paths, err
}
