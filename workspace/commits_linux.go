package workspace

import (
	"container/heap"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// What git keeps in commits, in its index and in the stash it writes into the working tree
// when it is asked for that (`git switch`, `restore`, `stash pop`), outside, where nobody
// quarantines a protected name. So the protected names are reported that the run has brought there: in the commits
// between what references led to when it began and what they lead to now, and in the index.

const (
	inCommits = "git writes it at checkout, merge or stash pop"
	inIndex   = "git writes it at `git restore`, `checkout` and `stash`"
	unread    = "new commits there may contain protected names"
)

const (
	maxNamed = 20 // paths of one repository that are reported one by one
	maxFound = 20_000
	maxHeld  = 64 << 20 // bytes of the trees that lead to one
	maxLists = 256      // trees that are kept because they are asked for again
)

// gitLink is the mode of a submodule, whose commit stands there.
const gitLink = 0o160000

// errPath is for a path with which no system call gets anywhere: git does not write it.
var errPath = fmt.Errorf("path of more than %d bytes", unix.PathMax-1)

// commits reports protected names in what the run has committed, stashed and staged.
func (g *Guard) commits() {
	i := g.inerter()
	defer i.close()
	left := &allowance{room: maxObjects, until: time.Now().Add(maxRead)}
	if g.tips == nil {
		g.knowTips(nil) // by what has not been changed
	}
	for _, dir := range g.standing.GitDirs {
		g.committed(&commits{inerter: i, guard: g, left: left, gitDir: dir, trees: []string{g.standing.Root}, stood: true})
	}
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.name == "" {
			dir := g.abs(s.rel)
			g.committed(&commits{inerter: i, guard: g, left: left, gitDir: dir, trees: i.treesFor(dir), stood: g.repos[s.rel] && !g.standing.another(s.dir)})
		}
	})
}

// treesFor returns where the paths of a repository begin: in each directory that leads to
// it, and in what it says itself.
func (i *inerter) treesFor(gitDir string) []string {
	said, _ := i.saidOf(gitDir)
	trees := slices.Concat(said, i.treesOf(gitDir))
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
	inerter *inerter
	guard   *Guard
	left    *allowance
	store   *store
	format  vcs.Format
	gitDir  string
	common  string
	trees   []string // where its paths begin
	stood   bool
	tips    []tip
	found   []committed
	lists   map[string][]vcs.TreeEntry
	held    int64 // of the trees above the one that is looked at
}

// A committed is a protected path that git would write.
type committed struct {
	path, rule string
	tree       string // that the path is in
	mode       uint32
	id         string // of its content
	where      string
	also       []string // where else the path is, with other content
}

// committed looks at one repository, which stood or did not.
func (g *Guard) committed(c *commits) {
	tell := func(path, what, why string) {
		f := Finding{Kind: Review, Path: path, What: what, Why: why}
		if g.stash != nil {
			f = g.stash.note(f, nil, false)
		}
		g.told(f)
	}
	c.common = g.commonOf(c.gitDir)
	if err := c.look(); err != nil && !gone(err) {
		tell(c.gitDir, "cannot be read: "+strings.ReplaceAll(err.Error(), "\n", "; "), unread)
	}
	if len(c.found) == 0 {
		return
	}
	if !c.stood { // a clone has what it has: one line
		var names []string
		for _, f := range c.found[:min(len(c.found), 5)] {
			names = append(names, f.path)
		}
		if n := len(c.found) - len(names); n > 0 {
			names = append(names, fmt.Sprintf("%d more", n))
		}
		tell(c.gitDir, "its commits contain "+strings.Join(names, ", "), inCommits)
		return
	}
	for _, f := range c.found[:min(len(c.found), maxNamed)] {
		why := inCommits
		if f.where == "the index" {
			why = inIndex
		}
		where := append([]string{"in " + f.where}, f.also...)
		tell(f.tree+"/"+f.path, strings.Join(where, ", other content in "), f.rule+": "+why)
	}
	if n := len(c.found) - maxNamed; n > 0 {
		tell(c.gitDir, fmt.Sprintf("%d more protected names in its commits", n), inCommits)
	}
}

// look is committed for what is asked of the repository; what it finds is in found.
func (c *commits) look() (err error) {
	var st unix.Stat_t
	if gone(c.guard.stat(c.gitDir+"/HEAD", &st)) {
		return nil // it was quarantined, or never was: to git that is no repository
	}
	var known bool
	if c.format, known = c.inerter.hash(c.gitDir); !known {
		return errors.New("the configuration does not name the object format")
	}
	if c.store, err = c.guard.store(c.common+"/objects", c.format, c.left); err != nil {
		return err
	}
	defer c.store.close()
	if c.tips, err = c.guard.tipsOf(c.gitDir, c.left, false); err != nil {
		return err
	}
	c.tips = slices.DeleteFunc(c.tips, func(t tip) bool { return 2*len(t.id) != c.format.Digits() })
	own := len(c.tips)
	if c.common != c.gitDir {
		shared, err := c.guard.tipsOf(c.common, c.left, false)
		if err != nil {
			return err
		}
		c.tips = append(c.tips, shared...)
	}
	fresh := c.tips
	if c.common != c.gitDir && c.guard.looksAt(c.common) { // what all share is looked at there
		fresh = fresh[:own]
	}
	return errors.Join(c.history(fresh), c.staged())
}

// A node is a commit of a history.
type node struct {
	tip
	tree    string
	parents []string
	when    int64
	old     bool // the references of the start lead to it
	queued  bool
}

// A queue has the youngest commit first.
type queue []*node

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].when > q[j].when }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(*node)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// history looks at what the commits have changed of protected names, beside all of their parents, to which the
// references lead now and did not when the run began; of a new repository at what its references have. It goes
// from the youngest to older ones, as `git log NEW --not OLD` does, until all that is left was known.
func (c *commits) history(fresh []tip) error {
	had, shared := c.guard.tips[c.gitDir], c.guard.tips[c.common]
	known := len(had)+len(shared) > 0
	isOld := func(id string) bool { return had[id] || shared[id] }
	if c.stood && known && !slices.ContainsFunc(fresh, func(t tip) bool { return !isOld(t.id) }) {
		return nil
	}
	nodes := map[string]*node{}
	var todo queue
	news := 0
	add := func(t tip, old bool) error {
		n := nodes[t.id]
		if n == nil {
			var err error
			if n, err = c.node(t); err != nil || n == nil {
				return err
			}
			nodes[t.id] = n
		} else if n.old || !old {
			return nil
		}
		if n.queued && old {
			news--
		}
		if n.old = old; !n.queued {
			n.queued = true
			heap.Push(&todo, n)
		}
		if !old {
			news++
		}
		return nil
	}
	if c.stood {
		for id := range had {
			if err := add(tip{id: id}, true); err != nil {
				return err
			}
		}
		for id := range shared {
			if err := add(tip{id: id}, true); err != nil {
				return err
			}
		}
	}
	for _, t := range fresh {
		// Of one that nobody noted at the start, its objects tell.
		if err := add(t, c.stood && !known && c.store.stood(t.id)); err != nil {
			return err
		}
	}
	var list []*node
	oldest := int64(math.MaxInt64)
	// One that is as young as the oldest in the list may lead to it, and be known.
	for len(todo) > 0 && (news > 0 || todo[0].when >= oldest) {
		n := heap.Pop(&todo).(*node)
		n.queued = false
		if !n.old {
			news--
			list = append(list, n)
			oldest = min(oldest, n.when)
		}
		for _, p := range n.parents {
			if !c.stood {
				break // its references have what they have
			}
			if err := add(tip{id: p, name: n.name}, n.old || !known && c.store.stood(p)); err != nil {
				return err
			}
		}
	}
	for _, n := range list {
		if n.old { // it was met again, behind what was known
			continue
		}
		var before []string
		for _, p := range n.parents {
			if p, err := c.node(tip{id: p}); c.stood && err == nil && p != nil {
				before = append(before, p.tree)
			}
		}
		in := committed{where: hex.EncodeToString([]byte(n.id))[:12] + " (" + n.name + ")"}
		if err := c.changed(n.tree, before, in, 0); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// node reads a commit, or the one that a tag leads to; nil for what is none, or is not there: a clone may end there.
func (c *commits) node(t tip) (*node, error) {
	id := t.id
	for range 8 {
		if 2*len(id) != c.format.Digits() {
			return nil, nil
		}
		o, err := c.store.get(id)
		switch {
		case errors.Is(err, ErrTooMuch):
			return nil, fmt.Errorf("%s: %w", t.name, err)
		case err != nil:
			return nil, nil
		case o.Kind == vcs.Tag:
			if id, err = vcs.ParseTag(o.Body); err != nil {
				return nil, nil
			}
			continue
		case o.Kind != vcs.Commit:
			return nil, nil
		}
		n := &node{tip: t}
		if n.tree, n.parents, n.when, err = vcs.ParseCommit(o.Body); err != nil {
			return nil, nil
		}
		return n, nil
	}
	return nil, nil
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

// list is entries for what is asked for again.
func (c *commits) list(tree string) ([]vcs.TreeEntry, error) {
	if list, ok := c.lists[tree]; ok {
		return list, c.left.spend(64)
	}
	list, err := c.entries(tree)
	if err == nil {
		if c.lists == nil || len(c.lists) == maxLists {
			c.lists = map[string][]vcs.TreeEntry{}
		}
		c.lists[strings.Clone(tree)] = list
	}
	return list, err
}

// note keeps what git would write, unless that stands where it would.
func (c *commits) note(f committed) error {
	if len(c.found) == maxFound {
		return ErrTooMuch
	}
	f.id = strings.Clone(f.id) // else it would keep its tree
	at := slices.IndexFunc(c.found, func(o committed) bool { return o.path == f.path })
	switch {
	case c.stands(f):
	case at < 0:
		c.found = append(c.found, f)
	case c.found[at].id != f.id && len(c.found[at].also) < 3:
		c.found[at].also = append(c.found[at].also, f.where)
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
