package seatbelt

import (
	"path"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// maxChoice bounds the names in one expression.
const maxChoice = 600

// lessProtected returns filters that keep writes from what a tool of the host would execute later. They
// are a part of what allows them, and no rule of their own: nothing rests on which of two rules goes
// first, and no rule opens a part of it again.
func (w *writer) lessProtected(p *profiles.Policy, s *Survey, regions []*region) (less []string, err error) {
	file := func(why, path string) {
		less = append(less, remark("protect, "+why))
		for _, filter := range w.at(s.Real(path)) {
			less = append(less, not(filter))
		}
	}
	for _, at := range protections(p, p.Protect) {
		if at.path != "" && w.tree.at(s.Real(at.path)).gives(writable) {
			file(label(at.origin), at.path)
		}
	}
	for _, path := range s.Protect {
		file("this machine", path)
	}
	for _, set := range w.protectSets(p, s) {
		expressions, err := set.expressions()
		if err != nil {
			return nil, err
		}
		for _, expression := range expressions {
			switch {
			case strings.HasPrefix(expression, ";"):
			case len(regions) == 1 && regions[0].path == set.dir:
				expression = not(expression)
			default:
				expression = not(form("require-all", anyOf(set.roots), expression))
			}
			less = append(less, expression)
		}
	}
	return less, nil
}

// A protection is where a rule keeps writes away: at one path, or at what a pattern matches.
type protection struct {
	path string // "" for a pattern
	choice
	origin profiles.Origin
}

// A choice is a pattern, and the expression for what stands before it.
type choice struct{ head, pattern string }

// The heads of patterns that hold at any depth, and of those for what lies in a
// repository's own directory, a submodule's or a worktree's.
var (
	anyDepth = "([^/]+/)*"
	anyGit   = anyDepth + quoteName(".git") + "/(" + quoteName("modules") + "/([^/]+/)*|" + quoteName("worktrees") + "/[^/]+/)?"
)

// protections returns where the rules hold that are no mere review: [profiles.ProtectRule.Matches].
func protections(p *profiles.Policy, rules []profiles.ProtectRule) (list []protection) {
	for _, r := range rules {
		at := protection{choice: choice{pattern: r.Pattern}, origin: r.Origin}
		own, git := strings.CutPrefix(r.Pattern, ".git/")
		rest, deep := strings.CutPrefix(r.Pattern, "**/")
		switch {
		case r.Review:
			continue
		case strings.HasPrefix(r.Pattern, "/"):
			at.path = r.Pattern
		case git:
			at.choice = choice{anyGit, own}
		case deep:
			at.choice = choice{anyDepth, rest}
		case !strings.Contains(r.Pattern, "/"):
			at.head = anyDepth
		case !strings.ContainsAny(r.Pattern, "*?["):
			at.path = path.Join(p.Workspace, r.Pattern)
		}
		list = append(list, at)
	}
	return list
}

// A protectSet is patterns, and the directories of one depth in which they hold.
type protectSet struct {
	choices []choice
	dir     string   // one of them
	roots   []string // as filters
}

// protectSets returns the patterns of the workspace, and those of the other
// directories that the command may write: [profiles.Policy.ProtectedAnywhere].
func (w *writer) protectSets(p *profiles.Policy, s *Survey) (sets []*protectSet) {
	add := func(dir string, rules []profiles.ProtectRule) {
		root := anyOf(w.at(dir))
		var choices []choice
		for _, at := range protections(p, rules) {
			if at.path == "" {
				choices = append(choices, at.choice)
			}
		}
		for _, set := range sets {
			if depth(set.dir) == depth(dir) && slices.Equal(set.choices, choices) {
				set.roots = append(set.roots, root)
				return
			}
		}
		sets = append(sets, &protectSet{choices: choices, dir: dir, roots: []string{root}})
	}
	add(p.Workspace, p.Protect)
	for _, r := range w.tree.regions(writable) {
		rule := r.decision.Rule
		if r.gives(writable) && rule.Origin != private && !within(p.Workspace, r.path) {
			add(r.path, p.ProtectedOutside(p.Keeps(rule.Path, rule)))
		}
	}
	return sets
}

// expressions returns the patterns of a set, several in one expression, each after a
// comment with their names.
func (s *protectSet) expressions() (list []string, err error) {
	for _, head := range [...]string{"", anyGit, anyDepth} {
		var names, parts []string
		flush := func() {
			if len(names) > 0 {
				list = append(list, remark("protect, "+strings.Join(names, " ")), regex(below(s.dir, whole(head+"("+strings.Join(parts, "|")+")"))))
			}
			names, parts = nil, nil
		}
		for _, c := range s.choices {
			if c.head != head {
				continue
			}
			globs, err := globsOf(c.pattern)
			if err != nil {
				return nil, err
			}
			if head == anyGit {
				c.pattern = ".git/" + c.pattern
			}
			names = append(names, c.pattern)
			for _, g := range globs {
				parts = append(parts, g.expression())
			}
			if len(strings.Join(parts, "|")) > maxChoice {
				flush()
			}
		}
		flush()
	}
	if slices.ContainsFunc(s.choices, func(c choice) bool { return c.head == anyGit }) {
		// A directory with a configuration in it could be given the name.
		list = append(list, remark("protect, .git itself: no repository is made, and none is turned into another"),
			regex(below(s.dir, anyDepth+quoteName(".git")+"$")))
	}
	if len(s.choices) > 0 {
		// APFS looks for names by Unicode's folding: a long s is an s.
		list = append(list, remark("protect, names with a dot that the disk may take for one of these"),
			regex(below(s.dir, anyDepth+quoteName(".")+"[^/]*[^ -~]")))
	}
	return list, nil
}

// fixed denies that a directory is moved away, with what is hidden or protected in
// it: under another name no rule would know it. Removing it is the same operation.
func (w *writer) fixed(p *profiles.Policy, s *Survey) {
	var dirs, filters []string
	add := func(dir string) {
		if w.tree.at(dir).gives(writable) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	around := func(file string) {
		for dir := path.Dir(file); dir != "/"; dir = path.Dir(dir) {
			add(dir)
		}
	}
	for _, right := range []class{readable, writable} {
		for _, r := range w.tree.regions(right) {
			add(r.path)
			for _, hole := range r.holes {
				around(hole.path)
			}
		}
	}
	for _, at := range protections(p, p.Protect) {
		if at.path != "" {
			around(s.Real(at.path))
		}
	}
	for _, file := range slices.Concat(s.Protect, s.Standing) {
		around(s.Real(file))
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		filters = append(filters, "(literal "+w.ref(dir)+")")
	}
	for _, r := range w.tree.regions(writable) {
		for _, p := range r.patterns {
			for _, g := range p.above() {
				if !writable(p.rule.Access) {
					filters = append(filters, remark(p.rule.Access.String()+", "+label(p.rule.Origin)), regex(below(r.path,
						g.expression()+"$")))
				}
			}
		}
	}
	w.comment("What holds something that is hidden or protected stays where it is.")
	w.rule("deny file-write-unlink", append(filters, repositories(p, w)...)...)
	w.comment("No program that is made here runs as somebody else.")
	w.rule("deny file-write-setugid", `(subpath "/")`)
}

// repositories returns a filter for the directories above what is protected of a repository,
// wherever one may be. The repository's own is protected by its name.
func repositories(p *profiles.Policy, w *writer) (list []string) {
	inner := []string{quoteName("modules"), quoteName("worktrees")}
	found := false
	for _, at := range protections(p, p.Protect) {
		found = found || at.head == anyGit
		if dir, _, deep := strings.Cut(at.pattern, "/"); at.head == anyGit && deep && !strings.ContainsAny(dir, `*?["`) && !slices.Contains(inner, quoteName(dir)) {
			inner = append(inner, quoteName(dir))
		}
	}
	if !found {
		return nil
	}
	return []string{remark("protect, .git/"), form("require-all", anyOf(w.at(p.Workspace)),
		regex(below(p.Workspace, anyDepth+quoteName(".git")+"/("+strings.Join(inner, "|")+")$")))}
}
