package workspace

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// git worktree remove, move and prune work with a linked worktree of the workspace that stood, since nothing of it is
// pinned: a mount cannot be removed, nor what is around it. What git follows there is held to the shape that git
// gives it, while the run goes on and when it is over. All else in it is as in a worktree that the run makes.

// commonDir is what git writes into commondir.
const commonDir = "../.."

// misled is why one of its files is quarantined.
const misled = "a name that leads git to the repository of an existing worktree"

// unpinTrees takes away the pins of the linked worktrees in which all that is pinned is the files that git makes,
// and what the workspace has by the same path. It returns their .git files. A worktree may lie in another tree than
// its repository: [Query.Main].
func (s *scan) unpinTrees() (map[string]LinkedTree, error) {
	trees, root, files, was := map[string]LinkedTree{}, s.root, s.q.Files, s.fd
	pinned := func(path string) bool { p, is := s.pins[path]; return is && !p.Private && p.Why != Unlisted }
	if main := s.q.Main; main != nil {
		maps.Copy(trees, main.after.stood.Trees)
		maps.DeleteFunc(trees, func(file string, _ LinkedTree) bool { return !inside(s.root, file) })
		root, files = main.after.rules.root, main.after.rules.files
		pinned = func(path string) bool {
			return slices.ContainsFunc(main.Pins, func(p Pin) bool { return p.Path == path && !p.Private && p.Why != Unlisted })
		}
	} else if !s.q.Aside {
		for _, dir := range s.gitDirs {
			if file := s.linkedTree(dir); file != "" && len(trees) < maxWorktrees {
				n, _, _ := s.node(filepath.Dir(file))
				trees[file] = LinkedTree{n.Ino, dir}
			}
		}
	}
	if len(trees) == 0 {
		return nil, nil
	}
	if root != s.root {
		var err error
		if was, err = openRoot(root); err != nil {
			return nil, fmt.Errorf("open %s: %w", root, err)
		}
		defer unix.Close(was)
	}
	owners, loose := map[string]string{}, map[string][]string{} // the trees of directories, and the pins of trees
	for file, t := range trees {
		owners[filepath.Dir(file)], owners[t.Admin] = file, file
	}
	for path, p := range s.pins {
		file := ""
		for dir := filepath.Dir(path); file == "" && inside(s.root, dir); dir = filepath.Dir(dir) {
			file = owners[dir]
		}
		if file == "" {
			continue
		}
		loose[file] = append(loose[file], path)
		if path == file || path == trees[file].Admin+"/commondir" || s.covered(path) && !p.Private { // as a part of what is compared
			continue
		}
		rest, in := beneath.Path(filepath.Dir(file), path)
		rel, _ := beneath.Path(s.root, path)
		m := newMirror(root, files)
		m.now, m.was, m.during = s.fd, was, &during{last: true}
		m.changed = func(*unix.Stat_t) bool { return false } // at this moment nobody has
		if !in || p.Private || p.Kind == Link || !pinned(root+"/"+rest) || !m.same(rel, rest, 0) {
			loose[file] = append(loose[file], "") // it keeps all
		}
	}
	for file, pins := range loose {
		if slices.Contains(pins, "") {
			delete(trees, file)
			continue
		}
		for _, path := range pins {
			delete(s.pins, path)
			delete(s.placed, path)
		}
	}
	return trees, nil
}

// linkedTree returns the .git file of the linked worktree that a git directory is of, if git has made all as it stands
// and the command may write there; else "".
func (s *scan) linkedTree(admin string) string {
	common := filepath.Dir(filepath.Dir(admin))
	if filepath.Dir(admin) != common+"/worktrees" || !inside(s.root, common) {
		return ""
	}
	text, err := s.readFile(admin+"/gitdir", vcs.MaxGitFile)
	file := spelled(admin, vcs.ParsePathFile(text))
	tree := filepath.Dir(file)
	if err != nil || filepath.Base(file) != ".git" || tree == s.root || inside(tree, common) ||
		!inside(s.root, tree) && !slices.ContainsFunc(s.q.Trees, func(root string) bool { return inside(root, tree) && root != tree }) {
		return ""
	}
	if rel, in := beneath.Path(s.root, tree); in && vcs.InsideGit(rel) {
		return ""
	}
	for _, path := range []string{file, admin + "/commondir", admin + "/gitdir"} {
		if n, st, ok := s.node(path); !ok || n.Kind != File || st.Nlink != 1 {
			return ""
		}
	}
	if t, err := s.follow("/", file); err != nil || t.end.Path != file {
		return "" // through a link
	}
	if text, err = s.readFile(file, vcs.MaxGitFile); err != nil || adminOf(file, text) != admin {
		return ""
	}
	if text, err = s.readFile(admin+"/commondir", vcs.MaxGitFile); err != nil || string(text) != commonDir+"\n" {
		return ""
	}
	return file
}

// adminOf returns where a .git file leads, "" if that is not spelled as git does.
func adminOf(file string, text []byte) string {
	to, err := vcs.ParseGitFile(text)
	if err != nil {
		return ""
	}
	return spelled(filepath.Dir(file), to)
}

// spelled returns the path that a file in a directory names, absolute, "" if it is not spelled in the shortest way:
// .. after a link means another directory than it seems.
func spelled(dir, path string) string {
	if filepath.IsAbs(path) {
		if filepath.Clean(path) != path {
			return ""
		}
		return path
	}
	full := filepath.Join(dir, path)
	if short, err := filepath.Rel(dir, full); err != nil || short != path {
		return ""
	}
	return full
}

// loosen has the directories watched for what is written to their files that say where a worktree leads. At the
// end of the run these are looked at as new ones.
func (g *Guard) loosen() {
	for file, tree := range g.standing.Trees {
		for _, path := range []string{filepath.Dir(file), tree.Admin} {
			if rel, in := beneath.Path(g.standing.Root, path); in {
				g.during.written[rel] = true
			}
		}
		if rel, in := beneath.Path(g.standing.Root, file); in {
			delete(g.repos, rel)
		}
	}
}

// looseTree returns the worktree without pins that a path lies in, relative, "" for none.
func (g *Guard) looseTree(rel string) (tree string, t LinkedTree) {
	if len(g.standing.Trees) == 0 {
		return "", t
	}
	for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
		if t, is := g.standing.Trees[g.abs(dir)+"/.git"]; is {
			return dir, t
		}
	}
	return "", t
}

// stays reports whether a protected name is one that stood. What no mount keeps is held to the workspace's instead,
// at each look ([Guard.mirrors]): one that is as old as it was may have come with a directory around it.
func (g *Guard) stays(s suspect) bool {
	tree, _ := g.looseTree(s.rel)
	return g.stood[s.rel] && tree == ""
}

// missing tells of the protected names that the run has removed from a worktree which stands.
func (g *Guard) missing() {
	var st unix.Stat_t
	for _, rel := range g.standing.Names {
		tree, t := g.looseTree(rel)
		if tree == "" || !g.stood[rel] || beneath.Stat(g.fd, tree, &st) != nil || st.Ino != t.Ino || !beneath.Gone(beneath.Stat(g.fd, rel, &st)) {
			continue
		}
		if i := slices.IndexFunc(g.standing.Protect, func(p profiles.ProtectRule) bool { return !p.Review && p.Matches(g.standing.Root, g.abs(rel)) }); i >= 0 {
			g.told(g.stash.Note(Finding{Kind: Review, Path: g.abs(rel), Why: g.standing.Protect[i].Pattern, What: "removed"}, nil, false))
		}
	}
}

// misled returns what leads git from a worktree that stood, or from its place, to anything but a worktree of the same
// repository.
func (g *Guard) misled() (list []string) {
	for file, tree := range g.standing.Trees {
		path, there := g.reached(file)
		if there && path == file {
			path = g.misleads(file, filepath.Dir(tree.Admin)+"/")
			there = path != ""
		}
		if there {
			list = append(list, path)
		}
	}
	return list
}

// reached is [Guard.stands] for a path on which there was no link: one of any age is another's.
func (g *Guard) reached(path string) (at string, there bool) {
	var st unix.Stat_t
	if at, there = g.stands(path); at != path {
		there = g.stat(at, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
	}
	return at, there
}

// misleads returns what is wrong with a .git file, "" for nothing. Each of the files is empty while git writes it.
func (g *Guard) misleads(file, worktrees string) string {
	text, err := g.readOwn(file, vcs.MaxGitFile)
	if err == nil && len(text) == 0 || err == unix.ENOENT {
		return ""
	}
	admin := adminOf(file, text)
	name, in := strings.CutPrefix(admin, worktrees)
	if err != nil || !in || name == "" || strings.Contains(name, "/") {
		return file
	}
	path, there := g.reached(admin + "/commondir")
	if !there {
		// It is being made, or is gone: with objects it would be a repository of its own.
		if at, there := g.reached(admin + "/objects"); there {
			return at
		}
		return ""
	}
	text, err = g.readOwn(path, vcs.MaxGitFile)
	if err == unix.ENOENT || err == nil && (len(text) == 0 || strings.TrimSuffix(string(text), "\n") == commonDir) {
		return ""
	}
	return path
}
