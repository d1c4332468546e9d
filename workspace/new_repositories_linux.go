package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitconfig"
	"github.com/pccrun/pccrun/workspace/quarantine"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// An inerter makes the repositories that came into being during a run inert:
// git works in them, and runs nothing that they name.
type inerter struct {
	guard *Guard
	view  *view
	done  map[string]bool // whether they were made inert, or are the user's own
	stood map[string]bool // what git executes by a configuration that stood, and where it could not be changed: see [Standing.Placed]
	parts []Finding       // what was quarantined of git directories, of which one finding is told
	errs  []error

	work    int             // names that may still be looked at in git directories
	passed  map[string]bool // git directories that were
	indexes []func()        // what is asked of indexes when all else is done

	whole map[string]bool // configurations that were quarantined as they were: what they say may be accepted later

	others map[*Guard]*inerter // one for each of the run's, as far as something led there
}

// inerter returns one that looks through the workspace by itself.
func (g *Guard) inerter() *inerter {
	v := newView(g.rules, g.fd, g.dev)
	i := &inerter{guard: g, view: &v, done: map[string]bool{}, stood: map[string]bool{}, whole: map[string]bool{}}
	i.others = map[*Guard]*inerter{g: i}
	return i
}

// close tells what was quarantined, once of each git directory, and gives back what is held open in the trees that
// something led to.
func (i *inerter) close() {
	for _, k := range i.others {
		for _, c := range quarantine.Merge(k.parts) {
			k.guard.told(c)
		}
		k.view.close()
	}
}

// all makes every git directory of the tree inert that did not stand at the
// start, and what .git files and links and commondir files lead to.
func (i *inerter) all() error {
	g := i.guard
	defer i.close()
	indexes := i.gitDirectories()
	var found, stood []suspect
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind != isRepo {
			return
		}
		if g.repos[s.rel] {
			stood = append(stood, s)
		} else {
			found = append(found, s)
		}
	})
	for _, s := range found {
		path := i.view.abs(s.rel)
		if s.hit.name == "" {
			i.dir(path)
			continue
		}
		t, whose, far, err := i.repository(path)
		switch {
		case far: // git would go all the way
			i.aside(path, "it leads to a repository through too many links")
		case err != nil: // git refuses it as well
		case whose == nil:
			i.aside(path, "it leads to a repository outside the workspace")
		case !t.found: // what a later run makes there would have this for its working tree
			i.aside(path, "it leads to no repository")
		case t.end.Kind == Dir:
			whose.dir(t.end.Path)
		}
	}
	led := i.ways(stood)
	i.elsewhereTrees(slices.Concat(found, stood))
	i.workingTrees(slices.Concat(found, led))
	i.reviewed()
	i.worktrees()
	indexes()
	var errs []error
	for _, g := range g.peers {
		if k := i.others[g]; k != nil {
			errs = append(errs, k.errs...)
		}
	}
	return errors.Join(errs...)
}

// repository returns where something named .git leads; far is set where that is by more
// steps than are followed.
func (i *inerter) repository(path string) (t trail, whose *inerter, far bool, err error) {
	t, whose, err = i.follow(filepath.Dir(path), ".git")
	if err != nil || whose == nil || !t.found || t.end.Kind != File {
		return t, whose, errors.Is(err, ErrTooMuch), err
	}
	target, err := vcs.GitFile(whose.guard.readOwn, t.end.Path)
	if err != nil {
		return t, whose, false, err
	}
	t, whose, err = i.follow(filepath.Dir(path), target)
	return t, whose, errors.Is(err, ErrTooMuch), err
}

// ways makes inert to what the .git files, links and commondir files lead that stood: at
// the end of one there may have been nothing, and what the run has made there need not
// look like a repository. What worktrees share is one to git without a HEAD. It returns those of the .git files and
// links that lead to one which did not stand: their working trees are new.
func (i *inerter) ways(stood []suspect) (led []suspect) {
	for _, s := range stood {
		for _, k := range i.others { // the launch has followed all of them
			k.view.steps = 0
		}
		path := i.view.abs(s.rel)
		if s.hit.name == "" {
			i.shared(path)
			continue
		}
		t, whose, far, err := i.repository(path)
		switch {
		case far:
			i.fail(path, err)
		case err != nil:
		case whose == nil:
			i.turned(&t, wayOut)
		case t.found && t.end.Kind == Dir:
			whose.dir(t.end.Path)
			if rel, _ := beneath.Path(whose.view.root, t.end.Path); !whose.guard.repos[rel] {
				led = append(led, s)
			}
		}
	}
	return led
}

const wayOut = "a .git leads through it to a repository outside the workspace"

// turned quarantines the links on a way that were not there when the run began.
func (i *inerter) turned(t *trail, why string) {
	hops := t.hops // in another tree than the way ends in
	for _, n := range t.links {
		hops = append(hops, n.Path)
	}
	for _, path := range hops {
		if i.came(path) {
			i.at(path).aside(path, why)
		}
	}
}

// came reports whether a link was not there: the run has made it, or moved it.
func (i *inerter) came(path string) bool {
	k := i.at(path)
	if k == nil {
		return false
	}
	if text, pinned := k.guard.links[path]; pinned && text == k.guard.linkText(path) {
		return false // it may have come just before the run
	}
	var st unix.Stat_t
	return k.view.stat(path, &st) == nil && k.guard.touched(&st)
}

// elsewhereTrees quarantines what the run has written of where linked worktrees are, if that
// is a directory outside which does not lead back: git worktree repair would make it one,
// by a .git file. Of a worktree that is lost with the run it quarantines all that the repository has.
func (i *inerter) elsewhereTrees(repos []suspect) {
	for _, s := range repos {
		path := i.view.abs(s.rel)
		if s.hit.name != "" || filepath.Base(filepath.Dir(path)) != "worktrees" {
			continue
		}
		var st unix.Stat_t
		if i.view.stat(path+"/gitdir", &st) != nil || i.guard.repos[s.rel] && !i.guard.touched(&st) {
			continue
		}
		b, err := i.guard.readOwn(path+"/gitdir", vcs.MaxGitFile)
		if beneath.Gone(err) {
			continue
		}
		t, whose, e := i.follow(path, vcs.ParsePathFile(b))
		if err == nil && e == nil && whose != nil {
			continue
		}
		if err == nil && e == nil && !t.proc {
			tree := filepath.Dir(t.end.Path)
			if gone := beneath.Gone(unix.Lstat(tree, &st)); gone || i.leadsBack(tree, path) {
				if lost := i.guard.peers[0].TreeLost; gone && lost != nil && !i.guard.repos[s.rel] && lost(tree, path) {
					i.aside(path, "its working tree "+tree+" is not saved")
				}
				continue
			}
		}
		i.aside(path+"/gitdir", "git worktree repair would make a worktree of "+filepath.Dir(t.end.Path))
	}
}

// shared makes inert what a git directory shares with others.
func (i *inerter) shared(path string) {
	g := i.guard
	rel, _ := beneath.Path(g.standing.Root, path)
	b, err := i.guard.readOwn(path+"/commondir", vcs.MaxGitFile)
	switch {
	case err == unix.ENOENT, err == unix.ENOTDIR:
		return
	case err != nil && g.repos[rel]: // it is the user's
		return
	case err != nil: // of any length, git reads it up to the first NUL
		i.aside(path+"/commondir", "its target cannot be read")
		return
	}
	t, whose, err := i.follow(path, vcs.ParsePathFile(b))
	switch {
	case g.repos[rel] && err != nil:
		i.fail(path+"/commondir", err)
	case g.repos[rel] && whose == nil:
		i.turned(&t, wayOut)
	case err != nil || whose == nil:
		i.aside(path+"/commondir", "it leads to a repository outside the workspace")
	case t.found && !whose.dir(t.end.Path):
		i.aside(path+"/commondir", "it makes a repository of "+t.end.Path)
	}
}

// dir makes a git directory of its own tree inert, and the one that it shares
// with others. It is false for a directory of the user's own, which stays as it is.
func (i *inerter) dir(path string) (made bool) {
	g := i.guard
	rel, in := beneath.Path(g.standing.Root, path)
	if !in || g.repos[rel] {
		return true
	}
	if made, done := i.done[rel]; done {
		return made
	}
	i.done[rel] = true
	i.shared(path)
	if filepath.Base(path) != ".git" && !vcs.InsideGit(rel) && i.users(path) {
		// A directory of the user's own that was made to look like a
		// repository: its files are none.
		i.done[rel] = false
		i.aside(path+"/HEAD", "it makes a repository of "+path)
		return false
	}
	i.hooks(path+"/hooks", func(string) bool { return false })
	for _, name := range [...]string{"config", "config.worktree"} {
		i.config(path+"/"+name, func(s *vcs.Setting) bool { return !s.Inert() || i.leaves(path, s) })
	}
	return true
}

// users reports whether a directory has a configuration or hooks that the run
// has not touched. A directory with nothing in it, which git leaves behind where it
// changes branches, is none.
func (i *inerter) users(path string) bool {
	for _, name := range [...]string{"config", "hooks"} {
		n, st, ok := i.view.node(path + "/" + name)
		if !ok || i.guard.touched(&st) {
			continue
		}
		if list, fd, err := i.list(n.Path); n.Kind == Dir && err == nil {
			unix.Close(fd)
			ok = len(list) > 0
		}
		if ok {
			return true
		}
	}
	return false
}

// leaves reports whether a setting makes the repository's working tree of a place that
// nobody looks after, or that a later run could make lead to one: git writes there what
// a commit has. The root of its own tree the command cannot replace, nor the workspace,
// which agents' repositories have for theirs; and what leads back to the repository by
// its .git file is the working tree that git itself has made of it.
func (i *inerter) leaves(gitDir string, s *vcs.Setting) bool {
	if !s.Places() {
		return false
	}
	t, whose, err := i.follow(gitDir, s.Value)
	if err != nil || whose == nil || len(t.links) > 0 {
		return true
	}
	if t.end.Path == whose.view.root {
		return whose != i && whose.guard != i.guard.peers[0] || !whose.view.rules.named()
	}
	return !whose.leadsBack(t.end.Path, gitDir)
}

// leadsBack reports whether the .git file of a working tree names the repository, and
// the tree is none itself, or part of one's own directory.
func (i *inerter) leadsBack(tree, gitDir string) bool {
	if rel, _ := beneath.Path(i.view.root, tree); vcs.InsideGit(rel) {
		return false
	}
	if _, _, head := i.view.node(tree + "/HEAD"); head {
		return false
	}
	target, err := vcs.GitFile(i.view.readFile, tree+"/.git")
	if err != nil {
		return false
	}
	t, _, err := i.follow(tree, target)
	return err == nil && t.found && t.end.Path == gitDir
}

// worktrees quarantines the links that the run has put where a configuration has the
// working tree, one that stood among them: git would write through it.
func (i *inerter) worktrees() {
	i.guard.rules.suspects(i.guard.tree, func(s suspect) {
		if s.kind != isRepo || s.hit.name != "" {
			return
		}
		path := i.view.abs(s.rel)
		b, _ := i.view.readFile(path+"/config", vcs.MaxConfig) // else git does not read it either
		for _, tree := range vcs.WorkTrees(vcs.ParseConfig(b)) {
			t, _, err := i.follow(path, tree)
			i.turned(&t, "git would write through it: it is the working tree of a repository")
			if err != nil {
				i.fail(path+"/config", err)
			}
		}
	})
}

// config takes the settings that drop names out of a configuration: the file is
// quarantined as it was, and what is left of it takes its place.
func (i *inerter) config(path string, drop func(*vcs.Setting) bool) {
	n, st, ok := i.view.node(path)
	if !ok {
		return
	}
	if n.Kind != File {
		i.asideWhole(path, "a configuration that is not a regular file")
		return
	}
	dir, name, err := i.guard.parent(path)
	if err != nil {
		i.fail(path, err)
		return
	}
	defer unix.Close(dir)
	for range exchanges {
		var then, now unix.Stat_t
		_ = beneath.Stat(dir, name, &then)
		b, err := beneath.ReadOwn(dir, name, vcs.MaxConfig)
		if beneath.Gone(err) {
			return
		}
		left, dropped, ok := []byte(nil), []string(nil), false
		if err == nil {
			left, dropped, ok = gitconfig.Strip(b, drop)
		}
		if !ok && beneath.Stat(dir, name, &now) == nil && (now.Ino != then.Ino || now.Ctim != then.Ctim || now.Size != then.Size) {
			continue // a merge was writing it
		}
		if !ok {
			i.asideWhole(path, "a configuration that git cannot read")
			return
		}
		if len(dropped) == 0 {
			return
		}
		slices.Sort(dropped)
		c := Finding{Kind: Inert, Path: path, Why: strings.Join(slices.Compact(dropped), " ")}
		if i.replace(dir, name, c, b, left, &st) {
			return
		}
	}
	// Somebody writes it as fast as we read it.
	i.asideWhole(path, "a configuration that kept changing")
}

// asideWhole quarantines a configuration, of which nobody knows what it says.
func (i *inerter) asideWhole(path, why string) {
	i.whole[path] = true
	i.aside(path, why)
}

// exchanges is how often a configuration is read again that has changed by the
// time that it is to be replaced.
const exchanges = 4

// replace puts what is left of a configuration in its place, so that at no
// moment there is none, and the whole into the stash, with what was left, so that
// it is known again. It is false if another file stood there by then.
func (i *inerter) replace(dir int, name string, c Finding, b, left []byte, st *unix.Stat_t) (done bool) {
	// What a launcher leaves there that is killed now, the next quarantines.
	temp := quarantine.Moving + name + "-" + strconv.Itoa(os.Getpid())
	if err := quarantine.WriteNewFor(ownedAs(st), dir, temp, left, st.Mode&0o777); err != nil {
		// A full disk: git does without the file.
		_ = unix.Unlinkat(dir, temp, 0)
		i.aside(c.Path, c.Why)
		i.fail(c.Path, err)
		return true
	}
	if err := unix.Renameat2(dir, temp, dir, name, unix.RENAME_EXCHANGE); err != nil {
		_ = unix.Unlinkat(dir, temp, 0)
		if err != unix.EINVAL {
			return false
		}
		if _, ok := i.aside(c.Path, c.Why); ok { // a file system that cannot exchange
			i.fail(c.Path, quarantine.WriteNewFor(ownedAs(st), dir, name, left, st.Mode&0o777))
		}
		return true
	}
	if now, err := beneath.ReadOwn(dir, temp, vcs.MaxConfig); err != nil || !bytes.Equal(now, b) {
		if unix.Renameat2(dir, temp, dir, name, unix.RENAME_EXCHANGE) == nil {
			_ = unix.Unlinkat(dir, temp, 0) // a file, whatever somebody puts there: nothing else is removed
		}
		return false
	}
	g := i.guard
	c, err := g.stash.Take(dir, temp, c)
	if err != nil {
		i.fail(c.Path, err)
		return true
	}
	if c.Stash != "" {
		i.fail(c.Path, g.stash.Left(c, left))
	}
	g.told(c)
	return true
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

func (i *inerter) fail(path string, err error) {
	if err != nil && !beneath.Gone(err) {
		i.errs = append(i.errs, fmt.Errorf("quarantine git files in %s: %w", beneath.Shorten(path), err))
	}
}

// aside quarantines what a repository would run.
func (i *inerter) aside(path, why string) (Finding, bool) {
	c, err := i.guard.take(Finding{Kind: Inert, Path: path, Why: why, Of: i.gitDirOf(path)})
	if err != nil {
		i.fail(path, err)
		return c, false
	}
	i.parts = append(i.parts, c)
	return c, true
}

// gitDirOf returns the git directory that was gone through in which a path lies, "" for none. A configuration is a
// finding of its own: of its versions, the settings are put together.
func (i *inerter) gitDirOf(path string) string {
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
func (i *inerter) reviewed() {
	g := i.guard
	for path, had := range g.standing.Keys {
		i.config(path, func(s *vcs.Setting) bool {
			return (!s.Inert() || i.leaves(filepath.Dir(path), s)) && !slices.Contains(had, s.Name()+"="+s.Value)
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
