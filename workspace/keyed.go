package workspace

import (
	"bytes"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// A Keyed is a JSON file of the host's of which the command has a copy. What it
// changes there is sorted by keys when it is dead: some the host gets, some later
// runs, and all others are taken back and told. So there is no moment in which the
// host could read what was planted, and a launcher that is killed leaves nothing.
type Keyed struct {
	Path  string // as the policy names it: beside it lies the lock
	Real  string // where it lies; another only if the policy names a link
	Rules profiles.KeyedFile
	Host  []byte // what stood there at the start; nil for nothing
	Given []byte // what the command finds: that, with what earlier runs remembered; nil for nothing
}

// MaxKeyed bounds such a file, and its copy.
const MaxKeyed = 4 << 20

// maxGiven bounds the host's file when a run adds to it. The rest is for the host's
// own programs: once they made it larger than MaxKeyed, no run could begin.
const maxGiven = MaxKeyed / 2

// maxRemembered bounds what runs in a workspace remember of it.
const maxRemembered = 256 << 10

// Remember puts what earlier runs in the same workspace remembered over what stood
// on the host. A file of the host's that is no JSON as it must be the command gets as
// it is.
func (k *Keyed) Remember(memory []byte) {
	k.Given = k.Host
	if len(memory) == 0 {
		return
	}
	base, err := k.base(k.Host)
	if err != nil {
		return
	}
	more, err := parseTree(memory)
	if err != nil {
		return
	}
	for _, c := range difference(newObject(), more) {
		if fate, known := k.Rules.Fate(c.names); known && fate == profiles.Inside {
			base.set(c.names, c.after)
		}
	}
	k.Given = base.bytes()
}

func (k *Keyed) base(b []byte) (*node, error) {
	if len(bytes.TrimSpace(b)) == 0 {
		return newObject(), nil
	}
	return parseTree(b)
}

// A keyChange is a value that was set, changed or removed: not an object, but for an
// empty one.
type keyChange struct {
	names         []string
	before, after *node // nil for nothing
}

// path is the key for people.
func (c *keyChange) path() string {
	names := slices.Clone(c.names)
	for i, name := range names {
		if strings.ContainsAny(name, ". ") || name == "" {
			names[i] = quoteJSON(name)
		}
	}
	return strings.Join(names, ".")
}

// difference returns what became of one object as another. An empty object or list
// where nothing was says nothing, and neither does nothing where one was. What is in
// an object is changed name by name, since each has a rule of its own, also where
// something else was in the object's place, or is.
func difference(before, after *node) (list []keyChange) {
	var walk func(names []string, before, after *node)
	walk = func(names []string, before, after *node) {
		switch {
		case before.same(after):
		case before.holds() || after.holds():
			if before != nil && !before.isObject() {
				list = append(list, keyChange{names, before, nil})
			}
			for _, name := range namesOf(before, after) {
				walk(append(slices.Clip(names), name), before.get(name), after.get(name))
			}
			if after != nil && !after.isObject() {
				list = append(list, keyChange{names, before, after})
			}
		case before.void() && after.void():
		default:
			list = append(list, keyChange{names, before, after})
		}
	}
	walk(nil, before, after)
	return list
}

// namesOf returns the names of both, those of the first in its order.
func namesOf(a, b *node) (names []string) {
	for i, n := range [...]*node{a, b} {
		if n == nil {
			continue
		}
		for _, m := range n.members {
			if m.value != nil && (i == 0 || a.get(m.name) == nil) {
				names = append(names, m.name)
			}
		}
	}
	return names
}

// keyChanges is what became of a copy.
type keyChanges struct{ keep, inside, back []keyChange }

// sort holds what the copy has become against what the command was given.
func (k *Keyed) sort(now []byte) (s keyChanges, err error) {
	given, err := k.base(k.Given)
	if err != nil {
		return s, err
	}
	tree, err := parseTree(now)
	if err != nil {
		return s, err
	}
	for _, c := range difference(given, tree) {
		switch fate, known := k.Rules.Fate(c.names); {
		case !known:
			s.back = append(s.back, c)
		case fate == profiles.Keep:
			s.keep = append(s.keep, c)
		case fate == profiles.Inside:
			s.inside = append(s.inside, c)
		}
	}
	return s, nil
}

// merge does changes to a tree. It returns those that could not be, because
// something else stands where they lead.
func merge(tree *node, changes []keyChange) (left []keyChange) {
	for _, c := range changes {
		if !tree.set(c.names, c.after) {
			left = append(left, c)
		}
	}
	return left
}

// extract writes one side of changes as an object.
func extract(changes []keyChange, side func(*keyChange) *node) []byte {
	tree := newObject()
	for i := range changes {
		if v := side(&changes[i]); v != nil {
			tree.set(changes[i].names, v)
		}
	}
	return tree.bytes()
}

// maxKeysTold bounds the keys that a line names.
const maxKeysTold = 8

// brief shortens a key, which may be as long as the file.
func brief(name string) string {
	const most = 120
	if r := []rune(name); len(r) > most {
		return string(r[:most]) + "…"
	}
	return name
}

// tell names the keys of changes.
func tell(changes []keyChange) string {
	var names []string
	for i := range changes {
		if i == maxKeysTold {
			names = append(names, "…")
			break
		}
		name := brief(changes[i].path())
		if changes[i].after == nil {
			name += " (removed)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
