package workspace

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// guardInput is what a scan leaves for a [Guard].
type guardInput struct {
	rules *rules
	tree  *dir
	gits  []string // directories of git, also those that do not look like one: relative
	stood Standing // as far as the scan knows it by itself

	reviewedBelowPins []Reviewed // of [Found.Review], but for a pinned directory above
}

// Standing returns what a look at the end of a run in this workspace needs to
// know. The query is the one that was answered.
func (f *Found) Standing(session string, q Query) *Standing {
	stood := f.forGuard.stood
	r := &stood
	r.Session, r.Root, r.Start, r.Vacant, r.Protect = session, q.Root, f.Start, f.Vacant, q.Protect
	for _, file := range q.Files {
		_, in := beneath.Path(q.Root, file.Path)
		_, around := beneath.Path(file.Path, q.Root)
		if in || around && file.Glob != "" {
			r.Files = append(r.Files, file)
		}
	}
	know := func(n Node, pin bool, why string) {
		var st unix.Stat_t
		if n.Kind == Dir || beneath.Stat(unix.AT_FDCWD, n.Path, &st) != nil {
			return
		}
		r.Known = append(r.Known, Known{Node: Node{n.Path, n.Kind, st.Dev, st.Ino}, Ctime: st.Ctim.Nano(), Pin: pin, Why: why})
	}
	for _, p := range f.Pins {
		know(p.Node, true, p.Why)
	}
	for _, v := range f.forGuard.reviewedBelowPins {
		know(v.Node, true, v.Why)
	}
	for _, v := range f.Review {
		if !inModules(v.Path) { // an installer replaces those by the hundred
			know(v.Node, false, v.Why)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(r.Awaited)) {
		r.know(path, r.Awaited[path])
	}
	f.forGuard.rules.suspects(f.forGuard.tree, func(s suspect) {
		switch s.kind {
		case isRepo:
			r.Repos = append(r.Repos, s.rel)
		default:
			r.Names = append(r.Names, s.rel)
		}
	})
	r.Shut = f.forGuard.tree.shuts(nil)
	for _, rel := range f.forGuard.gits {
		if !slices.Contains(r.Repos, rel) {
			r.Repos = append(r.Repos, rel)
		}
	}
	r.Closed = f.closedDirs()
	formats := map[string]vcs.Format{}
	for _, c := range f.Common {
		r.GitDirs = append(r.GitDirs, c.GitDir)
		if c.sure {
			formats[c.GitDir] = c.format
		}
		for _, dir := range c.Write {
			if dir != c.GitDir {
				r.Stores = append(r.Stores, dir)
			}
		}
	}
	r.Formats = formats
	known := make(chan struct{}) // beside what follows, which reads as much
	go func() { defer close(known); r.knowTips(nil) }()
	defer func() { <-known }()
	r.Git = map[string]GitEntry{}
	room := maxStood
	for _, rel := range r.Repos {
		r.noteGit(filepath.Join(r.Root, rel), "", &room)
	}
	for _, dir := range r.GitDirs {
		r.noteGit(dir, "", &room)
	}
	for _, dir := range r.Stores {
		r.noteGit(filepath.Dir(dir), filepath.Base(dir), &room)
	}
	for _, p := range q.Protect {
		if p.Review || !strings.HasPrefix(p.Pattern, "/") || strings.ContainsAny(p.Pattern, "*?[") {
			continue
		}
		if _, in := beneath.Path(q.Root, p.Pattern); in {
			continue
		}
		var st unix.Stat_t
		if unix.Lstat(p.Pattern, &st) == unix.ENOENT {
			r.Vacant = append(r.Vacant[:len(r.Vacant):len(r.Vacant)], p.Pattern)
		}
	}
	return r
}

// AddCommands has what git executes by the configurations of the workspace count in the working trees that lie in another
// directory: they may be linked worktrees of its repositories.
func (r *Standing) AddCommands(main *Standing) {
	r.Hooks, r.Commands = slices.Concat(r.Hooks, main.Hooks), slices.Concat(r.Commands, main.Commands)
	r.Executed = slices.Concat(r.Executed, main.Executed)
}

// Named returns rules for what git would execute by the configurations that stood and that
// was not there, or is relative to a working tree, of which there may be more by now.
func (f *Found) Named() (list []profiles.ProtectRule) {
	literal := func(path string) string {
		return strings.Map(func(c rune) rune {
			if strings.ContainsRune("*?[", c) {
				return '?'
			}
			return c
		}, path)
	}
	for _, path := range f.Vacant {
		list = append(list, profiles.ProtectRule{Pattern: literal(path)})
	}
	for _, value := range slices.Concat(f.forGuard.stood.Hooks, f.forGuard.stood.Commands) {
		if value = filepath.Clean(value); filepath.IsLocal(value) && value != "." {
			list = append(list, profiles.ProtectRule{Pattern: "**/" + literal(value)})
		}
	}
	return list
}

// closedDirs lists the directories whose content the command does not see: those
// that a rule hides or replaces, by name or by a pattern, and that stand.
func (f *Found) closedDirs() (list []Node) {
	for _, m := range f.Matches {
		if m.Kind == Dir && (m.Rule.Access == profiles.Hide || m.Rule.Access == profiles.Private) {
			list = append(list, m.Node)
		}
	}
	c := f.forGuard.rules
	for _, i := range c.closed {
		var st unix.Stat_t
		path := c.files[i].Path
		if c.single != nil && c.single(path) {
			continue
		}
		if beneath.Stat(unix.AT_FDCWD, path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			list = append(list, Node{path, Dir, st.Dev, st.Ino})
		}
	}
	return list
}
