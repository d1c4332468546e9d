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
		c.Protect, c.Review = u.protected(full)
		if c.After == nil {
			if strings.HasPrefix(c.Protect, ".git/") && git.Gone(full) {
				c.Protect = ""
			}
			kept = append(kept, c)
			continue
		}
		if c.Protect == "" && c.After.Kind == workspace.Link {
			c.Protect = u.way(full)
		}
		d, _ := git.Judge(full, c.After.Kind.Type(), c.After.Target)
		c.plain = d.Plain
		switch c.Review = c.Review || d.Report; {
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

// A globRule is a rule of which one name begins and ends with texts.
type globRule struct {
	rule       int
	head, tail string
}

// protected says which rule of the run's policy protects a path of the host.
func (u *Upper) protected(path string) (deny string, review bool) {
	if u.byName == nil { // there are a hundred rules, and there may be as many thousand paths
		u.byName = map[string][]int{}
		for i := range u.Record.Protect {
			name, plain := u.Record.Protect[i].Last()
			if plain {
				u.byName[name] = append(u.byName[name], i)
				continue
			}
			end := strings.LastIndexAny(name, "*?[]") // -1: all of nothing
			u.byGlob = append(u.byGlob, globRule{i, name[:max(0, strings.IndexAny(name, "*?[]"))], name[end+1:]})
		}
	}
	var rules []int
	for name := range strings.SplitSeq(path, "/") {
		rules = append(rules, u.byName[name]...)
		for _, g := range u.byGlob {
			if strings.HasPrefix(name, g.head) && strings.HasSuffix(name, g.tail) {
				rules = append(rules, g.rule)
			}
		}
	}
	slices.Sort(rules)
	for _, i := range slices.Compact(rules) {
		r := &u.Record.Protect[i]
		switch {
		case !u.matches(r, path):
		case r.Review:
			review = true
		default:
			return r.Pattern, false
		}
	}
	return "", review
}

// matches reports whether a rule holds for a path: in the workspace, and in an
// overlay of any other directory as if that were one.
func (u *Upper) matches(r *profiles.ProtectRule, path string) bool {
	return r.Matches(u.Record.Workspace, path) ||
		slices.ContainsFunc(u.Record.Layers, func(l Layer) bool { return l.Path != u.Record.Workspace && r.Matches(l.Path, path) })
}

// way says to what a link at a path leads the way: where it leads there may be
// anything, now or later.
func (u *Upper) way(path string) string {
	roots := []string{u.Record.Workspace}
	for _, l := range u.Record.Layers {
		roots = append(roots, l.Path)
	}
	for i := range u.Record.Protect {
		for _, root := range roots {
			for _, d := range workspace.Ways(root, &u.Record.Protect[i]) {
				if d.Matches(root, path) {
					return d.Whole
				}
			}
		}
	}
	return ""
}
