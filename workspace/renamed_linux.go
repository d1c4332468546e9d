package workspace

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A merge, `stash pop`, `cherry-pick` and `revert` carry a change of one file over to another
// that git takes for it under a new name: of x, which the one side has, to .envrc, which
// the other has in its place. So what the run's commits change is held against the
// protected names which the working tree's own history has, and the commit before it has not.

const (
	maxPairs   = 10_000
	maxOwn     = 512
	maxHeads   = 16
	maxSimilar = 1 << 20 // bytes of a file that is compared
	maxLists   = 256
	maxListed  = 4096
)

// A pair is what a commit made of one that was before it.
type pair struct {
	before, after string // trees
	in            committed
}

// An original is what a protected name of the user's has.
type original struct {
	committed
	content []byte
}

// carried notes protected names to which git would carry a change.
func (c *commits) carried() error {
	if len(c.pairs) == 0 {
		return nil
	}
	names, err := c.mine()
	if err != nil || len(names) == 0 {
		return err
	}
	lacking := map[string][]*original{}
	lacks := func(tree string) []*original {
		list, known := lacking[tree]
		if !known {
			for i := range names {
				if _, ok := c.at(tree, names[i].path); !ok {
					list = append(list, &names[i])
				}
			}
			lacking[tree] = list
		}
		return list
	}
	for i, p := range c.pairs {
		if i == maxPairs {
			return ErrTooMuch
		}
		if err := c.carries(p.before, p.after, lacks(p.before), p.in, 0); err != nil {
			return err
		}
		if err := c.carries(p.after, p.before, lacks(p.after), p.in, 0); err != nil { // as a revert does
			return err
		}
	}
	return c.left.spend(0)
}

// carries compares what two trees have, which have the path of in: a file that is
// another's double in the first, and changes, or comes beside it.
func (c *commits) carries(from, to string, names []*original, in committed, depth int) error {
	if from == to || len(names) == 0 {
		return nil
	}
	if depth > 256 {
		return ErrTooMuch
	}
	had, err := c.list(from)
	if err != nil {
		return nil // it is told of where it counts
	}
	list, err := c.list(to)
	if err != nil {
		return nil
	}
	now := map[string]vcs.TreeEntry{}
	for _, e := range list {
		now[e.Name] = e
	}
	came := len(list)
	for _, e := range had {
		if _, there := now[e.Name]; there {
			came--
		}
	}
	for _, e := range had {
		kind := e.Mode & unix.S_IFMT
		is, there := now[e.Name]
		switch {
		case kind == gitLink, there && is == e && came == 0:
		case kind == unix.S_IFDIR:
			if below := in; there && is.Mode&unix.S_IFMT == kind {
				below.path = join(in.path, e.Name)
				if err := c.carries(e.ID, is.ID, names, below, depth+1); err != nil {
					return err
				}
			}
		default:
			for _, o := range names {
				changed, beside := there && is.ID != e.ID, came > 0 && strings.Contains(o.path, "/")
				if !changed && !beside || !c.similar(e, o) {
					continue
				}
				f := o.committed
				f.commit, f.id = in.commit, e.ID
				f.where = in.where + ", as " + join(in.path, e.Name)
				if changed {
					f.id = is.ID
				} else { // git takes the directory for renamed
					f.path, f.id, f.where = filepath.Dir(o.path), to, in.where+", by what came into "+in.path
				}
				if err := c.note(f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// similar reports whether git takes a file for another under a new name.
func (c *commits) similar(e vcs.TreeEntry, o *original) bool {
	if e.Mode&unix.S_IFMT != o.mode&unix.S_IFMT {
		return false
	}
	if e.ID == o.id {
		return len(o.content) > 0
	}
	if o.mode&unix.S_IFMT != unix.S_IFREG || c.left.spend(int64(len(o.content))) != nil {
		return false
	}
	got, err := c.store.within(e.ID, maxSimilar, 0)
	return err == nil && vcs.Renamed(o.content, got.Body)
}

// mine returns what protected names of the working tree have in what is checked out, and in
// branches that stood, and that which a commit of the run has of them as the working tree does.
func (c *commits) mine() (all []original, err error) {
	trees := []string{c.head()}
	stood, _ := c.noted()
	for _, t := range c.all {
		if !stood[t.id] || !strings.HasPrefix(t.name, "refs/heads/") || len(trees) == maxHeads {
			continue
		}
		if o, err := c.store.get(t.id); err == nil && o.Kind == vcs.Commit {
			if tree, _, err := vcs.ParseCommit(o.Body); err == nil && !slices.Contains(trees, tree) {
				trees = append(trees, tree)
			}
		}
	}
	add := func(path string, e vcs.TreeEntry) {
		f := committed{path: path, mode: e.Mode, id: strings.Clone(e.ID)}
		if slices.ContainsFunc(all, func(o original) bool { return o.path == path && o.id == f.id }) {
			return
		}
		if f.rule, f.tree = c.protects(path, 0, e.Mode); f.rule == "" {
			return
		}
		if o, err := c.store.within(e.ID, maxSimilar, 0); err == nil && o.Kind == vcs.Blob {
			all = append(all, original{f, o.Body})
		}
	}
	var below func(path string, e vcs.TreeEntry, depth int)
	below = func(path string, e vcs.TreeEntry, depth int) {
		switch kind := e.Mode & unix.S_IFMT; {
		case len(all) > maxOwn || depth > 16 || kind == gitLink:
		case kind == unix.S_IFDIR:
			list, _ := c.list(e.ID)
			for _, e := range list {
				below(join(path, e.Name), e, depth+1)
			}
		default:
			add(path, e)
		}
	}
	for _, name := range c.protectedNames() {
		for _, root := range c.trees {
			rel, in := beneath.Path(root, name)
			if !in || rel == "" {
				continue
			}
			if err := c.left.spend(64); err != nil {
				return nil, err
			}
			for _, tree := range trees {
				if e, ok := c.at(tree, rel); ok {
					below(rel, e, 0)
				}
			}
		}
	}
	for _, f := range c.same {
		add(f.path, vcs.TreeEntry{Mode: f.mode, ID: f.id})
	}
	if len(c.names) > maxOwn || len(all) > maxOwn || len(c.same) > maxOwn {
		return nil, ErrTooMuch
	}
	return all, c.left.spend(0)
}

// protectedNames returns the paths of the protected names that the workspace has.
func (c *commits) protectedNames() []string {
	if c.names == nil {
		c.names = []string{}
		c.guard.rules.suspects(c.guard.tree, func(s suspect) {
			if s.kind == isName && len(c.names) <= maxOwn {
				c.names = append(c.names, c.guard.abs(s.rel))
			}
		})
	}
	return c.names
}

// list is entries for what is asked for again.
func (c *commits) list(tree string) ([]vcs.TreeEntry, error) {
	if list, ok := c.lists[tree]; ok {
		return list, c.left.spend(64)
	}
	list, err := c.entries(tree)
	if err == nil && len(list) <= maxListed {
		if c.lists == nil || len(c.lists) == maxLists {
			c.lists = map[string][]vcs.TreeEntry{}
		}
		c.lists[strings.Clone(tree)] = list
	}
	return list, err
}
