package workspace

import (
	"bytes"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/internal/beneath"
)

// What git shows of a repository's history is what replacements, grafts and the ends of a
// shallow clone make of it: who looks at a commit sees another. Nothing is executed by
// them, and git writes them where it is asked to, so that they are only told of, and not
// in a repository that is new: a clone that is shallow is nothing to hear of.

// otherHistory says why.
const otherHistory = "git shows another history or other content for it; GIT_NO_REPLACE_OBJECTS=1 and a fresh clone tell"

// maxPackedRefs bounds the references that are looked into, maxReplaced the replacements.
const (
	maxPackedRefs = 64 << 20
	maxReplaced   = 4096
)

// histories tells of them in the repositories that stood.
func (g *Guard) histories() {
	tell := func(path string) {
		g.told(g.stash.note(Finding{Kind: Review, Path: path, Why: otherHistory, What: "new or changed"}, nil, false))
	}
	check := func(gitDir string) {
		for _, name := range [...]string{"/shallow", "/info/grafts"} {
			var st unix.Stat_t
			if g.stat(gitDir+name, &st) == nil && g.touched(&st) {
				tell(gitDir + name)
			}
		}
		if g.replaces(gitDir + "/refs/replace") {
			tell(gitDir + "/refs/replace")
		}
		if path := gitDir + "/packed-refs"; g.packs(path) {
			tell(path)
		}
	}
	for _, dir := range g.standing.GitDirs {
		check(dir)
	}
	for _, dir := range g.standing.Stores {
		if path := dir + "/replace"; filepath.Base(dir) == "refs" && g.replaces(path) {
			tell(path)
		}
	}
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.name == "" && g.repos[s.rel] {
			check(g.standing.Root + "/" + s.rel)
		}
	})
}

// replaces reports whether a directory of replacements has something new in it.
func (g *Guard) replaces(path string) bool {
	dir, name, err := g.parent(path)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if beneath.Stat(dir, name, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	fd, err := openDirOf(dir, name)
	if err != nil {
		return g.touched(&st)
	}
	defer unix.Close(fd)
	names, err := beneath.Entries(fd)
	if err != nil || len(names) == 0 {
		return err != nil
	}
	for _, name := range names[:min(len(names), maxReplaced)] {
		var one unix.Stat_t
		if beneath.Stat(fd, name, &one) == nil && g.touched(&one) {
			return true
		}
	}
	return g.touched(&st)
}

// packs reports whether references that were packed have replacements among them.
func (g *Guard) packs(path string) bool {
	var st unix.Stat_t
	if g.stat(path, &st) != nil || !g.touched(&st) {
		return false
	}
	dir, name, err := g.parent(path)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	b, err := readOwn(dir, name, maxPackedRefs)
	return !gone(err) && (err != nil || bytes.Contains(b, []byte(" refs/replace/")))
}
