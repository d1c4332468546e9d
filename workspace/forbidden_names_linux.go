package workspace

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// A Ban says where nothing may come to be: at each name that a [Guard] would
// quarantine as it appears. It asks the same rules.
type Ban struct {
	trees  []*rules
	vacant []string
}

// Add adds what the guard of a tree would quarantine, for whoever can forbid it.
func (b *Ban) Add(f *Found, r *Standing) {
	b.trees, b.vacant = append(b.trees, f.forGuard.rules), append(b.vacant, r.Vacant...)
}

// near returns the rules that hold at a path: those of the nearest root, nil where
// there is none.
func (b *Ban) near(path string) (near *rules) {
	for _, c := range b.trees {
		if _, in := beneath.Path(c.root, path); in && (near == nil || len(c.root) > len(near.root)) {
			near = c
		}
	}
	return near
}

// Covers reports whether nothing may be made at a path, absolute and through no
// link, and the pattern for which; "" where git, or a link, leads there. Within says whether what is moved there holds something
// at a relative path: its content would come to be as well.
func (b *Ban) Covers(path string, within func(rel string) bool) (pattern string, yes bool) {
	for _, v := range b.vacant {
		if _, in := beneath.Path(v, path); in {
			return "", true
		}
		if rest, around := beneath.Path(path, v); around && within(rest) {
			return "", true
		}
	}
	c := b.near(path)
	if c == nil {
		return "", false
	}
	rel, _ := beneath.Path(c.root, path)
	if rel == "" || inModules(filepath.Dir(rel)) {
		return "", false
	}
	if pattern = c.denied(path, unix.S_IFREG); pattern != "" {
		return pattern, true
	}
	i := slices.IndexFunc(c.deep, func(d Way) bool {
		return d.Matches(c.root, path) && (strings.ContainsAny(d.rest, "*?[") || within(d.rest))
	})
	if i < 0 {
		return "", false
	}
	return c.deep[i].Whole, true
}

// Separate reports whether a directory must not move from one place to another as
// a whole: where packages lie, what it holds is nobody's to forbid, and elsewhere
// it is. As between two file systems, it can be copied name by name.
func (b *Ban) Separate(from, to string) bool {
	at, there := b.near(from), b.near(to)
	if at == nil || there == nil {
		return false
	}
	rel, _ := beneath.Path(at.root, from)
	rest, _ := beneath.Path(there.root, to)
	return inModules(rel) && !inModules(rest)
}
