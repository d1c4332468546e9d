package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/workspace/changes"
)

// What the verbs about a run's overlays share.

const lastRunHelp = `
Without --session it is about the last run in the current workspace that
changed something in an overlay.
`

const changesHelp = lastRunHelp + "PATH is a file or a directory with all in it; -- stands before one that begins\nwith a dash.\n"

// kept is the upper side of one session, open.
type kept struct {
	home   sessions.Home
	entry  sessions.Entry
	record *changes.Record
	upper  *changes.Upper
	cwd    string
}

// openChanges finds the session: the one named, else the newest of the current
// workspace that keeps something. With an error it is not nil if the session was
// found, and only the host's directory is not there to compare with.
func openChanges(name string) (*kept, error) {
	home, err := run.Sessions()
	if err != nil {
		return nil, err
	}
	host := profiles.ThisHost()
	c := &kept{home: home, cwd: host.Cwd}
	if name != "" {
		if c.entry, err = home.Find(name); err != nil {
			return nil, err
		}
	} else if c.entry, err = lastKept(home, host.Cwd); err != nil {
		return nil, err
	}
	dir, err := home.Open(c.entry.ID)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if c.record, err = changes.ReadRecord(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("session %s: %w", c.entry.ID, errNoChanges)
	} else if err != nil {
		c.record = new(changes.Record) // OpenUpper says what is wrong with it
	}
	c.upper, err = changes.OpenUpper(dir, nil)
	return c, err
}

var (
	errNoChanges = errors.New("it changed nothing in an overlay")
	errNoneHere  = errors.New("no run here left changes in an overlay")
)

// holds reports whether a session has what its overlays changed. One that was killed
// before its command ran, or while that was removed, says so and has not.
func holds(home sessions.Home, e sessions.Entry) bool {
	dir, err := home.Open(e.ID)
	if err != nil {
		return false
	}
	defer dir.Close()
	return changes.Stands(dir)
}

func lastKept(home sessions.Home, cwd string) (sessions.Entry, error) {
	e, ok, err := home.Newest(func(e sessions.Entry) bool {
		return slices.Contains(e.Kept, run.KeepUpper) && (e.Workspace == cwd || strings.HasPrefix(cwd, e.Workspace+"/")) && holds(home, e)
	})
	switch {
	case err != nil || ok:
	case cwd == "":
		err = errors.New("the current directory is gone: --session ID names a run")
	default:
		err = fmt.Errorf("%s: %w", cwd, errNoneHere)
	}
	return e, err
}

// begin locks the changes against another apply; a run that still goes on is an
// error.
func (c *kept) begin() error {
	if c.entry.State == sessions.Running {
		return fmt.Errorf("session %s: %w", c.entry.ID, sessions.ErrAlive)
	}
	if c.entry.State == sessions.Crashed {
		if err := run.ClearCrashed(thisProgram(), c.home, c.entry); err != nil { // nothing of it writes any more
			return err
		}
	}
	if err := c.upper.Begin(); err != nil {
		return fmt.Errorf("session %s: %w", c.entry.ID, err)
	}
	return nil
}

// unapplied reports whether no apply is half done.
func (c *kept) unapplied() bool {
	dir, err := c.home.Open(c.entry.ID)
	if err != nil {
		return false
	}
	defer dir.Close()
	return !changes.Interrupted(dir)
}

// paths makes arguments absolute.
func (c *kept) paths(words []string) []string {
	var list []string
	for _, w := range words {
		if !filepath.IsAbs(w) {
			w = filepath.Join(c.cwd, w)
		}
		list = append(list, filepath.Clean(w))
	}
	return list
}

// shown is how a path of the host is printed: relative to the workspace, if it
// lies there.
func (c *kept) shown(path string) string {
	if rel, ok := strings.CutPrefix(path, c.entry.Workspace+"/"); ok {
		return rel
	}
	return path
}

// drop removes what is kept.
func (c *kept) drop() error { return dropUpper(c.home, c.entry.ID) }

func dropUpper(home sessions.Home, id string) error {
	dir, err := home.Open(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := changes.RemoveUpper(dir); err != nil {
		return err
	}
	return home.Release(id, run.KeepUpper)
}

// dropRest removes what was dropped by who was killed before it was through.
func dropRest(home sessions.Home) error {
	list, err := home.List()
	for _, e := range list {
		if slices.Contains(e.Kept, run.KeepUpper) && (e.State == sessions.Ended || e.State == sessions.Crashed) && !holds(home, e) {
			err = errors.Join(err, dropUpper(home, e.ID))
		}
	}
	return err
}

// failChanges prints why a verb about changes did not do what it was asked for.
func failChanges(err error) int {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		fail(inWords(err), h.Hint())
		return failed
	}
	return failSession(err)
}
