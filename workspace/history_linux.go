package workspace

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// What git shows of a repository's history is what replacements, grafts and the ends of a
// shallow clone make of it: who looks at a commit sees another. Nothing is executed by
// them, and git writes them where it is asked to, so that they are only told of, and not
// in a repository that is new: a clone that is shallow is nothing to hear of.

// otherHistory says why.
const otherHistory = "git shows another history or other content for it; GIT_NO_REPLACE_OBJECTS=1 and a fresh clone tell"

// otherObjects says why of what git takes objects from.
const otherObjects = "git takes objects from where it says as the repository's own, and tells servers of them, those of another project too"

// maxPackedRefs bounds the references that are looked into, maxReplaced the replacements.
const (
	maxPackedRefs = 64 << 20
	maxReplaced   = 4096
)

// histories tells of them in the repositories that stood.
func (g *Guard) histories() {
	note := func(path, why string) {
		g.told(g.stash.note(Finding{Kind: Review, Path: path, Why: why, What: "new or changed"}, nil, false))
	}
	tell := func(path string) { note(path, otherHistory) }
	objects := func(dir string) {
		var st unix.Stat_t
		if path := dir + "/info/alternates"; g.stat(path, &st) == nil && g.touched(&st) {
			note(path, otherObjects)
		}
	}
	check := func(gitDir string) {
		objects(gitDir + "/objects")
		var st unix.Stat_t
		if path := gitDir + "/shallow"; g.stat(path, &st) == nil && g.touched(&st) {
			tell(path)
		}
		if path := gitDir + "/info/grafts"; g.stat(path, &st) == nil && (g.touched(&st) || g.stat(gitDir+"/info", &st) == nil && g.touched(&st)) {
			tell(path) // with its directory a file comes as old as it was
		}
		if had, known := g.replacements[gitDir]; known {
			if now, whole := g.replacementsOf(gitDir); whole && maps.Equal(had, now) {
				return
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
		if g.peers.near(dir) == nil { // else it is told there
			check(dir)
		}
	}
	for _, dir := range g.standing.Stores {
		if g.peers.near(dir) != nil {
			continue
		}
		if path := dir + "/replace"; filepath.Base(dir) == "refs" && g.replaces(path) {
			tell(path)
		}
		if filepath.Base(dir) == "objects" {
			objects(dir)
		}
	}
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.name == "" && g.repos[s.rel] {
			check(g.abs(s.rel))
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
	fd, err := g.openDir(dir, name)
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
	if dir := filepath.Dir(path); !g.touched(&st) && !slices.Contains(g.standing.Stores, dir) { // which cannot be moved
		return g.stat(dir, &st) == nil && g.touched(&st) // what came with it is as old as it was
	}
	return g.touched(&st)
}

// knowReplacements notes what replacements the repositories have, as far as the command has
// not changed them yet: git itself packs and unpacks them.
func (g *Guard) knowReplacements() {
	g.replacements = map[string]map[string]string{}
	for rel := range g.repos {
		gitDir := g.abs(rel)
		if all, whole := g.replacementsOf(gitDir); whole && len(all) > 0 && !g.replaces(gitDir+"/refs/replace") && !g.packs(gitDir+"/packed-refs") {
			g.replacements[gitDir] = all
		}
	}
}

// replacementsOf returns the replacements of a repository, and whether those are all.
func (g *Guard) replacementsOf(gitDir string) (all map[string]string, whole bool) {
	all = map[string]string{}
	dir, name, err := g.parent(gitDir + "/packed-refs")
	if err != nil {
		return nil, false
	}
	defer unix.Close(dir)
	b, err := readOwn(dir, name, maxPackedRefs)
	if err != nil && !gone(err) {
		return nil, false
	}
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		if id, ref, ok := bytes.Cut(line, []byte(" refs/replace/")); ok {
			all[string(ref)] = string(id)
		}
	}
	at, name, err := g.parent(gitDir + "/refs/replace")
	if err != nil {
		return all, gone(err)
	}
	defer unix.Close(at)
	fd, err := g.openDir(at, name)
	if err != nil {
		return all, gone(err)
	}
	defer unix.Close(fd)
	names, err := beneath.Entries(fd)
	if err != nil || len(names) > maxReplaced {
		return nil, false
	}
	for _, name := range names {
		id, err := readOwn(fd, name, 256)
		if err != nil {
			return nil, false
		}
		all[name] = string(bytes.TrimSpace(id)) // what is packed beside it does not count
	}
	return all, true
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
