package leftovers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/workspace/changes"
)

// Kept is what a session's overlays changed, open.
type Kept struct {
	home   sessions.Home
	Entry  sessions.Entry
	Record *changes.Record
	Upper  *changes.Upper
	cwd    string
}

// OpenChanges finds the session: the one named, else the newest of the current
// workspace that keeps something. With an error it is not nil if the session was
// found, and only the host's directory is not there to compare with.
func OpenChanges(name string) (*Kept, error) {
	home, err := run.Sessions()
	if err != nil {
		return nil, err
	}
	host := profiles.ThisHost()
	c := &Kept{home: home, cwd: host.Cwd}
	if name != "" {
		if c.Entry, err = home.Find(name); err != nil {
			return nil, err
		}
	} else if c.Entry, err = lastKept(home, host.Cwd); err != nil {
		return nil, err
	}
	dir, err := home.Open(c.Entry.ID)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if c.Record, err = changes.ReadRecord(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("session %s: %w", c.Entry.ID, ErrNoChanges)
	} else if err != nil {
		c.Record = new(changes.Record) // OpenUpper says what is wrong with it
	}
	if c.Upper, err = changes.OpenUpper(dir, nil); err == nil {
		c.Upper.AskGit = run.AskGit(c.Record.Workspace)
	}
	return c, err
}

const keeps = "pccrun --overlay . -- COMMAND keeps changes in an overlay; pccrun ps --all lists all sessions"

// Why there are no changes to show.
var (
	ErrNoChanges = hint.Errorf(keeps, "it changed nothing in an overlay")
	ErrNoneHere  = hint.Errorf(keeps, "no run here left changes in an overlay")
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
		err = fmt.Errorf("%s: %w", cwd, ErrNoneHere)
	}
	return e, err
}

// Begin locks the changes against another apply; a run that still goes on is an
// error.
func (c *Kept) Begin(program run.Program) error {
	if c.Entry.State == sessions.Running {
		return fmt.Errorf("session %s: %w", c.Entry.ID, sessions.ErrAlive)
	}
	switch {
	case c.Entry.Unfetched && !c.came(): // what is here is not all
		return hint.Errorf("pccrun download "+c.Entry.ID+" downloads them", "session %s: its changes were not all downloaded", c.Entry.ID)
	case c.Entry.Unfetched: // to clear up would destroy what was left out
	case c.Entry.State == sessions.Crashed:
		if err := ClearCrashed(program, c.home, c.Entry); err != nil { // nothing of it writes any more
			return err
		}
	}
	if err := c.Upper.Begin(); err != nil {
		return fmt.Errorf("session %s: %w", c.Entry.ID, err)
	}
	return nil
}

// came reports whether all is here that can come: its cloud has only what was left out.
func (c *Kept) came() bool {
	dir, err := c.home.Open(c.Entry.ID)
	if err != nil {
		return false
	}
	defer dir.Close()
	text, err := dir.ReadFile(sessions.UnfetchedName)
	var record struct {
		Came bool `json:"came"`
	}
	return err == nil && json.Unmarshal(text, &record) == nil && record.Came
}

// Unapplied reports whether no apply is half done.
func (c *Kept) Unapplied() bool {
	dir, err := c.home.Open(c.Entry.ID)
	if err != nil {
		return false
	}
	defer dir.Close()
	return !changes.Interrupted(dir)
}

// Paths makes arguments absolute.
func (c *Kept) Paths(words []string) []string {
	var list []string
	for _, w := range words {
		if !filepath.IsAbs(w) {
			w = filepath.Join(c.cwd, w)
		}
		list = append(list, filepath.Clean(w))
	}
	return list
}

// Drop removes what is kept.
func (c *Kept) Drop() error { return dropUpper(c.home, c.Entry.ID) }

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

// DropRest removes what was dropped by who was killed before it was through.
func DropRest(home sessions.Home) error {
	list, err := home.List()
	for _, e := range list {
		if slices.Contains(e.Kept, run.KeepUpper) && (e.State == sessions.Ended || e.State == sessions.Crashed) && !holds(home, e) {
			err = errors.Join(err, dropUpper(home, e.ID))
		}
	}
	return err
}
