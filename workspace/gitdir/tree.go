package gitdir

import (
	"io/fs"
	"path/filepath"
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
type Tree struct {
	Root        string
	Before, Now View
	Rules       bool // of a policy protect configuration and hooks of what stood

	bares map[string]bool // thousands of names may lie in one directory
}

const (
	whyPointer   = ".git: it points to another repository"
	whyMakes     = "a repository: git executes what its configuration names"
	whyExecutes  = "git would execute what it names"
	whyElsewhere = "git would write into another working tree"
)

// Judge decides on a name that is new or has changed; one that lies in no git directory stays. target is where a link
// leads.
func (t *Tree) Judge(path string, kind fs.FileMode, target string) (d Decision) {
	dir, rel, worktree, in := t.locate(path)
	switch {
	case !in:
		return d
	case rel == "":
		if _, stood := t.Before.Kind(path); !kind.IsDir() && (stood || !kind.IsRegular() || !t.isRepository(t.pointer(path))) {
			d.Why = whyPointer
		}
		return d
	}
	bare := !vcs.InsideGit(dir)
	standing := begun(t.Before, dir)
	if bare {
		standing = isBare(t.Before, dir)
	}
	e := Judge(rel, kind, worktree)
	first, _, _ := strings.Cut(rel, "/")
	switch {
	case bare && !standing && (first == "HEAD" || first == "objects" || first == "refs" || first == "commondir") && (t.stood(dir+"/config") || t.stood(dir+"/hooks")):
		d.Why = whyMakes // of what was somebody's own
	case e.Verdict == Keep && (kind.IsDir() && t.bare(path) || t.hidden(dir, filepath.Dir(path))):
		d.Why = WhyForeign
	case e.Verdict == Config:
		d.Why, d.New = t.config(path, dir, rel, bare, standing)
	case e.Verdict == Foreign && kind.Type()&fs.ModeSymlink == 0 && rel != "commondir" && t.same(path, kind):
		// Others have that there.
	default:
		d = e.Decide(&Name{Rel: rel, Kind: kind, Bare: bare, Link: func() string { return target }, Read: func(limit int64) ([]byte, vcs.Format, error) {
			b, err := t.Now.Read(path, limit)
			f, known := t.format(dir, worktree, standing)
			if err == nil && !known {
				err = fs.ErrInvalid
			}
			return b, f, err
		}})
		d.New = !standing && d.Why == "" && (e.Verdict == Keep || e.Verdict == List)
		if e.Verdict == Lock { // what is under way is not brought there
			d.Why, d.Note = d.Note, ""
		}
	}
	return d
}

// config decides on configuration, hooks and what leads to them. In repositories that stood the rules of a policy
// protect them; those do not name the parts of a bare one.
func (t *Tree) config(path, dir, rel string, bare, standing bool) (why string, new bool) {
	switch {
	case rel == "gitdir":
		b, err := t.Now.Read(path, vcs.MaxGitFile)
		if git := said(dir, vcs.ParsePathFile(b)); err != nil || filepath.Base(git) != ".git" || t.pointer(git) != dir {
			return "git worktree would write where it leads", false
		}
		return "", true
	case standing && !bare && t.Rules:
		return "", false
	case standing, rel != "config" && rel != "config.worktree":
		return whyExecutes, false
	}
	b, err := t.Now.Read(path, vcs.MaxConfig)
	if err != nil {
		return whyExecutes, false
	}
	if why = Inert(b, func(tree string) bool {
		tree = said(dir, tree)
		_, head := t.Now.Kind(tree + "/HEAD")
		return tree != "" && !vcs.InsideGit(tree) && !head && t.pointer(tree+"/.git") == dir
	}); why != "" {
		return why, false
	}
	return "", true
}

// Gone reports whether a name went with the whole of a linked worktree's part of a repository, in which it lay.
func (t *Tree) Gone(path string) bool {
	dir, _, worktree, _ := t.locate(path)
	_, there := t.Now.Kind(dir)
	return worktree && !there
}

// Inert says why a new repository's configuration is not kept, "" if it is: git executes nothing for it, and looks
// nowhere else. leads reports whether a working tree that it names is the repository's own; nil for no.
func Inert(b []byte, leads func(tree string) bool) (why string) {
	_, dropped, ok := gitconfig.Strip(b, func(s *vcs.Setting) bool { return !s.Inert() })
	if !ok || len(dropped) > 0 {
		return whyExecutes
	}
	for _, tree := range vcs.WorkTrees(vcs.ParseConfig(b)) {
		if leads == nil || !leads(tree) {
			return whyElsewhere
		}
	}
	return ""
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

// locate cuts a path behind the git directory that it lies in; of `.git` itself nothing is left.
func (t *Tree) locate(path string) (dir, rel string, worktree, in bool) {
	if i := strings.Index(path+"/", "/.git/"); i >= 0 {
		dir, rel = path[:i+len("/.git")], strings.TrimPrefix(path[i+len("/.git"):], "/")
	} else {
		for dir = filepath.Dir(path); !t.bare(dir); dir = filepath.Dir(dir) {
			if dir == t.Root || dir == "/" {
				return "", "", false, false
			}
		}
		rel = strings.TrimPrefix(path[len(dir):], "/")
	}
	for i := 0; i < len(rel); i++ {
		if rel[i] != '/' {
			continue
		}
		at := dir + "/" + rel[:i]
		may, tree := Nests(rel[:i])
		if tree && !worktree || may && !tree && begun(t.Now, at) { // of directories without a repository the names are nobody's
			dir, rel, worktree, i = at, rel[i+1:], tree, -1
		}
	}
	return dir, rel, worktree, true
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
	has := func(name string) bool { _, there := v.Kind(dir + "/" + name); return there }
	store := has("objects") && has("refs")
	return has("HEAD") && (store || has("commondir")) || store && (has("config") || has("hooks")) // worktrees share one without a HEAD
}

// begun reports whether a directory where one is looked for has parts of a repository.
func begun(v View, dir string) bool {
	_, head := v.Kind(dir + "/HEAD")
	_, config := v.Kind(dir + "/config")
	return head || config
}

// hidden reports whether a directory within a git directory is a repository or lies in one, among references, logs or
// what git-lfs keeps: its files would have the shapes.
func (t *Tree) hidden(dir, at string) bool {
	for ; len(at) > len(dir); at = filepath.Dir(at) {
		if t.bare(at) {
			return true
		}
	}
	return false
}

// isRepository reports whether a pointer leads to a git directory in the tree.
func (t *Tree) isRepository(dir string) bool {
	if _, in := strings.CutPrefix(dir+"/", strings.TrimSuffix(t.Root, "/")+"/"); dir == "" || !in {
		return false
	}
	has := func(name string) bool { _, there := t.Now.Kind(dir + "/" + name); return there }
	return has("HEAD") && (has("objects") && has("refs") || has("commondir"))
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
	return said(filepath.Dir(path), to)
}

// said returns where a path leads that is said in a directory, "" where `..` follows a name: that may be a link, and
// the kernel goes up from where it leads.
func said(dir, path string) string {
	named := false
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." && named {
			return ""
		}
		named = named || part != "" && part != "." && part != ".."
	}
	return from(dir, path)
}

// format returns by what the objects of a repository are named, and whether that is sure: the configuration of one
// that stood may be held back, and applied afterwards.
func (t *Tree) format(dir string, worktree, standing bool) (f vcs.Format, known bool) {
	if worktree {
		dir = filepath.Dir(filepath.Dir(dir))
		standing = t.stood(dir + "/HEAD")
	}
	read := func(v View) (f vcs.Format, known bool) {
		b, err := v.Read(dir+"/config", vcs.MaxConfig)
		if err != nil {
			kind, there := v.Kind(dir + "/config")
			return vcs.FormatSHA1, !there || kind&fs.ModeSymlink != 0 // as some have it; one of a run's is held back
		}
		return vcs.HashOf(b)
	}
	f, known = read(t.Now)
	if standing || t.stood(dir+"/config") {
		was, sure := read(t.Before)
		return was, known && sure && f == was
	}
	return f, known
}
