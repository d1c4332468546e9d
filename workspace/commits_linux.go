package workspace

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// What git keeps in commits, in its index and in the stash it writes into the working tree
// when it is asked for that (`git switch`, `restore`, `stash pop`, `rebase --abort`), outside,
// where nobody sets a protected name aside. So what the run has brought there of protected
// names is told of: which commits are the run's say the ctimes of the objects.

const (
	inCommits = "git writes it where that is checked out, merged or popped"
	inPatches = "`git am` and `git rebase` write what they say at --continue and --skip"
	inIndex   = "git writes it at `git restore`, `checkout` and `stash`"
	inReplays = "git puts them into any file in which such a conflict comes again; without the directory it does not"
	inTrees   = "`git commit` takes that, and `git diff --cached` shows what is listed; git reset makes another"
	unread    = "what the run has brought there may hold protected names"
	forged    = "git believes it; `git fsck` tells"
)

const (
	maxNamed = 20 // paths of one repository that are told one by one
	maxFound = 20_000
	maxOld   = 32       // commits that stood behind one that had no name
	maxHeld  = 64 << 20 // bytes of the trees that lead to one
	maxNests = 8
)

// errPath is for a path with which no system call gets anywhere: git does not write it.
var errPath = fmt.Errorf("path of more than %d bytes", unix.PathMax-1)

// commits tells of protected names in what the run has committed, stashed and staged.
func (g *Guard) commits() {
	belief := toBelieve
	a := &asked{left: &allowance{room: maxObjects, until: time.Now().Add(maxRead)}, belief: &belief, inerter: g.inerter(), sound: map[shared]error{}}
	defer a.inerter.close()
	all := func() {
		for _, dir := range g.standing.GitDirs {
			g.committed(dir, []string{g.standing.Root}, true, a)
		}
		g.rules.suspects(g.tree, func(s suspect) {
			if s.kind == isRepo && s.hit.name == "" {
				path := g.abs(s.rel)
				g.committed(path, a.treesOf(path), g.repos[s.rel] && !g.standing.another(s.dir), a)
			}
		})
	}
	all()
	for range maxNests { // of submodules that have some
		if a.subs, a.links = a.links, nil; len(a.subs) == 0 {
			break
		}
		all()
	}
}

// An asked is what is asked of all repositories.
type asked struct {
	left    *allowance
	belief  *allowance // of its own for what git believes: what is packed anew leaves the time of the rest
	inerter *inerter
	sound   map[shared]error // what was asked already, with the answer
	links   []tip            // the commits of submodules that were met
	names   []string         // protected ones that the workspace has; nil before they were asked for
	subs    []tip            // those of them that are looked for now, which no name of the submodule need lead to
}

// treesOf returns where the paths of a repository begin: in each directory that leads to
// it, and in what it says itself.
func (a *asked) treesOf(gitDir string) []string {
	said, _ := a.inerter.saidOf(gitDir)
	trees := slices.Concat(said, a.inerter.treesOf(gitDir))
	if len(trees) == 0 {
		return []string{workTreeOf(gitDir)}
	}
	slices.Sort(trees)
	return slices.Compact(trees)
}

// commonOf returns where a repository keeps what its working trees share.
func (g *Guard) commonOf(gitDir string) string {
	b, err := g.small(gitDir + "/commondir")
	if err != nil {
		return gitDir
	}
	return from(gitDir, vcs.ParsePathFile(b))
}

// looksAt reports whether a repository is looked at for itself.
func (g *Guard) looksAt(gitDir string) bool {
	_, in := beneath.Path(g.standing.Root, gitDir)
	return in || slices.Contains(g.standing.GitDirs, gitDir)
}

// A commits is what is asked of one repository.
type commits struct {
	*asked
	guard  *Guard
	store  *store
	format vcs.Format
	early  bool // nothing has to be in the format
	gitDir string
	common string
	trees  []string // where its paths begin
	stood  bool
	tips   []tip
	all    []tip // tips, and of a linked worktree those of its repository
	short  []tip // named by the first digits
	found  []committed
	ends   map[string]bool // commits that `shallow` lists; nil before it was read
	pairs  []pair
	same   []committed // what has come, and the working tree has as well
	lists  map[string][]vcs.TreeEntry
	held   int64           // of the trees above the one that is looked at
	dirs   map[string]bool // directories that may have been moved, or not
	forged string          // a directory of which the index remembers another tree than it lists
}

// A committed is a protected path that git would write.
type committed struct {
	path, rule string
	tree       string // that the path is in
	mode       uint32
	id         string // of its content
	commit     string // "" for the index
	where      string
	also       []committed // of the same path, with other content
	unwritten  bool        // the index has it, and git has never written it
}

// committed looks at one repository, which stood or did not.
func (g *Guard) committed(gitDir string, trees []string, stood bool, a *asked) {
	c := &commits{asked: a, guard: g, gitDir: gitDir, common: gitDir, trees: trees, stood: stood}
	tell := func(path, what, why string) {
		f := Finding{Kind: Review, Path: path, What: what, Why: why}
		if g.stash != nil {
			f = g.stash.note(f, nil, false)
		}
		g.told(f)
	}
	c.common = g.commonOf(gitDir)
	if err := c.look(tell); err != nil && !gone(err) {
		tell(gitDir, "cannot be looked through: "+strings.ReplaceAll(err.Error(), "\n", "; "), unread)
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
		tell(f.tree+"/"+f.path, "in "+f.where+f.others(), f.rule+": "+why)
	}
	if n := len(c.found) - maxNamed; n > 0 {
		tell(gitDir, fmt.Sprintf("%d more protected names in its commits", n), inCommits)
	}
}

// others says where else the path is, so that nobody takes what the first has for all.
func (f *committed) others() (text string) {
	const few = 3
	for _, o := range f.also[:min(len(f.also), few)] {
		text += ", other content in " + o.where
	}
	if len(f.also) > few {
		text += ", and more"
	}
	return text
}

// look is committed for what is asked of the repository; what it finds is in found.
func (c *commits) look(tell func(path, what, why string)) (err error) {
	var known bool
	if c.format, known = c.inerter.hash(c.gitDir); !known {
		var st unix.Stat_t
		if gone(c.guard.stat(c.gitDir+"/HEAD", &st)) {
			return nil // it was set aside, or never was: to git that is no repository, nor can it read the configuration
		}
		return errors.New("the configuration does not say by what objects are named")
	}
	if c.store, err = c.guard.store(c.common+"/objects", c.format, c.left); err != nil {
		return err
	}
	defer c.store.close()
	if len(c.subs) > 0 {
		c.tips = c.subs
		err := c.history()
		c.drop()
		return err
	}
	err = c.readTips(c.gitDir)
	for _, t := range c.guard.absent[c.gitDir] {
		if 2*len(t.id) == c.format.Digits() {
			c.tips = append(c.tips, t)
		}
	}
	if c.all = c.tips; err == nil && c.common != c.gitDir {
		err = c.readTips(c.common)
		own, known := c.all, map[string]bool{}
		for _, t := range c.tips[len(own):] {
			known[t.id] = true
		}
		c.all = c.tips
		if c.guard.looksAt(c.common) { // what all share is looked at there
			c.tips = slices.DeleteFunc(slices.Clone(own), func(t tip) bool { return known[t.id] })
		}
	}
	if c.tables() {
		err = cmp.Or(err, errors.New("its references are in tables"))
	}
	err = errors.Join(cmp.Or(err, c.whole()), c.history(), c.staged())
	err = cmp.Or(err, c.carried())
	c.drop()
	err = cmp.Or(err, c.objects(tell), c.store.broken)
	if c.store.forged != "" {
		tell(c.common+"/objects", "object "+c.store.forged+" is not what its name says", forged)
	}
	if c.common == c.gitDir || !c.guard.looksAt(c.common) {
		err = cmp.Or(err, c.media(tell))
	}
	if c.forged != "" {
		tell(c.gitDir+"/index", "what it remembers of "+c.forged+" is not what it lists", inTrees)
	}
	if path := c.common + "/rr-cache"; (c.common == c.gitDir || !c.guard.looksAt(c.common)) && c.replays(path) {
		tell(path, "resolutions are new, or were changed or used", inReplays)
	}
	if path := c.gitDir + "/rebase-apply"; c.waits(path) {
		tell(path, "patches wait", inPatches)
	}
	return err
}

// A shared is what working trees of one repository have in common.
type shared struct {
	common string
	format vcs.Format
	stood  bool
}

// objects asks of the objects that have come whether they are what git believes of them; of
// those that several working trees share once, with one answer for all.
func (c *commits) objects(tell func(path, what, why string)) error {
	of := shared{c.common, c.format, c.stood}
	err, asked := c.sound[of]
	if asked {
		return err
	}
	err = c.store.apart(c.belief, func() error {
		var much error
		if !c.store.sound() {
			much = ErrTooMuch
		}
		return cmp.Or(much, c.store.believed(c.stood, tell))
	})
	c.sound[of] = err
	return err
}

// tables reports whether references are in tables that the run has written, in place or not.
func (c *commits) tables() bool {
	return slices.ContainsFunc([]string{c.common, c.gitDir}, func(dir string) bool {
		var st unix.Stat_t
		path := dir + "/reftable"
		if c.guard.stat(path, &st) != nil {
			return false
		}
		files, err := c.guard.filesIn(path, 0, c.left)
		return !c.stood || c.guard.touched(&st) || err != nil || slices.ContainsFunc(files, func(name string) bool {
			return c.guard.stat(path+"/"+name, &st) != nil || c.guard.touched(&st)
		})
	})
}

// waits reports whether patches are there that `git am` goes on with. They are mail, in
// whatever encoding; of the one at which it stopped git takes `patch`.
func (c *commits) waits(path string) bool {
	files, err := c.guard.filesIn(path, 0, c.left)
	if err != nil {
		return !gone(err)
	}
	var st unix.Stat_t // with their directory they come as old as they were
	moved := c.guard.stat(path, &st) != nil || c.guard.touched(&st)
	return slices.ContainsFunc(files, func(name string) bool {
		return (strings.Trim(name, "0123456789") == "" || name == "patch") && (!c.stood || moved || c.guard.stat(path+"/"+name, &st) != nil || c.guard.touched(&st))
	})
}

// replays reports whether the run has left resolutions of conflicts that git repeats, in
// whatever file: of a repository that stood the directory alone turns that on.
func (c *commits) replays(path string) bool {
	all := !c.stood || c.guard.exchanged(path)
	path, _ = c.guard.led(path)
	files, err := c.guard.filesIn(path, maxTips, c.left)
	if err != nil {
		return !gone(err)
	}
	return slices.ContainsFunc(files, func(name string) bool {
		var st unix.Stat_t
		dir, name := filepath.Split(name)
		touched := func(path string) bool { return c.guard.stat(path, &st) != nil || c.guard.touched(&st) }
		// A conflict that comes again renews what is beside its resolution.
		return strings.HasPrefix(name, "postimage") && (all || touched(path+"/"+dir+name) || touched(path) && touched(path+"/"+filepath.Clean(dir)))
	})
}

// whole adds the commits that were named by their first digits.
func (c *commits) whole() error {
	for _, t := range c.short {
		if err := c.left.spend(64); err != nil {
			return err
		}
		for _, id := range c.store.begins(t.id) {
			c.tips = append(c.tips, tip{id: id, name: t.name, file: t.file})
		}
	}
	return nil
}

// drop leaves out what commits have that the references of the start led to: where objects
// were packed anew, all are as young.
func (c *commits) drop() {
	had := map[string]int{}
	older := map[string]bool{}
	var queue []string
	ids, _ := c.noted()
	for id := range ids {
		queue = append(queue, id)
	}
	if slices.ContainsFunc(c.found, func(f committed) bool { return f.commit != "" }) {
		sought := map[string]bool{}
		for _, f := range c.found {
			sought[f.commit] = true
		}
		delete(sought, "")
		for n := 0; n < len(queue) && len(sought) > 0 && c.left.spend(64) == nil; n++ {
			if id := queue[n]; !older[id] {
				older[id] = true
				delete(sought, id)
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
	var kept []committed
	for _, f := range c.found {
		if older[f.commit] {
			continue
		}
		at, is := had[f.path]
		if !is {
			had[f.path] = len(kept)
			kept = append(kept, f)
			continue
		}
		first := &kept[at]
		same := func(o committed) bool { return o.id == f.id && o.mode == f.mode }
		if !same(*first) && !slices.ContainsFunc(first.also, same) && len(first.also) <= maxNamed {
			first.also = append(first.also, f)
		}
	}
	c.found = kept
}

// history looks at what the run's commits have changed of protected names, beside all of
// their parents; of a new repository at what its references have.
func (c *commits) history() error {
	var lacking error
	seen := map[string]bool{}
	had, known := c.had()
	maps.Copy(seen, had) // with all behind them, which may have been packed anew
	queue := slices.Clone(c.tips)
	for n := 0; n < len(queue); n++ {
		t := queue[n]
		if seen[t.id] {
			continue
		}
		seen[t.id] = true
		if err := c.left.spend(64); err != nil {
			return err
		}
		if !c.store.fresh(t.id) {
			// A later run could bring it, behind what will be known by then.
			if t.of != "" && lacking == nil && !c.store.stood(t.id) && !c.endsAt(t.of) {
				lacking = fmt.Errorf("%s: %s: %w", t.name, hex.EncodeToString([]byte(t.id))[:12], errMissing)
			}
			// What stood and had no name an earlier run may have left: drop knows it from
			// what others lead to.
			if t.old++; !known || !c.store.stood(t.id) {
				continue
			}
		}
		o, err := c.store.get(t.id)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		where := hex.EncodeToString([]byte(t.id))[:12] + " (" + t.name + ")"
		switch o.Kind {
		case vcs.Tag:
			if id, err := vcs.ParseTag(o.Body); err == nil {
				queue = append(queue, tip{id: id, name: t.name, of: t.id})
			}
		case vcs.Tree:
			err = c.changed(t.id, c.heads(had), committed{where: where, commit: t.id}, 0)
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
				if t.old < maxOld {
					queue = append(queue, tip{id: p, name: t.name, of: t.id, old: t.old})
				}
				if o, e := c.store.get(p); e == nil && o.Kind == vcs.Commit {
					if tree, _, e := vcs.ParseCommit(o.Body); e == nil {
						before = append(before, tree)
					}
				}
			}
			if t.old >= maxOld { // for all behind it
				before = c.some(had)
			}
			in := committed{where: where, commit: t.id}
			for _, p := range before {
				if p != tree && t.old < maxOld && len(c.pairs) <= maxPairs { // one more: see carried
					c.pairs = append(c.pairs, pair{p, tree, in})
				}
			}
			err = c.changed(tree, before, in, 0)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return lacking
}

// had returns what the references led to at the start, and whether that is known. A run
// may be over before it was noted: then what it has not touched tells as much.
func (c *commits) had() (ids map[string]bool, known bool) {
	if ids, known = c.noted(); known || !c.stood {
		return ids, known
	}
	looked := map[string]bool{}
	for _, t := range c.tips {
		var st unix.Stat_t
		if looked[t.file] || t.file == "" {
			continue
		}
		if looked[t.file] = true; c.guard.stat(t.file, &st) != nil || c.guard.touched(&st) || c.moved(t.file) {
			c.guard.knowTips(nil)
			return c.noted()
		}
	}
	return ids, known
}

// noted is had for what has been noted; of a linked worktree with what all share.
func (c *commits) noted() (ids map[string]bool, known bool) {
	ids, known = c.guard.tips[c.gitDir]
	if shared := c.guard.tips[c.common]; c.common != c.gitDir && shared != nil {
		ids = maps.Clone(ids)
		if ids == nil {
			ids = map[string]bool{}
		}
		maps.Copy(ids, shared)
	}
	return ids, known
}

// some returns trees of a few commits that were known.
func (c *commits) some(had map[string]bool) (trees []string) {
	const few = 16
	for _, id := range slices.Sorted(maps.Keys(had)) {
		if len(trees) == few {
			break
		}
		if o, err := c.store.get(id); err == nil && o.Kind == vcs.Commit {
			if tree, _, err := vcs.ParseCommit(o.Body); err == nil {
				trees = append(trees, tree)
			}
		}
	}
	return trees
}

// heads returns trees of commits that are looked at themselves, with which a tree is compared
// that a merge has made (AUTO_MERGE): it has what they have.
func (c *commits) heads(had map[string]bool) (trees []string) {
	if !c.stood {
		return nil
	}
	trees = c.some(had)
	if head := c.head(); head != "" {
		trees = append(trees, head)
	}
	for _, t := range c.all {
		if len(trees) > maxHeads || !strings.HasSuffix(t.name, "HEAD") || strings.Contains(t.name, "/") {
			continue
		}
		if o, err := c.store.get(t.id); err == nil && o.Kind == vcs.Commit {
			if tree, _, err := vcs.ParseCommit(o.Body); err == nil {
				trees = append(trees, tree)
			}
		}
	}
	return trees
}

// endsAt reports whether a history is known to end at a commit, whatever that says.
func (c *commits) endsAt(id string) bool {
	if c.ends == nil {
		c.ends = map[string]bool{}
		b, _ := c.guard.small(c.common + "/shallow") // one that cannot be read says nothing
		for line := range bytes.SplitSeq(b, []byte("\n")) {
			if id, _, ok := vcs.ParseID(string(line)); ok {
				c.ends[id] = true
			}
		}
	}
	return c.ends[id]
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
	had := c.left.room
	list, err := c.entries(tree)
	if err != nil {
		return err
	}
	size := had - c.left.room
	if c.held += size; c.held > maxHeld {
		return ErrTooMuch
	}
	defer func() { c.held -= size }()
	// Of the others one at a time is held.
	at, same, below := map[string]int{}, map[int]bool{}, map[int][]string{}
	if len(before) > 0 {
		for i, e := range list {
			at[e.Name] = i
		}
	}
	for _, id := range before {
		others, err := c.entries(id)
		if err != nil {
			continue
		}
		for _, old := range others {
			i, there := at[old.Name]
			switch {
			case !there:
			case list[i] == old:
				same[i] = true
			case old.Mode&unix.S_IFMT == unix.S_IFDIR:
				below[i] = append(below[i], strings.Clone(old.ID))
			}
		}
	}
	for i, e := range list {
		if same[i] {
			continue
		}
		if len(in.path)+len(e.Name) >= unix.PathMax {
			return errPath
		}
		if err := c.left.spend(0); err != nil {
			return err
		}
		f := in
		f.path, f.mode, f.id = join(in.path, e.Name), e.Mode, e.ID
		if f.rule == "" {
			f.rule, f.tree = c.protects(f.path, len(f.path)-len(e.Name), e.Mode)
		}
		if e.Mode&unix.S_IFMT == gitLink {
			c.links = append(c.links, tip{id: strings.Clone(e.ID), name: in.where})
		}
		switch {
		case e.Mode&unix.S_IFMT == unix.S_IFDIR:
			if err := c.changed(e.ID, below[i], f, depth+1); err != nil {
				return err
			}
		case f.rule != "":
			if err := c.note(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *commits) entries(tree string) ([]vcs.TreeEntry, error) {
	o, err := c.store.within(tree, maxTree, 0)
	if err != nil {
		return nil, err
	}
	return vcs.ParseTree(o.Body, c.store.format)
}

// note keeps what git would write, unless that stands where it would.
func (c *commits) note(f committed) error {
	if len(c.found) == maxFound {
		return ErrTooMuch
	}
	f.id = strings.Clone(f.id) // else it would keep its tree
	if !c.stands(f) {
		c.found = append(c.found, f)
	} else if f.commit != "" && len(c.same) <= maxOwn && !slices.ContainsFunc(c.same, func(o committed) bool { return o.path == f.path && o.id == f.id }) {
		c.same = append(c.same, f)
	}
	return nil
}

// stands reports whether the working tree has just that.
func (c *commits) stands(f committed) bool {
	if c.left.spend(0) != nil { // else each of many commits could ask for a large file
		return false
	}
	dir, name, err := c.guard.parent(f.tree + "/" + f.path)
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
	var st unix.Stat_t
	if f.mode&0o100 != 0 && (beneath.Stat(dir, name, &st) != nil || st.Mode&0o100 == 0) {
		return false // git leaves a hook alone that cannot be executed
	}
	return c.left.spend(int64(len(content))) == nil && c.store.format.BlobID(content) == f.id
}

// protects returns the rule that a path matches, or a directory above it as far as that is
// longer than what was asked already, and in which of the working trees. What is a name in
// a tree may have a slash in it, and git writes it all the same.
func (c *commits) protects(path string, asked int, mode uint32) (rule, tree string) {
	for _, tree := range c.trees {
		full := tree + "/" + path
		for i := asked; i < len(path); i++ {
			if path[i] == '/' {
				if rule := c.guard.rules.protects(full[:len(full)-len(path)+i], unix.S_IFDIR); rule != "" {
					return rule, tree
				}
			}
		}
		if rule := c.guard.rules.protects(full, mode); rule != "" {
			return rule, tree
		}
	}
	return "", ""
}

// at returns what a tree has by a path.
func (c *commits) at(tree, path string) (found vcs.TreeEntry, ok bool) {
	for name := range strings.SplitSeq(path, "/") {
		if tree == "" {
			return found, false
		}
		list, err := c.list(tree)
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
// none; of a link, or a submodule, also one by which the way to such a path would lead.
func (c *rules) protects(path string, mode uint32) (pattern string) {
	dir, name := filepath.Split(path)
	if name == "" || !c.begun([]byte(name)) && !c.ends[name[len(name)-1]] && c.rest.head == 0 {
		return "" // of no name: a tree may say "x/", which git refuses
	}
	if rel, _ := beneath.Path(c.root, filepath.Clean(dir)); inModules(rel) {
		return ""
	}
	c.candidates([]byte(name), func(r *rule) {
		switch {
		case pattern != "" || !c.matches(r, path):
		case r.class == classProtect && !c.protect[r.arg].Review:
			pattern = c.protect[r.arg].Pattern
		case r.class == classWay && (mode&unix.S_IFMT == unix.S_IFLNK || mode&unix.S_IFMT == gitLink):
			pattern = c.deep[r.arg].Whole
		}
	})
	return pattern
}
