package seatbelt

import (
	"regexp"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
)

// A tree divides the files of a machine into places. Within one, less the places
// inside it, the policy says the same of every path, but for patterns.
type tree struct {
	places []*place // each before those inside it
}

// A place is a path that a rule names.
type place struct {
	path     string
	decision profiles.Decision
	patterns []pattern
	inside   []*place // the nearest ones
}

// A pattern is what a rule with a glob says below a place.
type pattern struct {
	glob
	rule profiles.FileRule
	here bool // the rule begins at the place
}

// private is the rule for the directories of pccrun's own, whatever lies around them.
var private = profiles.Origin{Source: "default", Key: "the command's own"}

func newTree(p *profiles.Policy, s *Survey) (*tree, error) {
	table, err := realPolicy(p, s)
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc([]string{s.Home, s.Temp}, func(dir string) bool { return dir == "" })
	t := new(tree)
	paths := append([]string{"/"}, own...)
	for _, r := range slices.Concat(table.Files, table.Tighten) {
		paths = append(paths, r.Path)
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		at := &place{path: path, decision: table.Decide(path)}
		if slices.ContainsFunc(own, func(dir string) bool { return within(dir, path) }) {
			at.decision = ownDecision(path)
		} else if at.patterns, err = patternsAt(path, table); err != nil {
			return nil, err
		}
		if around := t.at(path); around != nil {
			around.inside = append(around.inside, at)
		}
		t.places = append(t.places, at)
	}
	return t, nil
}

// realPolicy returns the tables in the names that the kernel compares, with what
// the machine and the system add.
func realPolicy(p *profiles.Policy, s *Survey) (*profiles.Policy, error) {
	table := &profiles.Policy{Files: slices.Clone(p.Files), Tighten: slices.Clone(p.Tighten)}
	for _, add := range s.Places {
		table.Files = append(table.Files, profiles.FileRule{Path: add.Path, Access: add.Access,
			Origin: profiles.Origin{Source: "this machine", Key: add.Why}})
	}
	named := map[string]bool{}
	for _, rules := range [...][]profiles.FileRule{table.Files, table.Tighten} {
		for i := range rules {
			if rules[i].Access == profiles.Overlay {
				text := rules[i].Text()
				return nil, &profiles.Error{Origin: rules[i].Origin, Cause: "filesystem " + text + ": overlay: macOS has no copy-on-write for a sandbox",
					Hint: "--read or --write " + shell.Quote(text) + " in place of it"}
			}
			rules[i].Path = s.Real(rules[i].Path)
			named[rules[i].Path] = named[rules[i].Path] || rules[i].Glob == ""
		}
	}
	for _, add := range systemPlaces {
		if !named[add.path] {
			table.Files = append(table.Files, profiles.FileRule{Path: add.path, Access: profiles.Hide,
				Origin: profiles.Origin{Source: "macOS", Key: add.why}})
		}
	}
	return table, nil
}

// ownDecision is that for a directory of the run's own.
func ownDecision(dir string) profiles.Decision {
	return profiles.Decision{Access: profiles.Write, Rule: profiles.FileRule{Path: dir, Access: profiles.Write,
		Origin: private}}
}

// patternsAt returns what the globs of the tables say below a path: no more than
// what only tightens leaves there.
func patternsAt(path string, table *profiles.Policy) (list []pattern, err error) {
	all := profiles.Policy{Files: []profiles.FileRule{{Path: "/", Access: profiles.Write}}, Tighten: table.Tighten}
	most := all.Decide(path).Access
	for i, r := range slices.Concat(table.Files, table.Tighten) {
		if r.Glob == "" || !within(r.Path, path) {
			continue
		}
		globs, err := globsOf(r.Glob)
		if err != nil {
			return nil, err
		}
		if r.Access = min(r.Access, most); i >= len(table.Files) {
			r.Access = min(r.Access, table.Decide(path).Access)
		}
		rel := strings.TrimPrefix(path[len(r.Path):], "/")
		for _, g := range globs {
			for _, left := range g.after(rel) {
				list = append(list, pattern{glob: left, rule: r, here: rel == ""})
			}
		}
	}
	return list, nil
}

// at returns the nearest place in which a path lies: what the tree says of it, but for patterns.
func (t *tree) at(path string) (nearest *place) {
	for _, at := range t.places {
		if within(at.path, path) {
			nearest = at // they are sorted: the last is the deepest
		}
	}
	return nearest
}

// A class is the accesses that give a right.
type class func(profiles.Access) bool

func readable(a profiles.Access) bool { return a >= profiles.Read }
func writable(a profiles.Access) bool { return a == profiles.Write }

func (at *place) gives(right class) bool { return right(at.decision.Access) }

// A region is a place and the places that are cut out of it, since their answer is
// another one or is another rule's.
type region struct {
	*place
	holes []*place
}

// regions returns the regions for a right: those that give it, and those in which a
// pattern does.
func (t *tree) regions(right class) []*region {
	var list []*region
	var visit func(at *place, in *region)
	visit = func(at *place, in *region) {
		if in == nil || at.differs(in.place, right) {
			if in != nil {
				in.holes = append(in.holes, at)
			}
			in = &region{place: at}
			list = append(list, in)
		}
		for _, inner := range at.inside {
			visit(inner, in)
		}
	}
	visit(t.places[0], nil)
	return slices.DeleteFunc(list, func(r *region) bool { return !r.gives(right) && len(r.turning(right)) == 0 })
}

// differs reports whether the place cannot be a part of the region around it.
func (at *place) differs(around *place, right class) bool {
	if at.gives(right) != around.gives(right) {
		return true
	}
	for _, p := range at.turning(right) {
		if p.here {
			return true
		}
	}
	for _, p := range around.turning(right) {
		if regexp.MustCompile("(?s)" + below(around.path, whole(p.expression()))).MatchString(at.path) {
			return true // a rule with a name has the last word on what a pattern matches
		}
	}
	return false
}

// turning returns the patterns that say of the right what the place does not.
func (at *place) turning(right class) []pattern {
	return slices.DeleteFunc(slices.Clone(at.patterns),
		func(p pattern) bool { return right(p.rule.Access) == at.gives(right) })
}
