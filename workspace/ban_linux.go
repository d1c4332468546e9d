package workspace

import (
	"path/filepath"
	"slices"
	"strings"
)

// A Ban says where nothing may come to be: at each name that a [Guard] would
// set aside as it appears. It asks the same rules.
type Ban struct {
	rules  *rules
	vacant []string
}

// Ban returns what the guard of a run would set aside, for whoever can forbid it.
func (f *Found) Ban(r *Standing) *Ban {
	return &Ban{rules: f.after.rules, vacant: r.Vacant}
}

// Covers reports whether nothing may be made at a path, absolute and through no
// link, and the pattern for which; "" where git, or a link, leads there. Within says whether what is moved there holds something
// at a relative path: its content would come to be as well.
func (b *Ban) Covers(path string, within func(rel string) bool) (pattern string, yes bool) {
	for _, v := range b.vacant {
		if _, in := below(v, path); in {
			return "", true
		}
		if rest, around := below(path, v); around && within(rest) {
			return "", true
		}
	}
	rel, in := below(b.rules.root, path)
	if !in || rel == "" || inModules(filepath.Dir(rel)) {
		return "", false
	}
	name := []byte(rel[strings.LastIndexByte(rel, '/')+1:])
	b.rules.candidates(name, func(r *rule) {
		if p := &b.rules.protect; !yes && r.class == classProtect && !(*p)[r.arg].Review && b.rules.matches(r, path) {
			pattern, yes = (*p)[r.arg].Pattern, true
		}
	})
	if yes {
		return pattern, true
	}
	i := slices.IndexFunc(b.rules.deep, func(d deepRule) bool {
		return d.matches(b.rules.root, path) && (strings.ContainsAny(d.rest, "*?[") || within(d.rest))
	})
	if i < 0 {
		return "", false
	}
	return b.rules.deep[i].whole, true
}

// Apart reports whether a directory must not move from one place to another as
// a whole: where packages lie, what it holds is nobody's to forbid, and elsewhere
// it is. As between two file systems, it can be copied name by name.
func (b *Ban) Apart(from, to string) bool {
	rel, in := below(b.rules.root, from)
	rest, stays := below(b.rules.root, to)
	return in && stays && inModules(rel) && !inModules(rest)
}
