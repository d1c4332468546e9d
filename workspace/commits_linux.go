package workspace

import (
	"cmp"
	"encoding/hex"
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
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// What git keeps in commits and in its index it writes into the working tree when it is asked for that (`git
// switch`, `restore`, `stash pop`), outside, where nobody quarantines a protected name. So git itself is asked, in a
// sandbox of its own, which protected names the run has brought there: in the commits between what references
// led to when it began and what they lead to now, and in the index.

const (
	inCommits = "git writes it at checkout, merge or stash pop"
	inIndex   = "git writes it at `git restore`, `checkout` and `stash`"
	unread    = "new commits there may contain protected names"
)

const (
	maxNamed  = 20     // paths of one repository that are reported one by one
	maxTips   = 50_000 // references of one repository
	maxPacked = 64 << 20
)

var errUnknownTips = errors.New("nobody knows what references led to when the run began")

type tips = gitdir.Tips

// eachTip calls yield with the files in which a repository's references are: those that stood and the run has not
// written, or those that it has.
func (g *Guard) eachTip(gitDir string, stood bool, stop <-chan struct{}, yield func(rel string, b []byte)) error {
	fd, err := g.openPath(gitDir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	files := 0
	read := func(dir int, at, name string) {
		var st unix.Stat_t
		if beneath.Stat(dir, at, &st) == nil && g.touched(&st) != stood {
			if b, err := beneath.ReadOwn(dir, at, maxPacked); err == nil {
				yield(name, b)
			}
		}
	}
	for _, name := range gitdir.Heads {
		read(fd, name, name)
	}
	var walk func(dir int, name, rel string) error
	walk = func(dir int, name, rel string) error {
		at, err := g.openDir(dir, name)
		if err != nil {
			return nil // git sees nothing there either
		}
		defer unix.Close(at)
		var st unix.Stat_t
		if had, known := g.standing.Git[gitDir+"/"+rel]; stood && g.standing.Git != nil && (unix.Fstat(at, &st) != nil || !known || had.Ino != st.Ino) {
			return nil // with it came what is in it, as old as that is
		}
		list, err := readDir(at)
		if files += len(list); err != nil || files > maxTips || strings.Count(rel, "/") > maxNested {
			return ErrTooMuch
		}
		for _, e := range list {
			select {
			case <-stop:
				return os.ErrClosed
			default:
			}
			if e.Type().IsRegular() {
				read(at, e.Name(), rel+"/"+e.Name())
			} else if e.IsDir() {
				if err := walk(at, e.Name(), rel+"/"+e.Name()); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return walk(fd, "refs", "refs")
}

// openPath opens a directory by its absolute path.
func (g *Guard) openPath(path string) (int, error) {
	at, name, err := g.parent(path)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	return g.openDir(at, name)
}

// knowTips notes what the references of the repositories lead to, before the command changes them.
func (g *Guard) knowTips(stop <-chan struct{}) {
	known := map[string]tips{}
	dirs := slices.Clone(g.standing.GitDirs)
	for rel := range g.repos {
		dirs = append(dirs, g.abs(rel))
	}
	for _, dir := range dirs {
		for _, dir := range [...]string{dir, g.commonOf(dir)} {
			if t := (tips{}); known[dir] == nil && g.eachTip(dir, true, stop, t.Add) == nil {
				known[dir] = t
			}
		}
	}
	g.tips = known
}

// files reads repositories as the guard does.
func (g *Guard) files() gitdir.Files {
	read := func(path string) ([]byte, error) { return g.readOwn(path, vcs.MaxGitIndex) }
	return gitdir.Files{Read: read, Link: g.linkText}
}

// commonOf returns where a repository keeps what its working trees share.
func (g *Guard) commonOf(gitDir string) string { return g.files().Common(gitDir) }

// inGit reads a file of a git directory.
func (g *Guard) inGit(gitDir, name string) ([]byte, error) {
	return g.readOwn(gitDir+"/"+name, vcs.MaxGitIndex)
}

// A written is what the run has written into one repository.
type written struct {
	tips   tips
	staged bool // a protected name is in the index that the working tree has not so
}

// wrote notes what stands in a file of a repository that the run has written.
func (g *Guard) wrote(gitDir, rel string, b []byte) {
	if w := g.writtenIn(gitDir); slices.Contains(gitdir.Heads[:], rel) || strings.HasPrefix(rel, "refs/") {
		w.tips.Add(rel, b)
	}
}

func (g *Guard) writtenIn(gitDir string) *written {
	w := g.written[gitDir]
	if w == nil {
		w = &written{tips: tips{}}
		if g.written == nil {
			g.written = map[string]*written{}
		}
		g.written[gitDir] = w
	}
	return w
}

// commits reports protected names in what the run has committed, stashed and staged.
func (g *Guard) commits() {
	ask := g.peers[0].AskGit
	var asked []*commits
	var questions []GitQuestion
	for _, dir := range slices.Sorted(maps.Keys(g.written)) {
		c := &commits{guard: g, gitDir: dir, common: g.commonOf(dir), tree: g.treeOf(dir)}
		rel, in := beneath.Path(g.standing.Root, dir)
		c.stood = !in || g.repos[rel]
		c.look(g.written[dir])
		asked = append(asked, c)
		questions = append(questions, c.questions...)
	}
	if ask == nil {
		return
	}
	told := map[string]bool{}
	defer g.shutOut(told)
	var answers []GitAnswer
	if len(questions) > 0 {
		answers = ask(questions)
	}
	for _, c := range asked {
		n := min(len(c.questions), len(answers))
		for _, a := range answers[:n] {
			c.read(a.Text)
			c.err = cmp.Or(c.err, a.Err)
		}
		answers = answers[n:]
		if c.err != nil && !(g.onlyRoots(c.gitDir) && !errors.Is(c.err, ErrTooMuch)) {
			told[c.gitDir] = true
			g.tell(c.gitDir, "cannot be read: "+strings.ReplaceAll(c.err.Error(), "\n", "; "), unread)
		}
		c.report()
	}
}

// noteClosed notes which git directories, as root, nobody else can look into: where root has been given up by the end of a
// run, git says nothing of them. What the run closes, to have its commits unread, is none of these.
func (r *Standing) noteClosed(common []Common) {
	if os.Geteuid() != 0 {
		return
	}
	lstat := func(path string, st *unix.Stat_t) error { return unix.Lstat(path, st) }
	if !readable("/", r.Root, nil, lstat) { // nor into what the run makes there
		r.Closed = append(r.Closed, r.Root)
	}
	for _, rel := range r.Repos {
		if dir := filepath.Join(r.Root, rel); len(r.Closed) == 0 && !readable("/", dir, gitReads, lstat) {
			r.Closed = append(r.Closed, dir)
		}
	}
	for _, c := range common {
		if !readable("/", c.GitDir, gitReads, lstat) || !readable("/", c.Path, gitReads, lstat) {
			r.Closed = append(r.Closed, c.GitDir, c.Path)
		}
	}
}

// gitReads are names without which git reads no commits.
var gitReads = []string{"HEAD", "refs", "objects", "objects/pack"}

// readable reports whether everybody can enter a directory, as far as that lies below top, and read these names in it.
func readable(top, dir string, names []string, stat func(string, *unix.Stat_t) error) bool {
	var st unix.Stat_t
	if slices.ContainsFunc(names, func(name string) bool { return stat(filepath.Join(dir, name), &st) == nil && st.Mode&0o004 == 0 }) {
		return false
	}
	for ; inside(top, dir) && dir != "/"; dir = filepath.Dir(dir) {
		if stat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o001 == 0 {
			return false
		}
	}
	return true
}

// onlyRoots reports whether git cannot look into a git directory because nobody but root could when the run began.
func (g *Guard) onlyRoots(gitDir string) bool {
	return os.Geteuid() != 0 && slices.ContainsFunc(g.standing.Closed, func(dir string) bool { return inside(dir, gitDir) })
}

// shutOut reports the git directories that the run has closed to whom root has become: else a later run would find
// them closed.
func (g *Guard) shutOut(told map[string]bool) {
	if os.Geteuid() == 0 || g.lent == nil {
		return
	}
	check := func(top, dir string) {
		if !told[dir] && !g.onlyRoots(dir) && !readable(top, dir, gitReads, g.stat) {
			g.tell(dir, "cannot be read: the run has closed it", unread)
		}
	}
	for _, rel := range g.standing.Repos {
		check(g.standing.Root, g.abs(rel))
	}
	for _, dir := range g.standing.GitDirs {
		check(dir, dir)
	}
}

func (g *Guard) tell(path, what, why string) {
	f := Finding{Kind: Review, Path: path, What: what, Why: why}
	if g.stash != nil {
		f = g.stash.Note(f, nil, false)
	}
	g.told(f)
}

// treeOf returns where the paths of a repository begin: in what the guard looks after, wherever its working tree is.
func (g *Guard) treeOf(gitDir string) string {
	if tree := g.files().Tree(gitDir); inside(g.standing.Root, tree) {
		return tree
	}
	return g.standing.Root
}

// A commits is what is asked of one repository.
type commits struct {
	guard          *Guard
	gitDir, common string
	tree           string // where its paths begin
	stood          bool
	questions      []GitQuestion
	names          tips // of what is new
	found          []committed
	err            error
}

// A committed is a protected path that git would write.
type committed struct{ path, rule, where string }

func (c *commits) report() {
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
		c.guard.tell(c.gitDir, "its commits contain "+strings.Join(names, ", "), inCommits)
		return
	}
	for _, f := range c.found[:min(len(c.found), maxNamed)] {
		why := inCommits
		if f.where == "the index" {
			why = inIndex
		}
		c.guard.tell(c.tree+"/"+f.path, "in "+f.where, f.rule+": "+why)
	}
	if n := len(c.found) - maxNamed; n > 0 {
		c.guard.tell(c.gitDir, fmt.Sprintf("%d more protected names in its commits", n), inCommits)
	}
}

// look finds out what git is to be asked. What stood is no news.
func (c *commits) look(w *written) {
	if _, err := c.guard.inGit(c.gitDir, "HEAD"); beneath.Gone(err) {
		return // it was quarantined, or never was: to git that is no repository
	}
	format, _ := c.guard.formatOf(c.common)
	if any := slices.Sorted(maps.Keys(w.tips)); !c.stood && len(any) > 0 { // of what its history has been nobody speaks
		args := append([]string{"diff-tree", "-r"}, append(gitdir.Raw, format.EmptyTree())...)
		c.ask("", append(args, "HEAD"), append(args[:len(args):len(args)], any[0]))
	}
	old, known := tips{}, true
	for _, dir := range [...]string{c.gitDir, c.common} {
		had := c.guard.tips[dir]
		known = known && had != nil
		maps.Copy(old, had)
	}
	c.names = maps.Clone(w.tips)
	maps.DeleteFunc(c.names, func(id, _ string) bool { return old[id] != "" })
	switch {
	case !c.stood || len(c.names) == 0:
	case !known:
		c.err = errUnknownTips
	default:
		args, in := c.names.Since(old)
		c.ask(in, args, nil)
	}
	if args := append([]string{"diff-index", "--cached"}, gitdir.Raw...); w.staged {
		c.ask("", append(args, "HEAD"), append(args[:len(args):len(args)], format.EmptyTree())) // before the first commit
	}
}

func (c *commits) ask(input string, args, other []string) {
	q := GitQuestion{Dir: c.gitDir, Args: args, Else: other, Input: input, Read: c.guard.files().Stores(c.common + "/objects")}
	if c.common != c.gitDir {
		q.Read = append(q.Read, c.common)
	}
	c.questions = append(c.questions, q)
}

// read keeps the protected names of an answer: those that do not stand where git would write them.
func (c *commits) read(text []byte) {
	c.names.EachBrought(text, func(b gitdir.Brought) {
		if slices.ContainsFunc(c.found, func(f committed) bool { return f.path == b.Path }) {
			return
		}
		if rule := c.guard.rules.protects(c.tree, b.Path, b.Mode); rule != "" && !c.guard.has(c.tree+"/"+b.Path, b.Mode, b.ID) {
			c.found = append(c.found, committed{b.Path, rule, b.Where})
		}
	})
}

// has reports whether a path has just that, by the name of its content.
func (g *Guard) has(path string, mode uint32, id string) bool {
	dir, name, err := g.parent(path)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if beneath.Stat(dir, name, &st) != nil || st.Size > maxProgram {
		return false
	}
	var content []byte
	if mode&unix.S_IFMT == unix.S_IFLNK {
		content = []byte(g.linkText(path))
	} else if content, err = beneath.ReadOwn(dir, name, maxProgram); err != nil || mode&0o100 != 0 && st.Mode&0o100 == 0 {
		return false // git leaves a hook alone that cannot be executed
	}
	format := vcs.FormatSHA1
	if len(id) == vcs.FormatSHA256.Digits() {
		format = vcs.FormatSHA256
	}
	return hex.EncodeToString([]byte(format.BlobID(content))) == id
}

// protects returns the pattern that quarantines a path of a working tree, or a directory above it, where that comes into
// being, "" for none.
func (c *rules) protects(tree, path string, mode uint32) (pattern string) {
	for i := range path {
		if path[i] == '/' && pattern == "" {
			pattern = c.denied(tree+"/"+path[:i], unix.S_IFDIR)
		}
	}
	if pattern == "" {
		pattern = c.denied(tree+"/"+path, mode)
	}
	return pattern
}

// denied is protects for a path alone; of a link, or a submodule, also a pattern by which the way to such a path would
// lead.
func (c *rules) denied(path string, mode uint32) (pattern string) {
	const gitLink = 0o160000
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

// stages notes that an index which the run has written lists a protected name which the working tree has not so, and
// which of those git could not write: `git switch` says so, goes on, and exits with 0.
func (g *Guard) stages(gitDir string) func(gitdir.Staged) {
	tree := g.treeOf(gitDir)
	w := g.writtenIn(gitDir)
	within, above := "", ""
	return func(s gitdir.Staged) {
		if s.Path == "" { // of a split index, which git puts together
			w.staged = true
			return
		}
		if dir := s.Path[:strings.LastIndexByte(s.Path, '/')+1]; dir != within { // most lie beside the one before
			within, above = dir, g.rules.protects(tree, strings.TrimSuffix(dir, "/"), unix.S_IFDIR)
		}
		rule, full := above, tree+"/"+s.Path
		if rule == "" {
			rule = g.rules.denied(full, s.Mode)
		}
		if rule == "" && s.Mode&unix.S_IFMT != unix.S_IFDIR || g.has(full, s.Mode, hex.EncodeToString(s.ID)) {
			return
		}
		w.staged = true
		if !s.Written && rule != "" && len(g.unwritten) < maxNamed && g.pinned(full) {
			g.unwritten = append(g.unwritten, Refusal{Path: full, Why: rule})
		}
	}
}

// pinned reports whether a path stands by a protected name that stood when the run began.
func (g *Guard) pinned(path string) bool {
	var st unix.Stat_t
	rel, in := beneath.Path(g.standing.Root, path)
	if !in || g.stat(path, &st) != nil {
		return false
	}
	for ; rel != "." && rel != "/"; rel = filepath.Dir(rel) {
		if g.stood[rel] {
			return true
		}
	}
	return false
}

// formatOf returns by what objects are named in a repository.
func (g *Guard) formatOf(common string) (vcs.Format, bool) {
	b, err := g.inGit(common, "config")
	if err != nil {
		return vcs.FormatSHA1, beneath.Gone(err)
	}
	return vcs.HashOf(b)
}

// A History is what the repositories below a directory lead to, before what a run has done elsewhere is brought there.
type History struct{ guard *Guard }

// NoteHistory notes it. The rules are those of the run's policy; what is younger than since counts as brought already.
func NoteHistory(root string, protect []profiles.ProtectRule, since time.Time, ask AskGit) (*History, error) {
	g, err := NewGuard(&Standing{Root: root, Start: since, Protect: protect}, nil, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	g.AskGit = ask
	began := time.Now()
	if err := g.read(); err != nil {
		g.Close()
		return nil, err
	}
	forget(g.tree, began, g.dev)
	g.eachRepo(func(rel string) { g.repos[rel] = true })
	g.knowTips(nil)
	return &History{g}, nil
}

// eachRepo calls yield with each git directory of the tree.
func (g *Guard) eachRepo(yield func(rel string)) {
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.name == "" {
			yield(s.rel)
		}
	})
}

// Brought returns the protected names that have come since into commits and the index of the repositories there, as
// [Guards.Finish] does of a run.
func (h *History) Brought() (found []Finding) {
	g := h.guard
	g.told = func(f Finding) { found = append(found, f) }
	if err := g.read(); err != nil {
		g.tell(g.standing.Root, "cannot be read: "+err.Error(), unread)
	}
	g.eachRepo(func(rel string) {
		dir := g.abs(rel)
		for _, dir := range [...]string{dir, g.commonOf(dir)} {
			_ = g.eachTip(dir, false, nil, func(rel string, b []byte) { g.wrote(dir, rel, b) })
		}
		var st unix.Stat_t
		if g.stat(dir+"/index", &st) == nil && g.touched(&st) {
			b, _ := g.inGit(dir, "index")
			format, _ := g.formatOf(g.commonOf(dir))
			gitdir.PlainIndex(b, format, g.stages(dir))
		}
	})
	g.commits()
	return found
}

// Close gives back what it has opened.
func (h *History) Close() { h.guard.Close() }
