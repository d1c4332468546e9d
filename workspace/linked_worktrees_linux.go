package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// git worktree remove, move and prune work with a linked worktree that stood: what git makes in it is not pinned, nor
// what is protected there and the same in the workspace, since a mount cannot be removed, nor what is around it. What git
// follows is held to the shape that git gives it, and what is protected to what the workspace has, of which a copy is put
// back, while the run goes on and when it is over. Of its configuration, and its submodules', what executes is taken
// back. What differs, repositories in it and what is hidden stay mounts: where git fails for them, the end of the run
// finishes what it began.

// commonDir is what git writes into commondir.
const commonDir = "../.."

// unpinTrees takes away the pins in the linked worktrees. It returns their .git files, and what is held there from now
// on: [Standing.Held]. What was changed just now is not known to be what stood: [scan.young]. A worktree may lie in
// another tree than its repository: [Query.Main].
func (s *scan) unpinTrees() (trees map[string]LinkedTree, held map[string]uint64, err error) {
	trees, held = map[string]LinkedTree{}, map[string]uint64{}
	if s.q.Main != nil {
		maps.Copy(trees, s.q.Main.after.stood.Trees)
		maps.DeleteFunc(trees, func(file string, _ LinkedTree) bool { return !inside(s.root, file) })
		if err = s.namedBeside(held); err != nil {
			return nil, nil, err
		}
	} else if !s.q.Aside {
		for _, dir := range slices.Sorted(slices.Values(s.gitDirs)) { // a worktree before its submodules
			within := func(t LinkedTree) bool { return inside(t.Admin+"/modules", dir) }
			if len(trees) == maxWorktrees || ofSubmodule(dir) && !slices.ContainsFunc(slices.Collect(maps.Values(trees)), within) {
				continue
			}
			if file := s.linkedTree(dir); file != "" {
				t := LinkedTree{Admin: dir}
				if n, _, _ := s.node(filepath.Dir(file)); s.plain(file) && s.written(file) {
					t.Ino = n.Ino
				}
				trees[file] = t
			}
		}
	}
	owners := map[string]string{} // of directories
	for file, t := range trees {
		if owners[t.Admin] = file; t.Ino != 0 {
			owners[filepath.Dir(file)] = file
		}
	}
	root, files, pins := s.root, s.q.Files, slices.Collect(maps.Values(s.pins))
	if s.q.Main != nil {
		root, files, pins = s.q.Main.after.rules.root, s.q.Main.after.rules.files, s.q.Main.Pins
	}
	if len(trees) == 0 {
		return trees, held, nil
	}
	m := newMirror(root, files)
	if m.was, err = openRoot(root); err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", root, err)
	}
	defer unix.Close(m.was)
	m.now, m.during = s.fd, &during{last: true}
	m.changed = func(st *unix.Stat_t) bool {
		young := changedSince(st.Ctim.Nano(), s.found.Start)
		s.young = s.young || young
		return young
	}
	fixed := map[string]bool{} // in the workspace
	for _, p := range pins {
		fixed[p.Path] = !p.Private && p.Why != Unlisted
	}
	equal := func(path, rest string) bool {
		is := false
		for at := root + "/" + rest; at != root; at = filepath.Dir(at) {
			if is = is || fixed[at]; owners[at] != "" {
				return false
			}
		}
		rel, _ := beneath.Path(s.root, path)
		m.room, m.inodes = maxMirrored, map[string]uint64{}
		return is && m.same(rel, rest, 0)
	}
	kept := map[string]bool{} // directories around what stays pinned
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(s.pins))) {
		file, p := "", s.pins[path]
		for dir := filepath.Dir(path); file == "" && inside(s.root, dir); dir = filepath.Dir(dir) {
			file = owners[dir]
		}
		if file == "" {
			continue
		}
		tree, admin := filepath.Dir(file), trees[file].Admin
		rest, in := beneath.Path(tree, path)
		keep := func() {
			for dir := filepath.Dir(path); in && dir != tree; dir = filepath.Dir(dir) {
				kept[dir] = true
			}
		}
		switch {
		case path == file, path == admin+"/commondir":
		case p.Private && s.plain(path) && (path == admin+"/config" || path == admin+"/config.worktree"):
			s.review[path] = Reviewed{Node: p.Node, Why: p.Why, Origin: p.Origin}
		case p.Private || p.Why == Unlisted || p.Kind == Link && !s.covered(path) || kept[path] || !s.settled(path):
			keep()
			continue
		case in && !vcs.InsideGit(rest) && equal(path, rest):
			for rel, ino := range m.inodes {
				held[s.abs(rel)] = ino
			}
		case !in && inside(admin, path) && onlySamples(path):
			held[path] = p.Ino
		default:
			keep()
			continue
		}
		delete(s.pins, path)
		delete(s.placed, path)
	}
	return trees, held, nil
}

// onlySamples reports whether a path is of a directory of hooks that git does not run.
func onlySamples(path string) bool {
	list, err := os.ReadDir(path)
	return filepath.Base(path) == "hooks" && err == nil && !slices.ContainsFunc(list, func(e os.DirEntry) bool { return filepath.Ext(e.Name()) != ".sample" })
}

// namedBeside pins what git executes by the workspace's configurations in the working trees of its repositories that lie
// beside it. Where that leads into the workspace, it is held.
func (s *scan) namedBeside(held map[string]uint64) error {
	main := &s.q.Main.after
	for _, tree := range s.besides {
		for _, value := range slices.Concat(main.stood.Hooks, main.stood.Commands) {
			rule := profiles.ProtectRule{Pattern: value + " in git's configuration"}
			t, err := s.follow(tree, value)
			switch {
			case err != nil:
				return err
			case t.found && inside(s.root, t.end.Path):
				if s.place(t.end.Path); t.end.Kind == Dir {
					err = s.programs(t.end.Path, rule)
				}
			case t.found && inside(main.rules.root, t.end.Path) && !slices.Contains(main.stood.Placed, t.end.Path) && s.settled(t.end.Path):
				held[t.end.Path] = t.end.Ino
			}
			if err = cmp.Or(err, s.leadsTo(tree, value, rule)); err != nil {
				return err
			}
		}
	}
	return nil
}

// settled reports whether a path holds what no other name leads to, and nothing that was changed just now.
func (s *scan) settled(path string) bool {
	dir, name, err := beneath.ParentOf(path)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	u := unchanged{since: s.found.Start}
	ok := keepsCtime(dir) && u.at(dir, name, "")
	s.young = s.young || u.young
	return ok
}

// unchanged is a walk through what is protected in a linked worktree.
type unchanged struct {
	since  time.Time
	young  bool // what it stopped at has changed since then
	dev    uint64
	during *during // watches the directories; nil where nobody does
	fewer  bool    // what is gone has not changed: git removes a worktree name by name
}

// at reports whether nothing at a name, or in the directory that it names, has changed, or has another name.
func (u *unchanged) at(dir int, name, rel string) bool {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return u.fewer && err == unix.ENOENT
	}
	is, dev := st.Mode&unix.S_IFMT, st.Dev
	if is == unix.S_IFDIR {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return u.fewer && err == unix.ENOENT
		}
		if u.during == nil || !u.during.heeds(rel, fd) { // armed first, and then compared
			defer unix.Close(fd)
		}
		names, err := beneath.Entries(fd)
		if err != nil || unix.Fstat(fd, &st) != nil {
			return false
		}
		for _, name := range names {
			if !u.at(fd, name, rel+"/"+name) {
				return false
			}
		}
	}
	u.young, u.dev = changedSince(st.Ctim.Nano(), u.since), cmp.Or(u.dev, dev)
	return (!u.young || u.fewer && is == unix.S_IFDIR) && st.Dev == u.dev && (is == unix.S_IFDIR || st.Nlink == 1)
}

// linkedTree returns the .git file of the linked worktree, or of a submodule of one, that a git directory is of, if git
// has made all as it stands; else "". The worktree may be gone, or lie where the command cannot write.
func (s *scan) linkedTree(admin string) string {
	common, file := filepath.Dir(filepath.Dir(admin)), ""
	if ofSubmodule(admin) {
		for _, tree := range vcs.WorkTrees(s.config(admin + "/config")) {
			file = spelled(admin, tree) + "/.git"
		}
	} else if filepath.Dir(admin) == common+"/worktrees" && s.plain(admin+"/commondir") && s.plain(admin+"/gitdir") {
		text, err := s.readFile(admin+"/commondir", vcs.MaxGitFile)
		if err == nil && string(text) == commonDir+"\n" {
			text, _ = s.readFile(admin+"/gitdir", vcs.MaxGitFile)
			file = spelled(admin, vcs.ParsePathFile(text))
		}
	}
	tree := filepath.Dir(file)
	if filepath.Base(file) != ".git" || !filepath.IsAbs(file) || tree == s.root || !inside(s.root, common) || inside(tree, common) {
		return ""
	}
	if !s.written(file) {
		if ofSubmodule(admin) {
			return ""
		}
		return file
	}
	if rel, in := beneath.Path(s.root, tree); in && vcs.InsideGit(rel) {
		return ""
	}
	if t, err := s.follow("/", file); err != nil || len(t.links) > 0 || t.end.Path != file {
		return "" // through a link
	} else if !t.found {
		return file
	}
	if text, err := s.readFile(file, vcs.MaxGitFile); err != nil || !s.plain(file) || adminOf(file, text) != admin {
		return ""
	}
	return file
}

// ofSubmodule reports whether a git directory is a submodule's, and no worktree of one.
func ofSubmodule(gitDir string) bool {
	return vcs.OfSubmodule(gitDir) && filepath.Base(filepath.Dir(gitDir)) != "worktrees"
}

// written reports whether the command may write beside the .git file of a linked worktree.
func (s *scan) written(file string) bool {
	return inside(s.root, file) || slices.ContainsFunc(s.q.Trees, func(root string) bool { return inside(root, file) && root+"/.git" != file })
}

// plain reports whether a path is that of a file with one name.
func (s *scan) plain(path string) bool {
	n, st, ok := s.node(path)
	return ok && n.Kind == File && st.Nlink == 1
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

// loosen has the directories watched for what is written to their files that say where a worktree leads, and to what is
// held. At the end of the run the worktrees are looked at as new ones.
func (g *Guard) loosen() {
	written := func(path string) {
		if rel, in := beneath.Path(g.standing.Root, path); in {
			g.during.written[rel] = true
		}
	}
	for file, tree := range g.standing.Trees {
		written(filepath.Dir(file))
		written(tree.Admin)
		if rel, in := beneath.Path(g.standing.Root, file); in {
			delete(g.repos, rel)
		}
	}
	g.held = slices.Sorted(maps.Keys(g.standing.Held))
	for _, path := range g.held {
		written(filepath.Dir(path))
	}
}

// keeps reports whether a path holds what was held there when the run began, as it was: in the linked worktree that it
// was in, wherever that has been moved as a whole.
func (g *Guard) keeps(path string) bool {
	dir, name, err := g.parent(path)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if beneath.Stat(dir, name, &st) != nil {
		return false
	}
	if g.holds(path) != st.Ino {
		return false
	}
	rel, in := beneath.Path(g.standing.Root, path)
	if !in || inModules(rel) { // where no look goes while the run goes on
		rel = path
		if fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil && !g.during.heeds(filepath.Dir(path), fd) {
			unix.Close(fd)
		}
	} else {
		g.during.writes(strings.Trim(filepath.Dir("/"+rel), "/"))
	}
	u := unchanged{since: g.standing.Start, during: &g.during, fewer: !g.during.last}
	return u.at(dir, name, rel)
}

// holds returns the inode of what was held at a path, 0 for nothing.
func (g *Guard) holds(path string) (ino uint64) {
	for at, i := g.stoodAt(path), 0; ino == 0 && i < len(g.peers); i++ {
		ino = g.peers[i].standing.Held[at]
	}
	return ino
}

// putBack copies what the workspace has, which is pinned, to where the run has changed or removed what was the same, at a
// path and below it. What was there stood at another if its worktree has been moved. What would not stay is not put back.
func (g *Guard) putBack(stood, path, why, what string) {
	var errs []error
	for _, k := range g.peers {
		for _, at := range k.held {
			rest := k.inTree(at)
			if rest == "" || g.peers.near(at) != k || !inside(stood, at) || k.inTree(stood) == "" {
				continue
			}
			errs = append(errs, g.copyOriginal(rest, path+at[len(stood):]))
		}
	}
	if errs == nil {
		return
	}
	err := errors.Join(errs...)
	if rel, _ := beneath.Path(g.standing.Root, path); err == nil && !g.mirrors(rel) {
		_, err = g.aside(path, why)
		err = cmp.Or(err, errors.New("it leads to something that has changed"))
	}
	if what += "restored"; err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		what = strings.Replace(what, "restored", "not restored: "+first, 1)
	}
	if g.said == nil {
		g.said = map[string]bool{}
	}
	if !g.said[path+what] {
		g.said[path+what] = true
		g.told(g.stash.Note(Finding{Kind: Review, Path: path, Why: why, What: what}, nil, false))
	}
}

// copyOriginal copies what the workspace has at a path, of a directory itself.
func (g *Guard) copyOriginal(rest, to string) error {
	from, name, err := g.peers[0].parent(g.peers[0].abs(rest))
	if err != nil {
		return err
	}
	defer unix.Close(from)
	dir, as, err := g.parent(to)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return g.stash.Copy(from, name, dir, as)
}

// inTree returns the path of what is held in its linked worktree, "" where it is in none.
func (g *Guard) inTree(path string) (rest string) {
	for dir := filepath.Dir(path); inside(g.standing.Root, dir); dir = filepath.Dir(dir) {
		if tree, is := g.standing.Trees[dir+"/.git"]; is && tree.Ino != 0 {
			rest, _ = beneath.Path(dir, path)
			return rest
		}
	}
	return ""
}

// stoodAt returns where what is in a linked worktree was when the run began, "" if another one has its place.
func (g *Guard) stoodAt(path string) string {
	var st unix.Stat_t
	for dir := filepath.Dir(path); inside(g.standing.Root, dir) && g.stat(dir, &st) == nil; dir = filepath.Dir(dir) {
		if tree, is := g.standing.Trees[dir+"/.git"]; is && tree.Ino != 0 && tree.Ino != st.Ino {
			return ""
		}
		for _, k := range g.peers {
			for file, tree := range k.standing.Trees {
				if st.Ino == tree.Ino {
					return filepath.Dir(file) + path[len(dir):]
				}
			}
		}
	}
	return path
}

// stays reports whether a protected name is one that stood, or what git checks out. What no mount keeps must be the same,
// unchanged: one that is as old as it was may have come with a directory around it.
func (g *Guard) stays(s suspect) bool {
	_, held := g.standing.Held[g.abs(s.rel)]
	return g.stood[s.rel] && !held || g.keeps(g.abs(s.rel)) ||
		s.hit.kind != Link && !strings.HasPrefix(s.why, ".git/") && g.mirrors(s.rel)
}

// missing puts back what the run has removed from a worktree which stands.
func (g *Guard) missing() {
	var st unix.Stat_t
	for file, tree := range g.standing.Trees {
		dir := filepath.Dir(file)
		if !inside(g.standing.Root, dir) || g.stat(dir, &st) != nil || st.Ino != tree.Ino {
			continue
		}
		for _, path := range g.held { // directories before what is in them
			if inside(dir, path) && beneath.Gone(g.stat(path, &st)) {
				g.putBack(path, path, g.whyHeld(path), "removed, ")
			}
		}
	}
}

// whyHeld returns the pattern by which a path, or a directory around it, is protected in its worktree.
func (g *Guard) whyHeld(path string) string {
	tree := strings.TrimSuffix(path, "/"+g.inTree(path))
	for _, p := range g.standing.Protect {
		if !p.Review && p.Matches(tree, path) {
			return p.Pattern
		}
	}
	return "git executes it in a linked worktree, or a protected link leads to it"
}

// dissolved reports whether a path lay in a linked worktree, or in its part of the repository, that is gone as a whole.
func (g *Guard) dissolved(path string) bool {
	var st unix.Stat_t
	for file, tree := range g.standing.Trees {
		for _, dir := range [...]string{filepath.Dir(file), tree.Admin} {
			if inside(dir, path) && beneath.Gone(g.stat(dir, &st)) {
				return true
			}
		}
	}
	return false
}

// misled has quarantined what leads git from a worktree that stood, or from its place, to anything but a worktree of the same
// repository, and what is held but neither as it was nor what the workspace has, with the reasons.
func (g *Guard) misled(aside func(path, why string)) {
	for file, tree := range g.standing.Trees {
		path, there := g.reached(file)
		switch {
		case g.peers.near(file) == nil: // the command cannot write there
			path = g.misplaced(tree.Admin)
		case !there:
			path = ""
		case path == file:
			path = g.misleads(file, tree.Admin)
		}
		if path != "" {
			aside(path, "a name that leads git to the repository of an existing worktree")
		}
	}
	var changed []string
	kept := "" // with all that is in it
	for _, path := range g.held {
		if kept != "" && inside(kept, path) {
			continue
		}
		if g.keeps(path) {
			kept = path
		} else {
			changed = append(changed, path)
		}
	}
	for _, path := range slices.Backward(changed) { // what is put back in a directory is right when that is looked at
		rel, in := beneath.Path(g.standing.Root, path)
		if at, there := g.reached(path); there && !(in && at == path && g.mirrors(rel)) {
			aside(at, g.whyHeld(at))
		}
	}
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
func (g *Guard) misleads(file, stood string) string {
	text, err := g.readOwn(file, vcs.MaxGitFile)
	if err == nil && len(text) == 0 || err == unix.ENOENT {
		return ""
	}
	admin := adminOf(file, text)
	switch {
	case err == nil && admin == stood && ofSubmodule(stood):
		return ""
	case err != nil || filepath.Dir(admin) != filepath.Dir(stood) || ofSubmodule(stood):
		return file
	}
	return g.misplaced(admin)
}

// misplaced returns what has git take another directory for what a worktree shares with its repository, "" for nothing.
func (g *Guard) misplaced(admin string) string {
	path, there := g.reached(admin + "/commondir")
	if !there {
		// It is being made, or is gone: with objects it would be a repository of its own.
		if at, there := g.reached(admin + "/objects"); there {
			return at
		}
		return ""
	}
	text, err := g.readOwn(path, vcs.MaxGitFile)
	if err == unix.ENOENT || err == nil && (len(text) == 0 || strings.TrimSuffix(string(text), "\n") == commonDir) {
		return ""
	}
	return path
}

// removed finishes what `git worktree remove` began. What is still a mount keeps git from removing it and what is around
// it, and git has by then removed what says where the worktree is: nobody would find it again. What is left is
// quarantined, so that nothing is lost of what the command could not have removed.
func (g *Guard) removed() (errs []error) {
	for file, tree := range g.standing.Trees {
		var st unix.Stat_t
		gone := beneath.Gone(g.stat(tree.Admin+"/gitdir", &st)) || beneath.Gone(g.stat(tree.Admin+"/HEAD", &st))
		if !inside(g.standing.Root, tree.Admin) || ofSubmodule(tree.Admin) || !gone {
			continue
		}
		dir := filepath.Dir(file)
		if other := g.peers.near(dir); other != nil && other.stat(dir, &st) == nil && st.Ino == tree.Ino {
			_, err := other.aside(dir, Removed)
			errs = append(errs, err)
		}
		_, err := g.aside(tree.Admin, Removed)
		errs = append(errs, err)
	}
	return errs
}
