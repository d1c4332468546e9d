package gitdir

import (
	"cmp"
	"io/fs"
	slashpath "path" // those of an archive too, on Windows too
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace/gitconfig"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A View is files as somebody sees them. Paths are absolute and clean; no link on the way is followed.
type View interface {
	Kind(path string) (kind fs.FileMode, there bool) // the type bits of what is there, of a link itself
	Read(path string, limit int64) ([]byte, error)   // of a regular file
}

// A Tree is a directory as a run has left it, or an archive would, beside what stood in it before. It finds the git
// directories in there by their paths, and asks the table about each name that is new or has changed.
//
// A repository that is new is laid out in one of the four ways of git: a directory .git, a bare repository, a linked
// worktree or a submodule, the last two by a file .git. Where such a file leads its text alone says, and what it leads
// to leads back. Any other way is not followed: the .git that leads there, or the commondir, is not kept.
type Tree struct {
	Root        string
	Others      []string // directories in which a working tree or a repository of Root's may lie as well
	Before, Now View
	Rules       bool // of a policy protect configuration and hooks of what stood
	Live        bool // somebody may be at work there now: a lock stays
	Fold        bool // the disk takes HOOKS for hooks

	Stood   func(gitDir string) bool // whether one stood; nil for what Before says
	Formats map[string]vcs.Format    // of git directories that stood, where that was noted
	Shared  string                   // a working tree that each new repository may have; "" for none

	bares map[string]bool // thousands of names may lie in one directory
}

// A Place is where a name lies in a git directory.
type Place struct {
	Dir, Rel string
	Worktree bool // the directory is a linked worktree's part of a repository
	Standing bool // it stood
}

// Why a name is not kept, beside the reasons of the table.
const (
	WhyPointer   = "it leads to a repository of which it is no worktree or submodule"
	WhyMakes     = "a repository: git executes what its configuration names"
	whyExecutes  = "git would execute what it names"
	whyUnread    = "git cannot read it"
	whyElsewhere = "git would write into another working tree"
	whyWorktree  = "git worktree would write where it leads"
)

// Judge decides on a name that is new or has changed; one that lies in no git directory stays. target is where a link
// leads.
func (t *Tree) Judge(path string, kind fs.FileMode, target string) (d Decision) {
	p, in := t.Locate(path)
	switch {
	case !in:
		return d
	case p.Rel == "":
		if _, stood := t.Before.Kind(path); !kind.IsDir() && (stood || !kind.IsRegular() || !t.LeadsBack(path)) {
			d.Why = WhyPointer
		}
		return d
	}
	return t.JudgeIn(p, kind, target)
}

// JudgeIn is [Tree.Judge] for a name that lies in a git directory.
func (t *Tree) JudgeIn(p Place, kind fs.FileMode, target string) (d Decision) {
	path, bare := p.Dir+"/"+p.Rel, !vcs.InsideGit(p.Dir)
	e := Judge(p.Rel, kind, p.Worktree)
	first, _, _ := strings.Cut(p.Rel, "/")
	switch {
	case (first == "HEAD" || first == "objects" || first == "refs" || first == "commondir") && !p.Standing && t.Owned(p.Dir):
		d.Why = WhyMakes
	case e.Verdict == Keep && (kind.IsDir() && t.bare(path) || t.hidden(p.Dir, slashpath.Dir(path))):
		d.Why = WhyForeign
	case e.Verdict == Config:
		d.Why, d.New = t.config(path, p, bare)
	case e.Verdict == Foreign && kind.Type()&fs.ModeSymlink == 0 && p.Rel != "commondir" && t.same(path, kind):
		// Others have that there.
	default:
		d = e.Decide(&Name{Rel: p.Rel, Kind: kind, Bare: bare && !(t.Fold && p.Standing), Fold: t.Fold, Link: func() string { return target }, Read: func(limit int64) ([]byte, vcs.Format, error) {
			b, err := t.Now.Read(path, limit)
			if err != nil || !IsIndex(p.Rel) {
				return b, 0, err
			}
			f, known := t.Format(p)
			if !known {
				err = fs.ErrInvalid
			}
			return b, f, err
		}})
		d.New = !p.Standing && d.Why == "" && (e.Verdict == Keep || e.Verdict == List)
		if e.Verdict == Lock && !t.Live { // what is under way is not brought there
			d.Why, d.Note = d.Note, ""
		}
	}
	return d
}

// config decides on configuration, hooks and what leads to them. In repositories that stood the rules of a policy
// protect them; those do not name the parts of a bare one.
func (t *Tree) config(path string, p Place, bare bool) (why string, new bool) {
	switch {
	case p.Rel == "gitdir":
		b, err := t.Now.Read(path, vcs.MaxGitFile)
		if git := ByText(p.Dir, vcs.ParsePathFile(b)); err != nil || slashpath.Base(git) != ".git" || t.pointer(git) != p.Dir {
			return whyWorktree, false
		}
		return "", true
	case p.Standing && !bare && t.Rules:
		return "", false
	case p.Standing, p.Rel != "config" && p.Rel != "config.worktree":
		return whyExecutes, false
	}
	b, err := t.Now.Read(path, vcs.MaxConfig)
	if err != nil {
		return whyExecutes, false
	}
	why = t.drops(p.Dir, b)
	return why, why == ""
}

// drops says why a new repository's configuration is not kept as it is, "" if it is.
func (t *Tree) drops(gitDir string, config []byte) (why string) {
	_, _, ok := gitconfig.Strip(config, func(s *vcs.Setting) bool {
		w := t.Drops(gitDir, s)
		why = cmp.Or(why, w)
		return w != ""
	})
	if !ok {
		return whyUnread
	}
	return why
}

// Drops says why a setting of a new repository's configuration is not kept, "" for one that is: git executes nothing
// for it, and writes into no working tree but the repository's own.
func (t *Tree) Drops(gitDir string, s *vcs.Setting) (why string) {
	switch {
	case !s.Inert():
		return whyExecutes
	case !s.Places():
		return ""
	}
	tree := ByText(gitDir, s.Value)
	if _, head := t.Now.Kind(tree + "/HEAD"); tree == "" || tree != t.Shared && (vcs.InsideGit(tree) || head || t.pointer(tree+"/.git") != gitDir || !t.LeadsBack(tree+"/.git")) {
		return whyElsewhere
	}
	return ""
}

// Owned reports whether what makes a repository of a directory has come to a configuration or hooks that stood there:
// they are somebody's own, and without a HEAD nothing is a repository.
func (t *Tree) Owned(dir string) bool {
	return !vcs.InsideGit(dir) && !t.standing(dir) && (t.stood(dir+"/config") || t.stood(dir+"/hooks"))
}

// Gone reports whether a name went with the whole of a linked worktree's part of a repository, in which it lay.
func (t *Tree) Gone(path string) bool {
	p, _ := t.Locate(path)
	_, there := t.Now.Kind(p.Dir)
	return p.Worktree && !there
}

func (t *Tree) stood(path string) bool {
	_, stood := t.Before.Kind(path)
	return stood
}

// same reports whether something of that kind stood at a path.
func (t *Tree) same(path string, kind fs.FileMode) bool {
	was, stood := t.Before.Kind(path)
	return stood && was.Type() == kind.Type()
}

// Locate finds the git directory that a path lies in; of `.git` itself no name in it is left.
func (t *Tree) Locate(path string) (p Place, in bool) {
	if i := strings.Index(path+"/", "/.git/"); i >= 0 {
		p.Dir, p.Rel = path[:i+len("/.git")], strings.TrimPrefix(path[i+len("/.git"):], "/")
	} else {
		for p.Dir = slashpath.Dir(path); !t.bare(p.Dir); p.Dir = slashpath.Dir(p.Dir) {
			if p.Dir == t.Root || p.Dir == "/" {
				return Place{}, false
			}
		}
		if outer := slashpath.Dir(p.Dir); slashpath.Base(outer) == "worktrees" && t.isRepository(slashpath.Dir(outer)) {
			p.Dir = slashpath.Dir(outer)
		}
		p.Rel = strings.TrimPrefix(path[len(p.Dir):], "/")
	}
	for i := 0; i < len(p.Rel); i++ {
		if p.Rel[i] != '/' {
			continue
		}
		at := p.Dir + "/" + p.Rel[:i]
		may, tree := Nests(p.Rel[:i])
		if tree && !p.Worktree || may && !tree && IsBegun(names(t.Now, at)) { // of directories without a repository the names are nobody's
			p, i = Place{Dir: at, Rel: p.Rel[i+1:], Worktree: tree}, -1
		}
	}
	p.Standing = t.standing(p.Dir)
	return p, true
}

// standing reports whether a git directory stood.
func (t *Tree) standing(dir string) bool {
	switch {
	case t.Stood != nil:
		return t.Stood(dir)
	case vcs.InsideGit(dir):
		return IsBegun(names(t.Before, dir))
	}
	return isBare(t.Before, dir)
}

// bare reports whether a directory is a repository to git, whatever it is called.
func (t *Tree) bare(dir string) bool {
	is, asked := t.bares[dir]
	if !asked {
		if t.bares == nil {
			t.bares = map[string]bool{}
		}
		is = isBare(t.Now, dir)
		t.bares[dir] = is
	}
	return is
}

func isBare(v View, dir string) bool {
	has := names(v, dir)
	return IsRepository(has) || has("objects") && has("refs") && (has("config") || has("hooks")) // worktrees share one without a HEAD
}

// names returns what says whether a directory has a name.
func names(v View, dir string) (has func(name string) bool) {
	return func(name string) bool { _, there := v.Kind(dir + "/" + name); return there }
}

// IsRepository reports whether git takes a directory with such names for a repository, or for a linked worktree's part of
// one (is_git_directory in setup.c).
func IsRepository(has func(name string) bool) bool {
	return has("HEAD") && (has("objects") && has("refs") || has("commondir"))
}

// IsBegun reports whether a directory with such names, where a repository is looked for, has parts of one.
func IsBegun(has func(name string) bool) bool { return has("HEAD") || has("config") }

// hidden reports whether a directory within a git directory is a repository or lies in one, among references, logs or
// what git-lfs keeps: its files would have the shapes.
func (t *Tree) hidden(dir, at string) bool {
	for ; len(at) > len(dir); at = slashpath.Dir(at) {
		if t.bare(at) {
			return true
		}
	}
	return false
}

func (t *Tree) isRepository(dir string) bool { return IsRepository(names(t.Now, dir)) }

// LeadsBack reports whether a .git file is that of a linked worktree or of a submodule in the tree, and what it leads to
// says the same; or git refuses it, as the empty one in each of uv's caches.
func (t *Tree) LeadsBack(path string) bool {
	if b, err := t.Now.Read(path, vcs.MaxGitFile); err == nil {
		if _, err := vcs.ParseGitFile(b); err != nil {
			return true
		}
	}
	dir := t.Leads(path)
	if dir == "" {
		return false
	}
	if outer := slashpath.Dir(dir); slashpath.Base(outer) == "worktrees" {
		b, err := t.Now.Read(dir+"/gitdir", vcs.MaxGitFile)
		return err == nil && t.isRepository(slashpath.Dir(outer)) && ByText(dir, vcs.ParsePathFile(b)) == path
	}
	b, err := t.Now.Read(dir+"/config", vcs.MaxConfig)
	for _, tree := range vcs.WorkTrees(vcs.ParseConfig(b)) {
		if ByText(dir, tree) != slashpath.Dir(path) {
			return false
		}
	}
	for i := range dir { // a submodule's name may have slashes in it
		if err == nil && strings.HasPrefix(dir[i:], "/modules/") && t.isRepository(dir[:i]) {
			return true
		}
	}
	return false
}

// Leads returns the repository in the tree to which a .git file leads by its text, "" where there is none.
func (t *Tree) Leads(path string) (gitDir string) {
	dir := t.pointer(path)
	in := func(root string) bool { return strings.HasPrefix(dir, strings.TrimSuffix(root, "/")+"/") }
	if dir == "" || !in(t.Root) && !slices.ContainsFunc(t.Others, in) || !t.isRepository(dir) {
		return ""
	}
	return dir
}

// pointer returns where a .git file leads, "" where there is none.
func (t *Tree) pointer(path string) string {
	if kind, there := t.Now.Kind(path); !there || !kind.IsRegular() {
		return ""
	}
	to, err := vcs.GitFile(t.Now.Read, path)
	if err != nil {
		return ""
	}
	return ByText(slashpath.Dir(path), to)
}

// ByText returns where a path leads that begins in a directory, by its text alone; "" where `..` follows a name: that may
// be a link, and the kernel goes up from where it leads.
func ByText(dir, path string) string {
	named := false
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." && named {
			return ""
		}
		named = named || part != "" && part != "." && part != ".."
	}
	return from(dir, path)
}

// Format returns by what the objects of a repository are named, and whether that is sure: a configuration that is not
// kept may be accepted afterwards.
func (t *Tree) Format(p Place) (f vcs.Format, known bool) {
	if f, known = t.Formats[p.Dir]; known {
		return f, true
	}
	dir, standing := p.Dir, p.Standing
	if p.Worktree {
		dir = slashpath.Dir(slashpath.Dir(dir))
		standing = t.standing(dir)
	}
	standing = standing || t.stood(dir+"/config")
	read := func(v View) (f vcs.Format, known bool) {
		b, err := v.Read(dir+"/config", vcs.MaxConfig)
		if err != nil {
			kind, there := v.Kind(dir + "/config")
			return vcs.FormatSHA1, !there || standing && kind&fs.ModeSymlink != 0 // as some have it; a new one is not kept
		}
		f, known = vcs.HashOf(b)
		if !standing && known { // what of it stays says nothing of another hash, if any
			why := t.drops(dir, b)
			known = why != whyUnread && (why == "" || f == vcs.FormatSHA1)
		}
		return f, known
	}
	f, known = read(t.Now)
	if standing {
		was, sure := read(t.Before)
		return was, known && sure && f == was
	}
	return f, known
}
