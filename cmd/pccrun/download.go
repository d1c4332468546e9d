//go:build !launcher

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/leftovers"
)

func downloadVerb(args []string) int {
	asJSON, c := false, providers.Copy{}
	words, err := options(args, flags{"--json": &asJSON, "--to": &c.Dir, "--all": &c.All,
		"--filter": func(glob string) error { c.Filter = append(c.Filter, glob); return nil }})
	if err == nil && c.Dir == "" && (c.All || c.Filter != nil) {
		err = misuse("download: --all and --filter go with --to", "--to DIR writes the files to a directory")
	}
	if err != nil {
		return failSession(err)
	}
	home, e, err := findSession(words, func(e sessions.Entry) bool {
		return e.Unfetched || c.Dir != "" && e.State == sessions.Running && e.Resource != nil
	}, errors.New("nothing is left to be downloaded in this workspace"))
	if err != nil {
		return failSession(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var n int
	to := c.Dir
	if to != "" {
		if c.Dir, err = emptyDir(to, e.Workspace); err == nil {
			n, err = leftovers.CopyOut(ctx, thisProgram(), home, e, c, run.ShowProgress(), warned{})
		}
	} else {
		n, err = leftovers.Download(ctx, thisProgram(), home, e, run.ShowProgress(), warned{})
	}
	if err != nil {
		advice := profiles.Hint(err)
		if errors.Is(err, sessions.ErrAlive) && e.Resource != nil {
			advice = "pccrun download --to DIR " + e.ID + " writes a copy now"
		}
		fail(inWords(err), advice)
		return failed
	}
	key, text := "changed", "nothing changed"
	if to != "" {
		key, text = "paths", to+": "+strconv.Itoa(n)+" paths from session "+e.ID
	} else if n > 0 {
		text = run.PathsChanged(n) + ": pccrun diff, apply or discard"
	}
	return result(asJSON, object{{"session", e.ID}, {key, n}}, say, text)
}

// emptyDir returns the real path of a directory that is empty or can be made, outside of a workspace.
func emptyDir(name, workspace string) (string, error) {
	real, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	if list, e := os.ReadDir(real); e == nil && len(list) > 0 {
		return "", hint.Errorf("name a new directory", "directory %s: it is not empty", name)
	} else if e == nil {
		real, err = filepath.EvalSymlinks(real)
	} else if errors.Is(e, fs.ErrNotExist) {
		var parent string
		parent, err = filepath.EvalSymlinks(filepath.Dir(real))
		real = filepath.Join(parent, filepath.Base(real))
	} else {
		err = e
	}
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(workspace, real); err != nil || filepath.IsLocal(rel) {
		return "", hint.Errorf("name one outside; pccrun apply writes to the workspace", "directory %s: it is in the workspace %s", name, workspace)
	}
	return real, nil
}

// warned prints what a download says on its way, which is all that it says.
type warned struct{ providers.Observer }

func (warned) Warning(w events.Warning) { say(w.Text) }
