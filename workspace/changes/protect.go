package changes

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/gitdir"
)

// protect marks what a host tool would execute, by the rules of the run's policy and by the table of git
// directories. What git computes again goes: from the changes, and on the host where it stood.
func (u *Upper) protect(layer int, s *Set) {
	git := gitdir.Tree{Root: s.Root, Rules: true, Before: &view{under: s.Root, before: u.before[layer]}, Now: &view{under: s.Root, before: u.before[layer], after: u.after[layer]}}
	kept := s.Changes[:0]
	for _, c := range s.Changes {
		full := filepath.Join(s.Root, c.Path)
		c.Protect, c.Review = u.protected(full, c.After != nil && c.After.Kind == workspace.Link)
		if c.After == nil {
			if strings.HasPrefix(c.Protect, ".git/") && git.Gone(full) {
				c.Protect = ""
			}
			kept = append(kept, c)
			continue
		}
		d := git.Judge(full, c.After.Kind.Type(), c.After.Target)
		c.plain = d.Plain
		switch c.Review = c.Review || d.Note != ""; {
		case c.Protect == "":
			c.Protect = d.Why
		case d.New && strings.HasPrefix(c.Protect, ".git/"):
			c.Protect = ""
		}
		if d.Drop && c.Protect == "" {
			if c.Before == nil || c.Before.Kind == workspace.Dir {
				continue
			}
			c.After = nil
		}
		kept = append(kept, c)
	}
	s.Changes = kept
}

// A view is what stands on the host, or with the second layer over it.
type view struct {
	under         string
	before, after *layer
	known         map[string][2]*layer
}

// layers returns in which layers a directory is looked for in, the upper first.
func (v *view) layers(dir string) (in [2]*layer) {
	if dir == "." {
		return [2]*layer{v.after, v.before}
	}
	in, known := v.known[dir]
	if known {
		return in
	}
	for i, l := range v.layers(path.Dir(dir)) {
		if l == nil {
			continue
		}
		e, err := l.entry(dir)
		if err != nil {
			continue
		}
		if e.Kind != workspace.Dir {
			break // it hides what is below
		}
		in[i] = l
		if f, err := l.open(dir); err == nil {
			whole := l.partial && opaque(f)
			f.Close()
			if whole {
				break
			}
		}
	}
	if v.known == nil {
		v.known = map[string][2]*layer{}
	}
	v.known[dir] = in
	return in
}

func (v *view) find(full string) (l *layer, rel string, e *Entry) {
	rel, in := strings.CutPrefix(full, strings.TrimSuffix(v.under, "/")+"/")
	if !in {
		return nil, "", nil
	}
	for _, l := range v.layers(path.Dir(rel)) {
		if l == nil {
			continue
		}
		if e, err := l.entry(rel); err == nil {
			if l.whiteout(rel) {
				return nil, "", nil
			}
			return l, rel, e
		}
	}
	return nil, "", nil
}

// Kind returns what is at a path.
func (v *view) Kind(path string) (fs.FileMode, bool) {
	_, _, e := v.find(path)
	if e == nil {
		return 0, false
	}
	return e.Kind.Type(), true
}

// Read reads a regular file.
func (v *view) Read(path string, limit int64) ([]byte, error) {
	l, rel, e := v.find(path)
	if e == nil || e.Kind != workspace.File {
		return nil, fs.ErrNotExist
	}
	return read(l, rel, limit)
}

// A Protection finds the rules that protect a path. There are a hundred of them, and there may be as many thousand paths.
type Protection struct {
	rules  []profiles.ProtectRule
	roots  []string
	byName map[string][]int // rules by the name that a path must have
	byGlob []globRule       // those whose name is a pattern
	ways   []wayTo
}

// A globRule is a rule of which one name begins and ends with texts.
type globRule struct {
	rule       int
	head, tail string
}

type wayTo struct {
	root string
	workspace.Way
}

// NewProtection makes one of rules that hold below directories.
func NewProtection(rules []profiles.ProtectRule, roots ...string) *Protection {
	p := &Protection{rules: rules, roots: roots, byName: map[string][]int{}}
	for i := range rules {
		if name, plain := rules[i].Last(); plain {
			p.byName[name] = append(p.byName[name], i)
		} else {
			end := strings.LastIndexAny(name, "*?[]") // -1: all of nothing
			p.byGlob = append(p.byGlob, globRule{i, name[:max(0, strings.IndexAny(name, "*?[]"))], name[end+1:]})
		}
		for _, root := range roots {
			for _, w := range workspace.Ways(root, &rules[i]) {
				p.ways = append(p.ways, wayTo{root, w})
			}
		}
	}
	return p
}

// Of says which rule protects a path. A link is protected also where it leads the way to what a rule names: where it
// leads there may be anything, now or later.
func (p *Protection) Of(path string, isLink bool) (deny string, review bool) {
	var found []int
	for name := range strings.SplitSeq(path, "/") {
		found = append(found, p.byName[name]...)
		for _, g := range p.byGlob {
			if strings.HasPrefix(name, g.head) && strings.HasSuffix(name, g.tail) {
				found = append(found, g.rule)
			}
		}
	}
	slices.Sort(found)
	for _, i := range slices.Compact(found) {
		r := &p.rules[i]
		switch {
		case !slices.ContainsFunc(p.roots, func(root string) bool { return r.Matches(root, path) }):
		case r.Review:
			review = true
		default:
			return r.Pattern, false
		}
	}
	for i := range p.ways {
		if w := &p.ways[i]; isLink && w.Matches(w.root, path) {
			return w.Whole, review
		}
	}
	return "", review
}

// protected says which rule of the run's policy protects a path of the host: in the workspace, and in an overlay of any
// other directory as if that were one.
func (u *Upper) protected(path string, isLink bool) (deny string, review bool) {
	if u.protection == nil {
		roots := []string{u.Record.Workspace}
		for _, l := range u.Record.Layers {
			roots = append(roots, l.Path)
		}
		u.protection = NewProtection(u.Record.Protect, roots...)
	}
	return u.protection.Of(path, isLink)
}
