package workspace

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/internal/codec"
)

// A class says what a hit is for. Its values stand in the index.
type class uint8

const (
	classGlob    class = iota // a rule of the file table matches; arg is its index
	classProtect              // a protect rule matches; arg is its index
	classInside               // a file or link below a directory that is protected, reviewed or hidden
	classGit                  // named .git
	classAlias                // its inode is one of those asked for
	classFIFO                 // a FIFO
	classLead                 // a link at the top, or one of node_modules that leads out
	classWay                  // a link that stands for a directory on the way to a protected name; arg is the index in rules.deep
)

// A rule is a row of the file table or of the protect list that can match
// below the root, cut down to a test of the name that costs nearly nothing.
type rule struct {
	class          class
	arg            uint32
	prefix, suffix string // every name that the rule matches begins and ends so
	whole          bool   // prefix is the whole name
	next           uint32 // in its chain: one more than the index of the next rule, 0 at the end
}

// A chain is a list within [rules.tests], by one more than their indexes; 0 is none.
type chain struct{ head, tail uint32 }

// may reports whether the rule can match a path that ends in name.
func (r *rule) may(name []byte) bool {
	if r.whole {
		return string(name) == r.prefix
	}
	return len(name) >= max(len(r.prefix), len(r.suffix)) &&
		string(name[:len(r.prefix)]) == r.prefix && string(name[len(name)-len(r.suffix):]) == r.suffix
}

// rules is a query made ready for looking at names.
type rules struct {
	root    string
	aside   bool // see [Query.Aside]
	kept    bool // see [Query.Kept]
	files   []profiles.FileRule
	protect []profiles.ProtectRule
	deep    []Way
	single  func(path string) bool // see [Query.Single]
	closed  []int                  // rules without a glob that hide or replace a directory below the root
	open    []string               // paths below the root that rules without a glob show
	fixed   []int                  // rules without a glob that show something below the root read-only

	tests  []rule         // what is asked of names, in the order of the query
	first  [256]chain     // those that have a byte that a name must begin with, by it
	last   [256]chain     // those without one, by the byte that it must end with
	rest   chain          // those without either
	starts [256]bool      // a name that begins so needs a look, whatever it is
	pairs  [256][4]uint64 // and one whose first two bytes are these: most names share one with some rule, few both
	ends   [256]bool
}

// compile sorts the rules of a query by what the names they match look like.
func compile(q Query) (*rules, error) {
	c := &rules{root: q.Root, aside: q.Aside, kept: q.Kept, files: q.Files, protect: q.Protect, single: q.Single}
	c.tests = make([]rule, 0, len(q.Files)+len(q.Protect)*3/2) // some have ways too
	for i := range q.Files {
		r := &q.Files[i]
		if r.Glob != "" {
			if strings.IndexByte(r.Glob, 0) >= 0 {
				return nil, fmt.Errorf("scan workspace: %s: pattern with NUL", r.Origin)
			}
			if _, ok := beneath.Path(r.Path, q.Root); ok {
				c.add(classGlob, i, r.Glob)
			} else if _, ok := beneath.Path(q.Root, r.Path); ok {
				c.add(classGlob, i, r.Glob)
			}
			continue
		}
		if rest, ok := beneath.Path(q.Root, r.Path); ok && rest != "" {
			if r.Access == profiles.Hide || r.Access == profiles.Private {
				c.closed = append(c.closed, i)
			} else {
				c.open = append(c.open, r.Path)
			}
			if r.Access == profiles.Read {
				c.fixed = append(c.fixed, i)
			}
		}
	}
	for i := range q.Protect {
		r := &q.Protect[i]
		if r.Pattern == "" || strings.IndexByte(r.Pattern, 0) >= 0 {
			return nil, fmt.Errorf("scan workspace: %s: pattern %q: want a name or a path", r.Origin, r.Pattern)
		}
		if _, git := gitPattern(r.Pattern); git {
			continue
		}
		c.add(classProtect, i, r.Pattern)
		for _, d := range Ways(q.Root, r) {
			c.deep = append(c.deep, d)
			c.add(classWay, len(c.deep)-1, d.rule.Pattern)
		}
	}
	// HEAD, objects, refs and commondir tell a git directory; the scan
	// itself looks at names that begin so.
	for _, name := range append(gitParts[:], ".git") {
		c.begins(name)
	}
	return c, nil
}

// add files a rule under what the last name of its pattern begins or ends with.
func (c *rules) add(class class, arg int, pattern string) {
	base := pattern[strings.LastIndexByte(pattern, '/')+1:]
	r := rule{class: class, arg: uint32(arg), prefix: base, whole: true}
	if i := strings.IndexAny(base, "*?["); i >= 0 {
		r.whole = false
		r.prefix = base[:i]
		r.suffix = base[strings.LastIndexAny(base, "*?]")+1:]
	}
	in := &c.rest
	switch {
	case r.prefix != "":
		in = &c.first[r.prefix[0]]
		c.begins(r.prefix)
	case r.suffix != "":
		b := r.suffix[len(r.suffix)-1]
		in = &c.last[b]
		c.ends[b] = true
	}
	c.tests = append(c.tests, r)
	n := uint32(len(c.tests))
	if in.head == 0 {
		in.head = n
	} else {
		c.tests[in.tail-1].next = n
	}
	in.tail = n
}

// begins has all names looked at that begin so.
func (c *rules) begins(prefix string) {
	if len(prefix) == 1 {
		c.starts[prefix[0]] = true
		return
	}
	c.pairs[prefix[0]][prefix[1]>>6] |= 1 << (prefix[1] & 63)
}

// begun reports whether a name begins as one that has to be looked at.
func (c *rules) begun(name []byte) bool {
	return c.starts[name[0]] || len(name) > 1 && c.pairs[name[0]][name[1]>>6]>>(name[1]&63)&1 != 0
}

// candidates calls yield with each rule that the name alone does not rule out.
func (c *rules) candidates(name []byte, yield func(*rule)) {
	for _, in := range [...]chain{c.first[name[0]], c.last[name[len(name)-1]], c.rest} {
		for n := in.head; n != 0; {
			r := &c.tests[n-1]
			if r.may(name) {
				yield(r)
			}
			n = r.next
		}
	}
}

// matches asks the rule itself, which alone decides.
func (c *rules) matches(r *rule, path string) bool {
	switch r.class {
	case classGlob:
		return c.files[r.arg].Matches(path)
	case classWay:
		return c.deep[r.arg].Matches(c.root, path)
	}
	return c.protect[r.arg].Matches(c.root, path)
}

// closes returns the rule of the file table that keeps the payload from seeing
// what lies below the directory, given what its name was a hit for.
func (c *rules) closes(path string, hits []hit) (file uint32, ok bool) {
	for _, i := range c.closed {
		if c.files[i].Path == path {
			return uint32(i), true
		}
	}
	if slices.Contains(c.open, path) {
		return 0, false
	}
	for _, h := range hits {
		if h.Class != classGlob {
			continue
		}
		if a := c.files[h.Arg].Access; a == profiles.Hide || a == profiles.Private {
			return h.Arg, true
		}
	}
	return 0, false
}

// fixes returns the state that the directory has below one of another, by the
// rules that show what they name, read-only or not.
func (c *rules) fixes(path string, s state, why uint32) (state, uint32) {
	if s != plain && s != reviewed && s != fixed {
		return s, why
	}
	for _, i := range c.fixed {
		if c.files[i].Path == path {
			return fixed, uint32(i)
		}
	}
	if s == fixed && slices.Contains(c.open, path) {
		return plain, 0
	}
	return s, why
}

// shows reports whether a rule shows something below the directory.
func (c *rules) shows(path string) bool {
	return slices.ContainsFunc(c.open, func(p string) bool {
		_, ok := beneath.Path(path, p)
		return ok
	})
}

// hasNames reports whether names count that are no repository's.
func (c *rules) hasNames() bool {
	for i := range c.protect {
		if _, git := gitPattern(c.protect[i].Pattern); !git {
			return true
		}
	}
	return false
}

// gitRule returns the last rule that a query has for one of the package's own
// patterns, and its index; else one that denies.
func (c *rules) gitRule(pattern string) (profiles.ProtectRule, int) {
	for i, r := range slices.Backward(c.protect) {
		if own, git := gitPattern(r.Pattern); git && own == pattern {
			return r, i
		}
	}
	return profiles.ProtectRule{Pattern: pattern}, -1
}

// gitPattern returns which of the package's own patterns a pattern is.
func gitPattern(pattern string) (string, bool) {
	if !strings.Contains(pattern, ".git") { // most: each launch asks of all
		return "", false
	}
	switch p := filepath.Clean(pattern); p {
	case ".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/info/attributes":
		return p, true
	}
	return "", false
}

// sum is a hash of all that decides what a scan finds: an index with another sum is of no use.
func (c *rules) sum() uint64 {
	query := struct {
		Root    string
		Kept    bool
		Files   []profiles.FileRule
		Protect []profiles.ProtectRule
	}{c.root, c.kept, c.files, c.protect}
	return checksum(codec.Append(nil, &query))
}
