package survey

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// trees lists the directories outside the workspace that the policy lets the command write. There are two kinds, by
// [Tree.State]; a tree within another of its kind is a part of that, and is not listed.
func (f *finder) trees() (list []Tree) {
	p := f.policy
	if p.ProtectedOutside(true) == nil { // nothing is protected there
		return nil
	}
	add := func(t Tree, path string) {
		_, end, err := f.hops(path)
		if err != nil || end.Node != Directory || end.Path == "/" || Below(end.Path, p.Workspace) && !f.unsearched(end.Path) || f.shown(end.Path) != profiles.Write || KernelTree(end.Path) != "" {
			return // a plan with a writable / is refused
		}
		t.Query.Root = end.Path
		list = append(list, t)
	}
	for _, table := range [...][]profiles.FileRule{p.Files, p.Tighten} {
		for i := range table {
			r := &table[i]
			in := Below(r.Path, p.Workspace)
			if r.Access != profiles.Write || r.Glob != "" || in && !f.unsearched(r.Path) {
				continue
			}
			if d := f.policy.Decide(r.Path); d.Access == profiles.Write {
				add(Tree{State: !in && p.Keeps(r.Path, d.Rule)}, r.Path)
			}
		}
	}
	if slices.ContainsFunc(list, func(t Tree) bool { return !t.State }) {
		for _, cache := range p.Caches() {
			if f.policy.Decide(cache).Access == profiles.Write {
				add(Tree{State: true}, cache)
			}
		}
	}
	// A tree comes before what is in it, and of a directory that is named twice first the kind of which more is protected.
	slices.SortFunc(list, func(a, b Tree) int {
		if n := cmp.Compare(a.Query.Root, b.Query.Root); n != 0 || a.State == b.State {
			return n
		}
		if b.State {
			return -1
		}
		return 1
	})
	trees := list[:0]
	for _, t := range list {
		if around := nearest(trees, t.Query.Root); around == nil || around.State != t.State && around.Query.Root != t.Query.Root {
			trees = append(trees, t)
		}
	}
	return trees
}

// unsearched reports whether a path lies in a directory of the workspace that is protected as a
// whole. The scan of the workspace does not enter that: what a rule opens in there is a tree by itself.
func (f *finder) unsearched(path string) bool {
	if path == f.policy.Workspace {
		return false
	}
	r, is := f.policy.Protected(filepath.Dir(path))
	return is && !r.Review
}

// nearest returns the tree that a path is in, nil for none.
func nearest(list []Tree, path string) (near *Tree) {
	for i := range list {
		if t := &list[i]; Below(path, t.Query.Root) && (near == nil || len(t.Query.Root) > len(near.Query.Root)) {
			near = t
		}
	}
	return near
}

// query completes what is asked of a tree. Those within it are left out, since each is scanned by itself.
func (f *finder) query(t *Tree, within []string, o *Options) {
	q := &t.Query
	q.Aside, q.Kept, q.IndexDir = true, t.State, o.IndexDir
	q.Protect = append(slices.Clip(f.policy.ProtectedOutside(t.State)), f.aways...)
	if !t.State {
		q.Home, q.XDG, q.Git = f.policy.Home, o.xdg(), vcs.Environment(o.Getenv)
	}
	closed := slices.Clone(within)
	if o.Own != "" && Below(o.Own, q.Root) {
		closed = append(closed, o.Own)
	}
	for _, p := range f.places {
		if p.Node != Directory || p.Path == q.Root || !Below(p.Path, q.Root) || slices.ContainsFunc(within, func(w string) bool { return Below(p.Path, w) }) {
			continue
		}
		if p.Protect && p.Access <= profiles.Read {
			closed = append(closed, p.Path) // it is pinned as a whole
			continue
		}
		q.Files = append(q.Files, profiles.FileRule{Path: p.Path, Access: p.Access})
	}
	for _, path := range closed {
		q.Files = append(q.Files, profiles.FileRule{Path: path, Access: profiles.Private})
	}
}

// scanTrees scans the trees outside the workspace, and pins what is protected there.
func (f *finder) scanTrees(main *workspace.Found, list []Tree, o *Options) error {
	roots := []string{f.policy.Workspace}
	for _, t := range list {
		roots = append(roots, t.Query.Root)
	}
	for i := range list {
		t := &list[i]
		root := t.Query.Root
		var within []string
		for _, r := range roots {
			if r != root && Below(r, root) {
				within = append(within, r)
			}
		}
		f.query(t, within, o)
		if !t.State {
			t.Query.Main = main
		}
		var err error
		if t.Found, err = workspace.Scan(t.Query); err != nil {
			return fmt.Errorf("%s may be written: %w", root, err)
		}
		for _, note := range t.Found.Notes { // a note about the user's own configuration is the same for each tree
			if !slices.Contains(f.notes, note) {
				f.notes = append(f.notes, note)
			}
		}
		for _, path := range within {
			// If the command could rename it, a directory that it makes there would not be guarded.
			f.roots = append(f.roots, path)
			f.anchor(path)
			for dir := filepath.Dir(path); dir != root && f.shown(filepath.Dir(dir)) == profiles.Write; dir = filepath.Dir(dir) {
				f.anchor(dir)
			}
		}
		t.Found.Pins = slices.DeleteFunc(t.Found.Pins, func(p workspace.Pin) bool { return slices.Contains(within, p.Path) })
		f.pinned(t.Found)
	}
	return nil
}

// pinned adds what must stay as it is, the directories that hold it, and where its links lead.
func (f *finder) pinned(found *workspace.Found) {
	for _, path := range found.Anchors {
		f.anchor(path)
	}
	for _, path := range found.Away {
		if list, end, err := f.hops(path); err == nil && !(filepath.Base(path) == ".git" && end.Node == Directory) {
			for _, h := range list { // what stands there, or is made there, is protected as the name itself is
				if !Below(h.to, f.policy.Workspace) && f.shown(filepath.Dir(h.to)) >= profiles.Overlay && !f.reviewed(h.to) {
					f.aways = append(f.aways, profiles.ProtectRule{Pattern: h.to, Origin: profiles.Origin{Source: "this machine", Key: "where " + path + " leads"}})
				}
			}
		}
	}
	// A path that the user has named for review may change.
	found.Pins = slices.DeleteFunc(found.Pins, func(p workspace.Pin) bool { return slices.Contains(f.policy.Opened, p.Path) })
	for _, pin := range found.Pins {
		access := profiles.Read
		if pin.Why == workspace.Unlisted {
			access = profiles.Hide
		}
		p := Place{Access: min(access, f.around(pin.Path)), Pin: true, Protect: true, Why: "protect: " + pin.Why}
		if f.copiesConfig(&pin) {
			p.PrivateCopy, p.Text = true, pin.Text
		}
		if !f.layered(pin, p) {
			f.put(placeOf(pin.Node, p))
		}
		if pin.Kind != workspace.Link {
			continue
		}
		// In the workspace the scan has pinned the end of a link. Elsewhere it is pinned here, but for a repository: that
		// is a tree by itself, and has its own scan.
		_, end, err := f.hops(pin.Path)
		if err == nil && filepath.Base(pin.Path) == ".git" && end.Node == Directory {
			continue
		}
		if err == nil && (end.Node == File || end.Node == Directory) && !Below(end.Path, f.policy.Workspace) && !Below(f.policy.Workspace, end.Path) && f.shown(end.Path) >= profiles.Overlay {
			end.Access, end.Pin, end.Protect, end.Why = profiles.Read, true, true, p.Why
			f.put(end)
		}
	}
}

// layered adds the agent's layers over a protected directory and over directories in it, and reports whether the
// protected directory itself has one. A directory that a rule of the user's names has none.
func (f *finder) layered(pin workspace.Pin, p Place) (whole bool) {
	if pin.Kind != workspace.Dir || f.around(pin.Path) != profiles.Write || !kernel.AtLeast(6, 6) {
		return false
	}
	dirs, _ := f.policy.AgentDirs()
	for _, dir := range dirs {
		if _, seen := f.seen[dir]; seen || !Below(dir, pin.Path) {
			continue
		}
		_, end, err := f.hops(dir)
		if err == nil && end.Node == Directory && end.Path == dir {
			p.Node, p.Path, p.Dev, p.Ino = end.Node, end.Path, end.Dev, end.Ino
			p.Access, p.Scratch, p.Layer = profiles.Overlay, true, f.layers[dir]
			f.put(p)
			whole = whole || dir == pin.Path
		}
	}
	return whole
}

// copiesConfig reports whether the command gets a private copy of a configuration that is pinned: it does where it may
// write in the repository.
func (f *finder) copiesConfig(pin *workspace.Pin) bool {
	if !pin.Private || f.policy.Nested { // in a sandbox within this one the link would lead to nothing
		return false
	}
	around := f.around(pin.Path)
	if filepath.Base(pin.Path) == ".git" || around == profiles.Overlay && vcs.OfSubmodule(pin.Path) {
		return true
	}
	// The repository of a worktree lies elsewhere, and is read-only but for what a commit writes.
	shared := slices.Contains(f.commons, filepath.Dir(pin.Path)) && ByDefault(f.policy, pin.Path) && f.policy.Decide(f.policy.Workspace).Access == profiles.Write
	return shared || around == profiles.Write
}
