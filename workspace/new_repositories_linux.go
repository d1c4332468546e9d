package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitconfig"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/quarantine"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// An gitCheck makes the repositories that came into being during a run inert:
// git works in them, and runs nothing that they name.
//
// All is judged first, as the run has left it, and then moved: what a name is may depend on another.
type gitCheck struct {
	guard  *Guard
	view   *view
	git    gitdir.Tree
	work   int             // names that may still be looked at in git directories
	passed map[string]bool // git directories that were

	foreign []Finding // what is to be quarantined
	notes   []Finding // what stays, and is to be reported
	configs []string  // configurations of repositories that are new

	parts []Finding // what was quarantined of git directories, of which one finding is reported
	errs  []error
}

// gitCheck returns one that looks through the workspace.
func (g *Guard) gitCheck() *gitCheck {
	v := newView(g.rules, g.fd, g.dev)
	i := &gitCheck{guard: g, view: &v}
	i.git = gitdir.Tree{Root: g.standing.Root, Before: standingView{presentView{g}}, Now: presentView{g}, Rules: true, Live: true, Stood: g.stoodGit, Formats: g.standing.Formats}
	for _, other := range g.peers {
		i.git.Others = append(i.git.Others, other.standing.Root)
	}
	if main := g.peers[0]; main.rules.hasNames() {
		i.git.Shared = main.standing.Root // as the repositories have in which agents keep versions
	}
	return i
}

// A presentView is what stands in the trees of a run, and outside, as [gitdir.View].
type presentView struct{ *Guard }

// Kind returns what is at a path.
func (v presentView) Kind(path string) (fs.FileMode, bool) {
	var st unix.Stat_t
	if v.near(path).stat(path, &st) != nil {
		return 0, false
	}
	return KindOf(st.Mode).Type(), true
}

// Read reads a regular file.
func (v presentView) Read(path string, limit int64) ([]byte, error) {
	return v.near(path).readOwn(path, limit)
}

// near returns the guard that looks after a path, or this one.
func (g *Guard) near(path string) *Guard { return cmp.Or(g.peers.near(path), g) }

// A standingView is what stood when the run began, as [gitdir.View]. What it reads is what files hold now: of what stood the
// command can change no configuration.
type standingView struct{ presentView }

// Kind returns what stood at a path. Of what lies in a directory .git the record says it, since a directory of any name
// may have been moved there with all that is in it; elsewhere the times of what is there.
func (v standingView) Kind(path string) (fs.FileMode, bool) {
	g := v.near(path)
	had, known := g.standing.Git[path]
	if known && had.Sum <= unix.S_IFMT {
		return KindOf(uint32(had.Sum)).Type(), true
	}
	dir, name, err := g.parent(path)
	if err != nil {
		return 0, false
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if beneath.Stat(dir, name, &st) != nil {
		return 0, false
	}
	kind, stood := KindOf(st.Mode), known || !vcs.InsideGit(path) && !g.touched(&st)
	if fd, err := beneath.OpenOwnDir(dir, name); err == nil {
		defer unix.Close(fd)
		list, err := beneath.Entries(fd)
		stood = known || stood && (err != nil || len(list) > 0) // git leaves an empty one behind where it changes branches
	}
	return kind.Type(), stood
}

// stoodGit reports whether a git directory stood.
func (g *Guard) stoodGit(dir string) bool {
	g = g.near(dir)
	rel, in := beneath.Path(g.standing.Root, dir)
	if !in {
		return true // the command cannot make one there
	}
	had, known := g.standing.Git[dir]
	var st unix.Stat_t
	return g.repos[rel] || known && g.stat(dir, &st) == nil && st.Ino == had.Ino
}

// close tells what was quarantined, once of each git directory, and gives back what is held open.
func (i *gitCheck) close() {
	for _, c := range quarantine.Merge(i.parts) {
		i.guard.report(c)
	}
	i.view.close()
}

// all makes every git directory of the tree inert that did not stand at the start, and quarantines each .git file or link
// that leads to one as git itself never does.
func (i *gitCheck) all() (notes []Finding, err error) {
	g := i.guard
	defer i.close()
	i.gitDirectories()
	var trees []string
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind != isRepo {
			return
		}
		path, stood, leads := i.view.abs(s.rel), g.repos[s.rel], ""
		if s.hit.Name != "" {
			leads = i.git.Leads(path)
		}
		switch {
		case stood && s.hit.Name == "":
			i.linkedTrees(path)
		case stood && (leads == "" || g.stoodGit(leads)): // else git has made anew what it leads to
		default:
			trees = append(trees, workTreeOf(path))
			if !stood && s.hit.Name != "" && !i.git.LeadsBack(path) {
				i.foreign = append(i.foreign, Finding{Path: path, Why: gitdir.WhyPointer})
			}
		}
	})
	i.workingTrees(trees)
	for _, c := range i.foreign {
		if _, ok := i.quarantine(c.Path, c.Why); ok && filepath.Base(c.Path) == "gitdir" {
			i.restoreGitdir(c.Path)
		}
	}
	for _, path := range i.configs {
		i.config(path, func(s *vcs.Setting) bool { return i.git.Drops(filepath.Dir(path), s) != "" })
	}
	i.reviewed()
	return i.notes, errors.Join(i.errs...)
}

// linkedTrees quarantines links that the run has put where a repository which stood has its working tree: git would
// write through them.
func (i *gitCheck) linkedTrees(gitDir string) {
	b, _ := i.view.readFile(gitDir+"/config", vcs.MaxConfig) // else git does not read it either
	for _, tree := range vcs.WorkTrees(vcs.ParseConfig(b)) {
		i.view.steps = 0 // the launch has followed all of them
		t, err := i.view.follow(gitDir, tree)
		if err != nil {
			i.fail(gitDir+"/config", err)
		}
		for _, n := range t.links {
			t.hops = append(t.hops, n.Path)
		}
		for _, path := range t.hops {
			if g := i.guard.peers.near(path); g != nil && g.linkedSince(path) {
				i.foreign = append(i.foreign, Finding{Path: path, Why: "git would write through it: it is the working tree of a repository"})
			}
		}
	}
}

// linkedSince reports whether a link was not there when the run began.
func (g *Guard) linkedSince(path string) bool {
	if text, pinned := g.links[path]; pinned && text == g.linkText(path) {
		return false // it may have come just before the run
	}
	var st unix.Stat_t
	return g.stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK && g.touched(&st)
}

// config takes the settings that drop names out of a configuration. The whole of it goes into the stash with what is left,
// so that it is known again; what is left is written into the file as it stands, so that at no moment there is none.
func (i *gitCheck) config(path string, drop func(*vcs.Setting) bool) {
	n, st, ok := i.view.node(path)
	if !ok {
		return
	}
	if n.Kind != File {
		i.quarantine(path, "a configuration that is not a regular file")
		return
	}
	dir, name, err := i.guard.parent(path)
	if err != nil {
		i.fail(path, err)
		return
	}
	defer unix.Close(dir)
	_, reviewed := i.guard.standing.Keys[path]
	why := "a configuration that git cannot read"
	for range rereads {
		err = gitconfig.Rewrite(dir, name, func(now []byte) ([]byte, error) {
			left, dropped, ok := gitconfig.Strip(now, drop)
			if !ok {
				return nil, gitconfig.ErrSyntax
			}
			if len(dropped) == 0 {
				return now, nil
			}
			slices.Sort(dropped)
			why = strings.Join(slices.Compact(dropped), " ")
			if st.Nlink > 1 && !reviewed {
				return nil, errShared
			}
			c := i.guard.stash.Pair(Finding{Kind: Inert, Path: path, Why: why, What: n.Kind.String(), Mode: unix.S_IFREG | 0o600}, now, left)
			if c.Stash == "" {
				return nil, errNotKept
			}
			i.guard.report(c)
			return left, nil
		})
		if err != gitconfig.ErrSyntax && err != gitconfig.ErrReplaced { // else another run's merge, or git, may be writing it
			break
		}
	}
	if err == nil {
		return
	}
	i.quarantine(path, why)
	whole := []error{gitconfig.ErrSyntax, gitconfig.ErrReplaced, beneath.ErrTooMuch, errNotKept, errShared}
	if !slices.ContainsFunc(whole, func(reason error) bool { return errors.Is(err, reason) }) {
		i.fail(path, err)
	}
}

// Why a configuration goes as a whole: the stash has no room for its settings; or a new one has another name, whose file
// would be changed too.
var (
	errNotKept = errors.New("the stash is full")
	errShared  = errors.New("the file has another name")
)

// rereads is how often a configuration is read that git could not read.
const rereads = 4

// allowWrites lets the launcher write in a directory of its own user's, as the command could, until the returned function
// is called.
func allowWrites(dir int) (restore func()) {
	var st unix.Stat_t
	if unix.Fstat(dir, &st) != nil || st.Mode&0o300 == 0o300 || beneath.ChmodPath(dir, 0o300) != nil {
		return func() {}
	}
	return func() { _ = unix.Chmod("/proc/self/fd/"+strconv.Itoa(dir), st.Mode&0o7777) }
}

// ownedAs gives a file to whom another one belongs to, as root, by descriptor.
func ownedAs(st *unix.Stat_t) func(fd int) error {
	return func(fd int) error {
		if os.Geteuid() != 0 {
			return nil
		}
		return unix.Fchown(fd, int(st.Uid), int(st.Gid))
	}
}

func (i *gitCheck) fail(path string, err error) {
	if err != nil && !beneath.Gone(err) {
		i.errs = append(i.errs, fmt.Errorf("quarantine git files in %s: %w", beneath.Shorten(path), err))
	}
}

// quarantine quarantines what a repository would run.
func (i *gitCheck) quarantine(path, why string) (Finding, bool) {
	c, err := i.guard.near(path).take(Finding{Kind: Inert, Path: path, Why: why, Of: i.gitDirOf(path)})
	if err != nil {
		i.fail(path, err)
		return c, false
	}
	i.parts = append(i.parts, c)
	return c, true
}

// gitDirOf returns the git directory that was gone through in which a path lies, "" for none. A configuration is a
// finding of its own: of its versions, the settings are put together.
func (i *gitCheck) gitDirOf(path string) string {
	if name := filepath.Base(path); name == "config" || name == "config.worktree" {
		return ""
	}
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if i.passed[dir] {
			return dir
		}
	}
	return ""
}

// reviewed takes back what executes in a configuration that may be changed, or makes
// git write elsewhere, as far as it did not stand there at the start.
func (i *gitCheck) reviewed() {
	g := i.guard
	for path, had := range g.standing.Keys {
		i.config(path, func(s *vcs.Setting) bool {
			return i.git.Drops(filepath.Dir(path), s) != "" && !slices.Contains(had, s.Name()+"="+s.Value)
		})
	}
}

// keys returns the settings of the reviewed configurations that execute
// something, or say where git writes.
func (f *Found) keys(s *scan) map[string][]string {
	var all map[string][]string
	note := func(path, why string) (is bool) {
		own, _ := gitPattern(why)
		if is = own == ".git/config" || own == ".git/config.worktree"; is {
			if all == nil {
				all = map[string][]string{}
			}
			all[path] = []string{}
		}
		return is
	}
	for path, why := range s.awaited {
		note(path, why)
	}
	for _, r := range f.Review {
		if !note(r.Path, r.Why) {
			continue
		}
		list, _ := s.config(r.Path)
		for i := range list {
			if !list[i].Inert() || list[i].Places() {
				all[r.Path] = append(all[r.Path], list[i].Name()+"="+list[i].Value)
			}
		}
	}
	return all
}
