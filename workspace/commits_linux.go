package workspace

import (
	"encoding/hex"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/quarantine"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// knowTips notes what stands in the references of the repositories, as far as take, if there is one, accepts their
// files. Of a run that is before its command begins: what that has changed nobody can tell afterwards.
func (r *Standing) knowTips(take func(st *unix.Stat_t) bool) {
	files := gitdir.Files{Read: quarantine.ReadNow}
	r.tips = map[string]map[string][]byte{}
	know := func(gitDir string) {
		for _, dir := range [...]string{gitDir, files.Common(gitDir)} {
			t := map[string][]byte{}
			if r.tips[dir] == nil && EachTip(dir, take, func(rel string, b []byte) { t[rel] = b }) == nil {
				r.tips[dir] = t
			}
		}
	}
	for _, rel := range r.Repos {
		know(filepath.Join(r.Root, rel))
	}
	for _, dir := range r.GitDirs {
		know(dir)
	}
}

// files reads repositories as the guard does.
func (g *Guard) files() gitdir.Files {
	read := func(path string) ([]byte, error) { return g.readOwn(path, vcs.MaxGitIndex) }
	return gitdir.Files{Read: read, Link: g.linkText}
}

// wrote notes what stands in a file of a repository that the run has written.
func (g *Guard) wrote(gitDir, rel string, b []byte) {
	if w := g.writtenIn(gitDir); slices.Contains(gitdir.Heads[:], rel) || strings.HasPrefix(rel, "refs/") {
		w.New.Add(rel, b)
	}
}

func (g *Guard) writtenIn(gitDir string) *Written {
	w := g.written[gitDir]
	if w == nil {
		w = &Written{Dir: gitDir, Tree: g.treeOf(gitDir), New: gitdir.Tips{}}
		if g.written == nil {
			g.written = map[string]*Written{}
		}
		g.written[gitDir] = w
	}
	return w
}

// commits reports protected names in what the run has committed, stashed and staged.
func (g *Guard) commits() {
	var list []Written
	for _, dir := range slices.Sorted(maps.Keys(g.written)) {
		if _, err := g.readOwn(dir+"/HEAD", vcs.MaxGitFile); beneath.Gone(err) {
			continue // it was quarantined, or never was: to git that is no repository
		}
		w := *g.written[dir]
		rel, in := beneath.Path(g.standing.Root, dir)
		top := g.standing.Root
		if !in {
			top = dir
		}
		var st unix.Stat_t
		if unix.Lstat(top, &st) == unix.EACCES {
			continue // only root could come here, whom this launcher was: the run cannot have closed what lies above
		}
		w.Stood = !in || g.repos[rel]
		if own, shared := g.standing.tips[dir], g.standing.tips[g.files().Common(dir)]; own != nil && shared != nil {
			w.Old = gitdir.Tips{}
			for _, files := range [...]map[string][]byte{own, shared} {
				for rel, b := range files {
					w.Old.Add(rel, b)
				}
			}
		}
		list = append(list, w)
	}
	c := Commits{Files: g.files(), Ask: g.peers[0].AskGit, Protects: g.rules.protects, Has: g.has, Report: g.reportReview}
	c.Look(list)
}

func (g *Guard) reportReview(path, what, why string) {
	f := Finding{Kind: Review, Path: path, What: what, Why: why}
	if g.stash != nil {
		f = g.stash.Note(f, nil, false)
	}
	g.report(f)
}

// treeOf returns where the paths of a repository begin: in what the guard looks after, wherever its working tree is.
func (g *Guard) treeOf(gitDir string) string {
	if tree := g.files().Tree(gitDir); inside(g.standing.Root, tree) {
		return tree
	}
	return g.standing.Root
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
	return vcs.IsBlob(content, id)
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
	w := g.writtenIn(gitDir)
	tree, within, above := w.Tree, "", ""
	return func(s gitdir.Staged) {
		if s.Path == "" { // of a split index, which git puts together
			w.Staged = true
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
		w.Staged = true
		var st unix.Stat_t
		if !s.Written && rule != "" && len(g.unwritten) < maxNamed && g.isPinned(full) && g.stat(full, &st) == nil {
			g.unwritten = append(g.unwritten, Refusal{Path: full, Why: rule})
		}
	}
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
	g.eachRepo(func(rel string) {
		g.repos[rel] = true
		g.standing.Repos = append(g.standing.Repos, rel)
	})
	g.standing.knowTips(func(st *unix.Stat_t) bool { return !g.touched(st) })
	return &History{g}, nil
}

// eachRepo calls yield with each git directory of the tree.
func (g *Guard) eachRepo(yield func(rel string)) {
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.Name == "" {
			yield(s.rel)
		}
	})
}

// Brought returns the protected names that have come since into commits and the index of the repositories there, as
// [Guards.Finish] does of a run.
func (h *History) Brought() (found []Finding) {
	g := h.guard
	g.report = func(f Finding) { found = append(found, f) }
	if err := g.read(); err != nil {
		g.reportReview(g.standing.Root, "cannot be read: "+err.Error(), unread)
	}
	g.eachRepo(func(rel string) {
		dir := g.abs(rel)
		for _, dir := range [...]string{dir, g.files().Common(dir)} {
			_ = EachTip(dir, g.touched, func(rel string, b []byte) { g.wrote(dir, rel, b) })
		}
		var st unix.Stat_t
		if g.stat(dir+"/index", &st) == nil && g.touched(&st) {
			b, _ := g.files().Read(dir + "/index")
			config, _ := g.files().Read(g.files().Common(dir) + "/config")
			format, _ := vcs.HashOf(config)
			gitdir.PlainIndex(b, format, g.stages(dir))
		}
	})
	g.commits()
	return found
}

// Close gives back what it has opened.
func (h *History) Close() { h.guard.Close() }

// maxProgram bounds a file that is compared with what git has.
const maxProgram = 16 << 20
