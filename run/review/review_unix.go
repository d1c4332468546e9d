//go:build unix

package review

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A Session is one that is open, with what is left to be reviewed of it.
type Session struct {
	sessions.Entry
	Found []workspace.Finding
	Lost  []quarantine.Lost
	More  []string // other sessions that have something in quarantine

	dir   *os.Root
	named bool  // by the user
	seen  shown // what the user has seen
	now   shown // what is shown now
}

// shown is what a review has shown of a session: what was not shown is restored only where the user names the session.
type shown struct {
	At      time.Time         `json:"at"`
	Digests map[string]string `json:"digests"` // of what was shown whole, by its name in the stash
}

// shownName is the record of that, in the session's directory, and maxShown bounds it, in bytes: some 100 for each of a
// stash's entries.
const (
	shownName = "shown"
	maxShown  = 1 << 20
)

// Open opens the first of some sessions that has left something; the first at all if it was named.
func Open(home sessions.Home, candidates []sessions.Entry, named bool) (first *Session, err error) {
	for _, e := range candidates {
		s, err := open(home, e)
		switch {
		case err != nil && first == nil:
			return nil, err
		case err != nil:
			continue
		case first == nil && (s.left() || named):
			first, s.named = s, named
			continue
		case slices.ContainsFunc(s.Found, Quarantined):
			first.More = append(first.More, e.ID)
		}
		s.Close()
	}
	if first == nil {
		return nil, ErrNone
	}
	return first, nil
}

// OpenShown opens the one of some sessions, the newest first, that was shown last. It is refused while the newest of those
// that have left something and ended was not shown: the user means that one, or does not know of it.
func OpenShown(home sessions.Home, candidates []sessions.Entry) (*Session, error) {
	var newest, last *Session
	for _, e := range candidates {
		s, err := open(home, e)
		if err != nil {
			return nil, err
		}
		s.Close()
		if !s.left() {
			continue
		}
		if newest == nil || newest.State == sessions.Running {
			newest = s
		}
		if !s.seen.At.IsZero() && (last == nil || s.seen.At.After(last.seen.At)) {
			last = s
		}
	}
	switch {
	case newest == nil:
		return nil, ErrNone
	case last == nil, newest.seen.At.IsZero():
		return nil, hint.Errorf("pccrun review shows it; pccrun review "+newest.ID+" --accept restores it unseen", "session %s: pccrun review has not shown it", newest.ID)
	}
	return open(home, last.Entry)
}

func open(home sessions.Home, e sessions.Entry) (*Session, error) {
	dir, err := home.Open(e.ID)
	if err != nil {
		return nil, err
	}
	s := &Session{Entry: e, dir: dir, now: shown{Digests: map[string]string{}}}
	if s.Found, err = quarantine.ReadFindings(dir); err == nil {
		s.Lost, err = quarantine.ReadLost(dir)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	text, unread := state.ReadFile(dir, shownName, maxShown)
	if unread != nil || json.Unmarshal(text, &s.seen) != nil {
		s.seen = shown{}
	}
	return s, nil
}

func (s *Session) left() bool { return len(s.Found)+len(s.Lost) > 0 }

// Close closes it.
func (s *Session) Close() { s.dir.Close() }

// Shown records that the user has seen the diffs. What a run that goes on has in quarantine may still change.
func (s *Session) Shown() error {
	if s.State == sessions.Running {
		return nil
	}
	s.now.At = time.Now()
	text, err := json.Marshal(s.now)
	if err == nil {
		err = state.WriteFile(s.dir, shownName, text, state.Fast)
	}
	return err
}

// SaveLost copies what the session has kept of what was lost at a path, and says where to.
func (s *Session) SaveLost(path, dest string) (string, error) {
	if s.State == sessions.Running {
		return "", fmt.Errorf("session %s: %w", s.ID, sessions.ErrAlive)
	}
	return quarantine.SaveLost(s.dir, s.Lost, path, dest)
}

// Accepted is a path that was restored, or a setting that was saved.
type Accepted struct {
	Name  string
	Saved bool
}

// Accept puts back what was quarantined at the paths and below them, relative ones from a directory too, or all of it.
// checking returns the session that goes on and checks a path, "" for none.
func (s *Session) Accept(paths []string, cwd string, checking func(path string) (session string)) (done []Accepted, failed []error) {
	if s.State == sessions.Running {
		return nil, []error{fmt.Errorf("session %s: %w: accept it when it has ended", s.ID, sessions.ErrAlive)}
	}
	matched := make([]bool, len(paths))
	wants := func(path string) bool {
		wanted := len(paths) == 0
		for j, p := range paths {
			if within(filepath.Clean(p), path) || within(filepath.Join(s.Workspace, p), path) || within(filepath.Join(cwd, p), path) {
				wanted, matched[j] = true, true
			}
		}
		return wanted
	}
	restored := map[string]bool{}
	for _, f := range slices.Backward(s.Found) { // of several versions the last
		if !wants(f.Path) {
			f.Parts = slices.DeleteFunc(slices.Clone(f.Parts), func(p workspace.Finding) bool { return !wants(p.Path) })
			if len(f.Parts) == 0 {
				continue
			}
		}
		setting, how := f.Kind == workspace.Setting, workspace.Finding.Restore // each key of a setting is one by itself
		again := !setting && restored[f.Path]
		switch {
		case setting && f.Stash == "", !setting && f.Kind != workspace.Stashed && f.Kind != workspace.Inert:
			continue
		case again && (f.Kind != workspace.Inert || f.Left(s.dir) == nil):
			continue
		case again: // what was taken out of a configuration before is missing in the version that is back
			how = workspace.Finding.Complete
		}
		restored[f.Path] = restored[f.Path] || !setting
		if id := checking(f.Path); id != "" && !again {
			again := ""
			if !setting {
				again = " and would quarantine it again"
			}
			failed = append(failed, fmt.Errorf("%s: session %s runs in that workspace%s: accept it when that session has ended", s.name(f.Path), id, again))
			continue
		}
		err := s.asShown(f)
		if err == nil {
			err = how(f, s.dir)
		}
		switch {
		case err != nil:
			failed = append(failed, err)
		case setting:
			done = append(done, Accepted{strings.TrimSuffix(s.name(f.Path)+": "+f.What, ": "), true})
		case !again:
			for _, path := range pathsOf(f) {
				done = append(done, Accepted{Name: s.name(path)})
			}
		}
	}
	for j, ok := range matched {
		if !ok {
			failed = append(failed, fmt.Errorf("%s: session %s quarantined nothing at that path", paths[j], s.ID))
		}
	}
	return done, failed
}

// asShown says why what the session holds is not what the user has seen of a finding. Who names the session need not
// have seen it, but nothing is restored that has changed since.
func (s *Session) asShown(f workspace.Finding) error {
	digests, err := f.Seal(s.dir, s.named)
	if err != nil && (s.named || !errors.Is(err, quarantine.ErrUnseen)) {
		return fmt.Errorf("restore %s: %w", s.name(f.Path), err)
	}
	unseen := err != nil
	for name, digest := range digests {
		was, seen := s.seen.Digests[name]
		if seen && was != digest {
			return hint.Errorf("pccrun review "+s.ID+" shows it", "restore %s: it has changed since it was shown", s.name(f.Path))
		}
		unseen = unseen || !seen
	}
	if unseen && !s.named {
		return hint.Errorf("pccrun review "+s.ID+" --accept PATH restores it unseen", "restore %s: pccrun review has not shown all of it", s.name(f.Path))
	}
	return nil
}

// pathsOf are the paths that a finding is restored to.
func pathsOf(f workspace.Finding) (paths []string) {
	for _, p := range f.Parts {
		if p.Stash != "" && !slices.Contains(paths, p.Path) {
			paths = append(paths, p.Path)
		}
	}
	if f.Parts == nil {
		paths = []string{f.Path}
	}
	return paths
}

// within reports whether a path is another, or lies below it.
func within(dir, path string) bool {
	_, in := beneath.Path(dir, path)
	return in
}

// name returns a path as one in the workspace, if it is.
func (s *Session) name(path string) string { return messages.Within(s.Workspace, path) }
