package workspace

import (
	"time"

	"github.com/pccrun/pccrun/profiles"
)

// A History is what the repositories below a directory lead to, before what a run has done
// elsewhere is brought there.
type History struct{ guard *Guard }

// NoteHistory notes it. The rules are those of the run's policy; what is younger than since
// counts as brought already.
func NoteHistory(root string, protect []profiles.ProtectRule, since time.Time) (*History, error) {
	g, err := NewGuard(&Standing{Root: root, Start: since, Protect: protect}, nil, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := g.read(); err != nil {
		g.Close()
		return nil, err
	}
	forget(g.tree, began, g.dev)
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.name == "" {
			g.repos[s.rel] = true
		}
	})
	g.knowTips(nil)
	return &History{g}, nil
}

// Brought returns the protected names that have come since into commits, the index and the
// stash of the repositories there, as [Guard.Finish] does of a run.
func (h *History) Brought() (found []Finding) {
	g := h.guard
	g.told = func(f Finding) { found = append(found, f) }
	if err := g.read(); err != nil {
		g.told(Finding{Kind: Review, Path: g.standing.Root, What: "cannot be read: " + err.Error(), Why: unread})
	}
	g.commits()
	return found
}

// Close gives back what it has opened.
func (h *History) Close() { h.guard.Close() }
