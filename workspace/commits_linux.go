package workspace

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/internal/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// What git keeps in commits, in its index and in the stash it writes into the working tree
// when it is asked for that (`git switch`, `restore`, `stash pop`, `rebase --abort`), outside,
// where nobody sets a protected name aside. So what the run has brought there of protected
// names is told of: which commits are the run's say the ctimes of the objects.

const (
	inCommits = "git writes it where that is checked out, merged or popped"
	inIndex   = "git writes it at `git restore`, `checkout` and `stash`"
	inTrees   = "`git commit` takes that, and `git diff --cached` shows what is listed; git reset makes another"
	unread    = "what the run has brought there may hold protected names"
	forged    = "git believes it; `git fsck` tells"
)

const (
	maxTips  = 50_000 // references and their like of one repository
	maxNamed = 20     // paths of one repository that are told one by one
	maxFound = 20_000
)

// commits tells of protected names in what the run has committed, stashed and staged.
func (g *Guard) commits() {
	left := &allowance{room: maxObjects, until: time.Now().Add(maxRead)}
	for _, dir := range g.standing.GitDirs {
		g.committed(dir, g.standing.Root, true, left)
	}
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.name == "" {
			path := g.standing.Root + "/" + s.rel
			g.committed(path, workTreeOf(path), g.repos[s.rel] && !g.standing.another(s.dir), left)
		}
	})
}

// A History is what the repositories below a directory lead to, before what a run has done
// elsewhere is brought there.
type History struct{ guard *Guard }

// NoteHistory notes it. The rules are those of the run's policy; what is younger than since
// counts as brought already.
func NoteHistory(root string, protect []profiles.ProtectRule, since time.Time) (*History, error) {
	g, err := NewGuard(&Standing{Root: root, Start: since, Protect: protect}, nil, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := g.read(); err != nil {
		g.Close()
		return nil, err
	}
	forget(g.tree, began, g.dev)
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.name == "" {
			g.repos[s.rel] = true
		}
	})
	g.knowTips()
	return &History{g}, nil
}

// Brought returns the protected names that have come since into commits, the index and the
// stash of the repositories there, as [Guard.Finish] does of a run.
func (h *History) Brought() (found []Finding) {
	g := h.guard
	g.told = func(f Finding) { found = append(found, f) }
	if err := g.read(); err != nil {
		g.told(Finding{Kind: Review, Path: g.standing.Root, What: "cannot be looked through: " + err.Error(), Why: unread})
	}
	g.commits()
	return found
}

// Close gives back what it has opened.
func (h *History) Close() { h.guard.Close() }

// A commits is what is asked of one repository.
type commits struct {
	guard  *Guard
	store  *store
	gitDir string
	tree   string // where its paths begin
	stood  bool
	tips   []tip
	all    []tip // tips, and of a linked worktree those of its repository
	found  []committed
	forged string                     // a directory of which the index remembers another tree than it lists
	within struct{ dir, rule string } // the last directory that was asked for, and the answer
}

// A tip is what git knows by a name.
type tip struct{ id, name string }

// A committed is a protected path that git would write.
type committed struct {
	path, rule string
	mode       uint32
	id         string // of its content
	commit     string // "" for the index
	where      string
}

// committed looks at one repository, which stood or did not.
func (g *Guard) committed(gitDir, tree string, stood bool, left *allowance) {
	c := &commits{guard: g, gitDir: gitDir, tree: tree, stood: stood}
	tell := func(path, what, why string) {
		f := Finding{Kind: Review, Path: path, What: what, Why: why}
		if g.stash != nil {
			f = g.stash.note(f, nil, false)
		}
		g.told(f)
	}
	common := gitDir
	if b, err := g.small(gitDir + "/commondir"); err == nil {
		common = from(gitDir, vcs.ParsePathFile(b))
		if b, err := g.small(gitDir + "/gitdir"); err == nil {
			c.tree = filepath.Dir(from(gitDir, vcs.ParsePathFile(b)))
		}
	}
	err := c.readTips(gitDir)
	if c.all = c.tips; err == nil && common != gitDir { // whose own are looked at where it is
		err = c.readTips(common)
		c.tips, c.all = c.all, c.tips
	}
	if err == nil && len(c.all) > 0 {
		_, f, _ := vcs.ParseID(hex.EncodeToString([]byte(c.all[0].id)))
		if c.store, err = g.store(common+"/objects", f, left); err == nil {
			defer c.store.close()
			err = errors.Join(c.history(), c.staged())
			c.drop()
			if !c.store.sound(left) {
				err = cmp.Or(err, error(ErrTooMuch))
			}
			if c.store.forged != "" {
				tell(common+"/objects", "object "+c.store.forged+" is not what its name says", forged)
			}
			if c.forged != "" {
				tell(gitDir+"/index", "what it remembers of "+c.forged+" is not what it lists", inTrees)
			}
		}
	}
	if err != nil && !gone(err) {
		tell(gitDir, "cannot be looked through: "+err.Error(), unread)
	}
	if len(c.found) == 0 {
		return
	}
	if !stood { // a clone has what it has: one line
		var names []string
		for _, f := range c.found[:min(len(c.found), 5)] {
			names = append(names, f.path)
		}
		if n := len(c.found) - len(names); n > 0 {
			names = append(names, fmt.Sprintf("%d more", n))
		}
		tell(gitDir, "its commits hold "+strings.Join(names, ", "), inCommits)
		return
	}
	for _, f := range c.found[:min(len(c.found), maxNamed)] {
		why := inCommits
		if f.where == "the index" {
			why = inIndex
		}
		tell(c.tree+"/"+f.path, "in "+f.where, f.rule+": "+why)
	}
	if n := len(c.found) - maxNamed; n > 0 {
		tell(gitDir, fmt.Sprintf("%d more protected names in its commits", n), inCommits)
	}
}

// small reads a file of a repository that holds a few lines.
func (g *Guard) small(path string) ([]byte, error) {
	dir, name, err := g.parent(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return readOwn(dir, name, vcs.MaxConfig)
}

// readTips reads what git knows objects of the repository by: references, the heads of
// things under way, and older stashes.
func (c *commits) readTips(dir string) error {
	add := func(text, name string) error {
		id, _, ok := vcs.ParseID(text)
		if !ok || len(c.tips) > 0 && len(c.tips[0].id) != len(id) {
			return nil
		}
		if c.tips = append(c.tips, tip{id, name}); len(c.tips) > maxTips {
			return fmt.Errorf("references: %w", ErrTooMuch)
		}
		return nil
	}
	lines := func(b []byte, field int, name string) error {
		for line := range bytes.Lines(b) {
			if words := bytes.Fields(line); len(words) > field {
				if err := add(string(words[field]), name); err != nil {
					return err
				}
			}
		}
		return nil
	}
	files, err := c.guard.filesIn(dir, 0)
	if err != nil {
		return err
	}
	for _, name := range files { // HEAD, ORIG_HEAD, MERGE_HEAD, FETCH_HEAD, …
		if strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
			continue
		}
		if b, err := c.guard.small(dir + "/" + name); err == nil {
			if err := lines(b, 0, name); err != nil {
				return err
			}
		}
	}
	for _, below := range [...]string{"refs", "rebase-merge", "rebase-apply", "sequencer"} {
		files, err := c.guard.filesIn(dir+"/"+below, maxTips)
		if err != nil && !gone(err) {
			return err
		}
		for _, name := range files {
			if b, err := c.guard.small(dir + "/" + below + "/" + name); err == nil {
				if err := lines(b[:min(len(b), 256)], 0, below+"/"+name); err != nil {
					return err
				}
			}
		}
	}
	if b, err := c.guard.small(dir + "/logs/refs/stash"); err == nil {
		if err := lines(b, 1, "refs/stash"); err != nil {
			return err
		}
	}
	at, name, err := c.guard.parent(dir + "/packed-refs")
	if err != nil {
		return err
	}
	defer unix.Close(at)
	b, err := readOwn(at, name, maxPackedRefs)
	if err != nil {
		if gone(err) {
			err = nil
		}
		return err
	}
	for line := range bytes.Lines(b) {
		id, name, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if err := add(id, name); err != nil {
			return err
		}
	}
	return nil
}

// filesIn returns the regular files of a directory by their paths in it, and of those below
// it as far as so many are wanted; 0 is for none of those.
func (g *Guard) filesIn(path string, limit int) (list []string, err error) {
	dir, name, err := g.parent(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var read func(dir int, name, rel string) error
	read = func(dir int, name, rel string) error {
		fd, err := openDirOf(dir, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		names, err := beneath.Entries(fd)
		if err != nil {
			return err
		}
		for _, name := range names {
			switch t := beneath.DirentType(fd, name); {
			case t == unix.DT_REG:
				list = append(list, join(rel, name))
			case t == unix.DT_DIR && limit > 0:
				if err := read(fd, name, join(rel, name)); err != nil && !gone(err) {
					return err
				}
			}
			if limit > 0 && len(list) > limit || strings.Count(rel, "/") > 64 {
				return fmt.Errorf("%s: %w", path, ErrTooMuch)
			}
		}
		return nil
	}
	return list, read(dir, name, "")
}

// knowTips notes what the references of the repositories lead to, as far as the command has
// not changed them yet: git packs them, and what they lead to, anew.
func (g *Guard) knowTips() {
	g.tips = map[string]map[string]bool{}
	know := func(gitDir string) {
		c := &commits{guard: g, gitDir: gitDir}
		if c.readTips(gitDir) != nil {
			return
		}
		ids := map[string]bool{}
		for _, t := range c.tips {
			path, st := gitDir+"/"+t.name, unix.Stat_t{}
			if g.stat(path, &st) != nil {
				path = gitDir + "/packed-refs"
			}
			if g.stat(path, &st) == nil && !g.touched(&st) {
				ids[t.id] = true
			}
		}
		g.tips[gitDir] = ids
	}
	for rel := range g.repos {
		know(g.standing.Root + "/" + rel)
	}
	for _, dir := range g.standing.GitDirs {
		know(dir)
	}
}

// drop leaves out what commits have that the references of the start led to: where objects
// were packed anew, all are as young.
func (c *commits) drop() {
	had := map[string]bool{}
	older := map[string]bool{}
	var queue []string
	for id := range c.guard.tips[c.gitDir] {
		queue = append(queue, id)
	}
	if slices.ContainsFunc(c.found, func(f committed) bool { return f.commit != "" }) {
		for n := 0; n < len(queue) && c.store.left.spend(64) == nil; n++ {
			if id := queue[n]; !older[id] {
				older[id] = true
				o, err := c.store.get(id)
				if err != nil {
					continue
				}
				switch o.Kind {
				case vcs.Tag:
					if id, err := vcs.ParseTag(o.Body); err == nil {
						queue = append(queue, id)
					}
				case vcs.Commit:
					_, parents, _ := vcs.ParseCommit(o.Body)
					queue = append(queue, parents...)
				}
			}
		}
	}
	c.found = slices.DeleteFunc(c.found, func(f committed) bool {
		drop := older[f.commit] || had[f.path]
		had[f.path] = had[f.path] || !drop
		return drop
	})
}

// history looks at what the run's commits have changed of protected names, beside all of
// their parents; of a new repository at what its references have.
func (c *commits) history() error {
	seen := map[string]bool{}
	queue := slices.Clone(c.tips)
	for n := 0; n < len(queue); n++ {
		t := queue[n]
		if seen[t.id] {
			continue
		}
		seen[t.id] = true
		if err := c.store.left.spend(64); err != nil {
			return err
		}
		if !c.store.fresh(t.id) {
			continue
		}
		o, err := c.store.get(t.id)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		where := hex.EncodeToString([]byte(t.id))[:12] + " (" + t.name + ")"
		switch o.Kind {
		case vcs.Tag:
			if id, err := vcs.ParseTag(o.Body); err == nil {
				queue = append(queue, tip{id, t.name})
			}
		case vcs.Tree:
			err = c.changed(t.id, nil, committed{where: where, commit: t.id}, 0)
		case vcs.Commit:
			tree, parents, e := vcs.ParseCommit(o.Body)
			if e != nil {
				return fmt.Errorf("%s: %w", t.name, e)
			}
			var before []string
			for _, p := range parents {
				if !c.stood {
					break
				}
				queue = append(queue, tip{p, t.name})
				if o, e := c.store.get(p); e == nil && o.Kind == vcs.Commit {
					if tree, _, e := vcs.ParseCommit(o.Body); e == nil {
						before = append(before, tree)
					}
				}
			}
			err = c.changed(tree, before, committed{where: where, commit: t.id}, 0)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// changed notes the protected names of a tree, which has the path of in, that are not as in
// one of others. All below a directory that a rule names is noted by that.
func (c *commits) changed(tree string, before []string, in committed, depth int) error {
	if slices.Contains(before, tree) {
		return nil
	}
	if depth > 256 {
		return ErrTooMuch
	}
	list, err := c.entries(tree)
	if err != nil {
		return err
	}
	var others []map[string]vcs.TreeEntry
	for _, id := range before {
		if had, err := c.entries(id); err == nil {
			byName := make(map[string]vcs.TreeEntry, len(had))
			for _, e := range had {
				byName[e.Name] = e
			}
			others = append(others, byName)
		}
	}
	for _, e := range list {
		var below []string
		same := false
		for _, had := range others {
			old, there := had[e.Name]
			same = same || there && old == e
			if there && old.Mode&unix.S_IFMT == unix.S_IFDIR {
				below = append(below, old.ID)
			}
		}
		if same {
			continue
		}
		f := in
		f.path, f.mode, f.id = join(in.path, e.Name), e.Mode, e.ID
		if f.rule == "" {
			f.rule = c.guard.rules.protects(c.tree+"/"+f.path, e.Mode)
		}
		switch {
		case e.Mode&unix.S_IFMT == unix.S_IFDIR:
			if err := c.changed(e.ID, below, f, depth+1); err != nil {
				return err
			}
		case f.rule != "":
			if err := c.add(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *commits) entries(tree string) ([]vcs.TreeEntry, error) {
	o, err := c.store.get(tree)
	if err != nil {
		return nil, err
	}
	return vcs.ParseTree(o.Body, c.store.format)
}

// add notes what git would write, unless that stands where it would.
func (c *commits) add(f committed) error {
	if len(c.found) == maxFound {
		return ErrTooMuch
	}
	if !c.stands(f) {
		c.found = append(c.found, f)
	}
	return nil
}

// stands reports whether the working tree has just that.
func (c *commits) stands(f committed) bool {
	dir, name, err := c.guard.parent(c.tree + "/" + f.path)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	var content []byte
	if f.mode&unix.S_IFMT == unix.S_IFLNK {
		b := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, b)
		if err != nil {
			return false
		}
		content = b[:n]
	} else if content, err = readOwn(dir, name, maxProgram); err != nil {
		return false
	}
	return c.store.format.BlobID(content) == f.id
}

// staged looks at what the run has put into the index and that the last commit has not.
func (c *commits) staged() error {
	path := c.gitDir + "/index"
	var st unix.Stat_t
	if err := c.guard.stat(path, &st); err != nil || c.stood && !c.guard.touched(&st) && !c.reshared() {
		return nil
	}
	dir, name, err := c.guard.parent(path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	b, err := readOwn(dir, name, vcs.MaxGitIndex)
	if err != nil {
		return err
	}
	var list []committed
	shared := func(id string) ([]byte, error) { return readOwn(dir, "sharedindex."+id, vcs.MaxGitIndex) }
	forged, err := vcs.EachStaged(b, c.store.format, shared, func(path string, mode uint32, id string) error {
		rule, err := c.protectedWithin(path, mode)
		if rule != "" {
			list = append(list, committed{path: path, rule: rule, mode: mode, id: id, where: "the index"})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	c.forged = forged
	head := c.head()
	for _, f := range list {
		if f.mode&unix.S_IFMT == unix.S_IFDIR { // of a sparse index
			var before []string
			if e, ok := c.at(head, strings.TrimSuffix(f.path, "/")); ok {
				before = append(before, e.ID)
			}
			f.path = strings.TrimSuffix(f.path, "/")
			if err := c.changed(f.id, before, f, 0); err != nil {
				return err
			}
			continue
		}
		if e, ok := c.at(head, f.path); !ok || e.ID != f.id {
			if err := c.add(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// reshared reports whether the run has changed what a split index begins with.
func (c *commits) reshared() bool {
	files, err := c.guard.filesIn(c.gitDir, 0)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(files, func(name string) bool {
		var st unix.Stat_t
		return strings.HasPrefix(name, "sharedindex.") && (c.guard.stat(c.gitDir+"/"+name, &st) != nil || c.guard.touched(&st))
	})
}

// protectedWithin returns the rule that a path of the index, or a directory above it,
// matches.
func (c *commits) protectedWithin(path string, mode uint32) (string, error) {
	dir := path[:strings.LastIndexByte(path, '/')+1]
	if dir != c.within.dir || dir == "" {
		c.within.dir, c.within.rule = dir, ""
		for i := range len(dir) {
			if dir[i] != '/' {
				continue
			}
			if err := c.store.left.spend(64); err != nil {
				return "", err
			}
			if c.within.rule = c.guard.rules.protects(c.tree+"/"+dir[:i], unix.S_IFDIR); c.within.rule != "" {
				break
			}
		}
	}
	if c.within.rule != "" {
		return c.within.rule, nil
	}
	return c.guard.rules.protects(c.tree+"/"+path, mode), c.store.left.spend(1)
}

// head returns the tree of the commit that is checked out, "" if there is none.
func (c *commits) head() string {
	b, err := c.guard.small(c.gitDir + "/HEAD")
	if err != nil {
		return ""
	}
	text := strings.TrimSpace(string(b))
	id, _, detached := vcs.ParseID(text)
	if ref, is := strings.CutPrefix(text, "ref:"); is && !detached {
		at := slices.IndexFunc(c.all, func(t tip) bool { return t.name == strings.TrimSpace(ref) })
		if at < 0 {
			return ""
		}
		id = c.all[at].id
	}
	if id == "" {
		return ""
	}
	o, err := c.store.get(id)
	if err != nil || o.Kind != vcs.Commit {
		return ""
	}
	tree, _, _ := vcs.ParseCommit(o.Body)
	return tree
}

// at returns what a tree has by a path.
func (c *commits) at(tree, path string) (found vcs.TreeEntry, ok bool) {
	for name := range strings.SplitSeq(path, "/") {
		if tree == "" {
			return found, false
		}
		list, err := c.entries(tree)
		i := slices.IndexFunc(list, func(e vcs.TreeEntry) bool { return e.Name == name })
		if err != nil || i < 0 {
			return found, false
		}
		found, tree = list[i], ""
		if found.Mode&unix.S_IFMT == unix.S_IFDIR {
			tree = found.ID
		}
	}
	return found, true
}

// protects returns the pattern that sets a path aside where it comes into being, "" for
// none; of a link also one by which the way to such a path would lead.
func (c *rules) protects(path string, mode uint32) (pattern string) {
	dir, name := filepath.Split(path)
	if rel, _ := beneath.Path(c.root, filepath.Clean(dir)); name == "" || inModules(rel) {
		return "" // of no name: a tree may say "x/", which git refuses
	}
	if !c.begun([]byte(name)) && !c.ends[name[len(name)-1]] && c.rest.head == 0 {
		return ""
	}
	c.candidates([]byte(name), func(r *rule) {
		switch {
		case pattern != "" || !c.matches(r, path):
		case r.class == classProtect && !c.protect[r.arg].Review:
			pattern = c.protect[r.arg].Pattern
		case r.class == classWay && mode&unix.S_IFMT == unix.S_IFLNK:
			pattern = c.deep[r.arg].Whole
		}
	})
	return pattern
}
