package workspace

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// A Ban says where nothing may come to be: at each name that a [Guard] would
// set aside as it appears. It asks the same rules.
type Ban struct {
	rules  *rules
	vacant []string
	deep   []deepRule
}

// A deepRule is a pattern of several names, cut in two: what is made at the
// first half must not hold the second.
type deepRule struct {
	last  string // name of the first half; "" if it is a pattern
	rule  profiles.ProtectRule
	top   bool // it names something in the root itself
	rest  string
	whole string
}

// Ban returns what the guard of a run would set aside, for whoever can forbid it.
func (f *Found) Ban(r *Standing) *Ban {
	b := &Ban{rules: f.after.rules, vacant: r.Vacant}
	for i, p := range b.rules.protect {
		if _, git := gitPattern(p.Pattern); git || p.Review || b.rules.overridden(i) || strings.HasPrefix(p.Pattern, "/") {
			continue
		}
		names := strings.Split(filepath.Clean(p.Pattern), "/")
		for k := 1; k < len(names); k++ {
			d := deepRule{last: names[k-1], rule: p, top: k == 1, rest: strings.Join(names[k:], "/"), whole: p.Pattern}
			if d.last == "**" {
				continue
			}
			d.rule.Pattern = strings.Join(names[:k], "/")
			if strings.ContainsAny(d.last, "*?[") {
				d.last = ""
			}
			b.deep = append(b.deep, d)
		}
	}
	return b
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
	i := slices.IndexFunc(b.deep, func(d deepRule) bool {
		return (d.last == "" || d.last == string(name)) && (!d.top || !strings.Contains(rel, "/")) &&
			d.rule.Matches(b.rules.root, path) && (strings.ContainsAny(d.rest, "*?[") || within(d.rest))
	})
	if i < 0 {
		return "", false
	}
	return b.deep[i].whole, true
}
