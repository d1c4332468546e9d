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
		for _, filter := range w.at(s.Real(path), "PROTECT") {
			less = append(less, not(filter))
		}
	}
	for i := range p.Protect {
		r := &p.Protect[i]
		if path, ok := protectedPath(p, r); ok && !r.Review && w.tree.at(s.Real(path)).gives(writable) {
			file(label(r.Origin), path)
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

// protectedPath returns the path that a rule protects, if it is one alone.
func protectedPath(p *profiles.Policy, r *profiles.ProtectRule) (string, bool) {
	switch {
	case strings.HasPrefix(r.Pattern, "/"):
		return r.Pattern, true
	case strings.ContainsAny(r.Pattern, "*?[") || !strings.Contains(r.Pattern, "/") || strings.HasPrefix(r.Pattern,
		".git/"):
		return "", false
	}
	return path.Join(p.Workspace, r.Pattern), true
}

// A protectSet is patterns, and the directories of one depth in which they hold.
type protectSet struct {
	choices []choice
	dir     string   // one of them
	roots   []string // as filters
}

// A choice is a pattern, and the expression for what stands before it.
type choice struct{ head, pattern string }

// The heads of patterns that hold at any depth, and of those for what lies in a
// repository's own directory, a submodule's or a worktree's.
var (
	anyDepth = "([^/]+/)*"
	anyGit   = anyDepth + quoteName(".git") + "/(" + quoteName("modules") + "/([^/]+/)*|" + quoteName("worktrees") + "/[^/]+/)?"
)

// choiceOf says of a pattern where it holds: [profiles.ProtectRule.Matches].
func choiceOf(pattern string) choice {
	if own, ok := strings.CutPrefix(pattern, ".git/"); ok {
		return choice{anyGit, own}
	}
	if rest, ok := strings.CutPrefix(pattern, "**/"); ok {
		return choice{anyDepth, rest}
	}
	if !strings.Contains(pattern, "/") {
		return choice{anyDepth, pattern}
	}
	return choice{"", pattern}
}

// protectSets returns the patterns of the workspace, and those of the other
// directories that the command may write: [profiles.Policy.ProtectedAnywhere].
func (w *writer) protectSets(p *profiles.Policy, s *Survey) (sets []*protectSet) {
	add := func(dir string, rules []profiles.ProtectRule) {
		root := anyOf(w.at(dir, "WRITE"))
		var choices []choice
		for i := range rules {
			if _, single := protectedPath(p, &rules[i]); !rules[i].Review && !single {
				choices = append(choices, choiceOf(rules[i].Pattern))
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
	expressions, names := map[string][]string{}, map[string][]string{}
	flush := func(head string) {
		if len(names[head]) > 0 {
			list = append(list, remark("protect, "+strings.Join(names[head], " ")), regex(below(s.dir,
				whole(head+"("+strings.Join(expressions[head], "|")+")"))))
		}
		expressions[head], names[head] = nil, nil
	}
	for _, c := range s.choices {
		globs, err := globsOf(c.pattern)
		if err != nil {
			return nil, err
		}
		name := c.pattern
		if c.head == anyGit {
			name = ".git/" + name
		}
		names[c.head] = append(names[c.head], name)
		for _, g := range globs {
			expressions[c.head] = append(expressions[c.head], g.expression())
		}
		if len(strings.Join(expressions[c.head], "|")) > maxChoice {
			flush(c.head)
		}
	}
	for _, head := range [...]string{"", anyGit, anyDepth} {
		flush(head)
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
	for i := range p.Protect {
		if file, ok := protectedPath(p, &p.Protect[i]); ok && !p.Protect[i].Review {
			around(s.Real(file))
		}
	}
	for _, file := range slices.Concat(s.Protect, s.Standing) {
		around(s.Real(file))
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		filters = append(filters, "(literal "+w.ref(dir, "FIXED")+")")
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
	for _, r := range p.Protect {
		own, ok := strings.CutPrefix(r.Pattern, ".git/")
		found = found || ok && !r.Review
		if dir, _, deep := strings.Cut(own, "/"); ok && deep && !r.Review && !strings.ContainsAny(dir, `*?["`) &&
			!slices.Contains(inner, quoteName(dir)) {
			inner = append(inner, quoteName(dir))
		}
	}
	if !found {
		return nil
	}
	return []string{remark("protect, .git/"), form("require-all", anyOf(w.at(p.Workspace, "WORKSPACE")),
		regex(below(p.Workspace, anyDepth+quoteName(".git")+"/("+strings.Join(inner, "|")+")$")))}
}
