package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// maxStore bounds the names that are looked at in the directories that git keeps
// objects, references and logs in, each as often as it is deep, and maxNested how deep
// names are: git's own are not.
const (
	maxStore  = 8 * maxWeight
	maxNested = 64
)

// gitKeeps are the directories in which git keeps what is its own, also where its
// directory has another name than .git.
var gitKeeps = [...]string{"objects", "refs", "reftable", "logs", "info", "worktrees", "modules", "remotes", "branches", "rr-cache", "rebase-merge", "rebase-apply", "sequencer"}

// leans reports whether a link in a repository's own directory is a reference, or one of
// [vcs.LeansOn] to a repository that somebody looks after.
func (i *inerter) leans(path string, t *trail, whose *inerter) bool {
	text, err := i.scan.readlink(path)
	if err != nil || vcs.Refers(text) {
		return err == nil
	}
	s := i.guard.standing
	lent := slices.ContainsFunc(slices.Concat(s.GitDirs, s.Stores), func(dir string) bool {
		_, in := beneath.Path(dir, t.end.Path)
		return in || filepath.Dir(dir) == filepath.Dir(t.end.Path)
	})
	return (whose != nil || lent) && vcs.LeansOn(path, t.end.Path)
}

// through says why a link that the run has left in a repository's own directory is not
// to stay, "" if it is.
func (i *inerter) through(path string, room *int) string {
	t, whose, far := i.leads(path, room)
	if far {
		return tooFar
	}
	rel, in := beneath.Path(i.scan.root, path)
	own := ""
	if in && !vcs.InsideGit(rel) {
		own = vcs.MetaOf(rel)
	}
	if own == "" {
		if i.leans(path, &t, whose) {
			return ""
		}
		return vcs.ThroughGit
	}
	end, in := beneath.Path(i.scan.abs(own), t.end.Path)
	if whose != i || !in || end == "" {
		return vcs.ThroughVCS
	}
	for k := range i.scan.protect {
		if r := &i.scan.protect[k]; !r.Review && r.Matches(i.scan.root, t.end.Path) {
			return vcs.ThroughVCS
		}
	}
	return ""
}

// stores looks through what the tree does not hold of the repositories in it, and of
// those outside that the command writes in: nothing is known by its name in there, but
// git writes through links, and a repository that lies there is one to whoever names it.
func (i *inerter) stores(room *int) {
	g := i.guard
	work := maxStore
	if g.rules.kept {
		i.fans(g.tree, room, &work)
	}
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind != isRepo || s.hit.name != "" {
			return
		}
		path := i.scan.abs(s.rel)
		for _, k := range s.dir.kids {
			if name := k.name(); name == "remotes" || name == "branches" {
				if all := g.standing.another(k); all || k.ctime == 0 || latest(k.ctime) >= g.begun() {
					i.newIn(i.scan.abs(k.rel), "", all, vcs.OldRemote)
				}
			}
		}
		if !vcs.InsideGit(s.rel) || vcs.InsideModules(s.rel) {
			return // what follows is in the tree
		}
		i.objects(path+"/objects", room, &work)
		i.under(path+"/refs", inTree, room, &work)
		i.under(path+"/logs", inTree, room, &work)
	})
	for _, dir := range g.standing.GitDirs {
		i.gitDir(dir, room, &work)
	}
	for _, dir := range g.standing.Stores {
		if filepath.Base(dir) == "objects" {
			i.objects(dir, room, &work)
		} else {
			i.names(dir, room, &work)
		}
	}
}

// fans looks at the directories of objects that are not in the tree of what programs
// keep, in whatever repository.
func (i *inerter) fans(d *dir, room, work *int) {
	if d.gone || d.shut {
		return
	}
	if d.store() && !vcs.InsideGit(d.rel) {
		path := i.scan.abs(d.rel)
		i.each(path, func(fd int, e os.DirEntry) { i.fan(fd, path, e, room, work) })
	}
	for _, k := range d.kids {
		i.fans(k, room, work)
	}
}

// fan looks at one, if it may hold what is new, or another directory. It is false for
// what is none.
func (i *inerter) fan(dir int, path string, e os.DirEntry, room, work *int) bool {
	if !e.IsDir() || !vcs.IsFan(e.Name()) {
		return false
	}
	var st unix.Stat_t
	if *work--; beneath.Stat(dir, e.Name(), &st) == nil && (st.Nlink > 2 || i.guard.touched(&st)) {
		i.own(path+"/"+e.Name(), nil, room, work)
	}
	return true
}

// gitDir looks through a repository's directory that is in no tree.
func (i *inerter) gitDir(path string, room, work *int) {
	i.each(path, func(fd int, e os.DirEntry) {
		at := path + "/" + e.Name()
		switch {
		case e.Type()&os.ModeSymlink != 0:
			i.link(fd, at, room)
		case !e.IsDir():
		case e.Name() == "objects":
			i.objects(at, room, work)
		case e.Name() == "hooks", e.Name() == "modules": // read-only, or set aside
		case e.Name() == "sl":
			i.newIn(at, "config", false, vcs.SaplingConfig)
			i.names(at, room, work)
		case e.Name() == "worktrees":
			i.each(at, func(_ int, t os.DirEntry) {
				if t.IsDir() {
					i.under(at+"/"+t.Name(), gits, room, work)
				}
			})
		default:
			i.names(at, room, work)
		}
	})
}

// newIn sets aside the files of a directory whose names begin so: all, or as far as the
// run has made or changed them.
func (i *inerter) newIn(path, prefix string, all bool, why string) {
	i.each(path, func(fd int, e os.DirEntry) {
		if !e.IsDir() && strings.HasPrefix(e.Name(), prefix) && (all || i.changed(fd, e.Name())) {
			i.aside(path+"/"+e.Name(), why)
		}
	})
}

// objects looks at the directory in which git keeps objects: what else is in there git
// has not made.
func (i *inerter) objects(path string, room, work *int) {
	var l listing
	defer i.hides(path, &l)
	i.each(path, func(fd int, e os.DirEntry) {
		at := path + "/" + e.Name()
		l.note([]byte(e.Name()))
		switch {
		case e.Type()&os.ModeSymlink != 0:
			i.link(fd, at, room)
		case !e.IsDir():
		case i.fan(fd, path, e, room, work):
		case e.Name() == "pack":
			i.own(at, []string{"multi-pack-index.d"}, room, work)
		case e.Name() == "info":
			i.own(at, []string{"commit-graphs"}, room, work)
		case e.Name() == "bundles": // of clone --bundle-uri
			i.own(at, nil, room, work)
		case isQuarantine(e.Name()): // of whoever pushes at this moment, or another run's
			i.names(at, room, work)
		case i.changed(fd, e.Name()):
			i.aside(at, vcs.NotGits)
		default:
			i.names(at, room, work)
		}
	})
}

// isQuarantine reports whether a directory among objects is one in which git keeps what
// it is about to take over (tmp_objdir_create of its tmp-objdir.c, by another name before
// 2.35). It goes by itself; until then it is looked through as references are.
func isQuarantine(name string) bool {
	return strings.HasPrefix(name, "tmp_objdir-") || strings.HasPrefix(name, "incoming-")
}

// hides sets aside the HEAD of a directory of git's that is made one for a worktree as well.
func (i *inerter) hides(path string, l *listing) {
	if l.git() {
		i.aside(path+"/HEAD", vcs.HidesGit)
	}
}

// own looks at a directory in which git keeps files, and the directories that are named.
func (i *inerter) own(path string, dirs []string, room, work *int) {
	var l listing
	defer i.hides(path, &l)
	i.each(path, func(fd int, e os.DirEntry) {
		*work--
		at := path + "/" + e.Name()
		l.note([]byte(e.Name()))
		switch {
		case e.Type()&os.ModeSymlink != 0:
			i.link(fd, at, room)
		case !e.IsDir():
		case slices.Contains(dirs, e.Name()):
			i.own(at, nil, room, work)
		case i.changed(fd, e.Name()):
			i.aside(at, vcs.NotGits)
		default:
			i.names(at, room, work)
		}
	})
}

// names looks through a directory whose names others choose: of references and their
// logs.
func (i *inerter) names(top string, room, work *int) { i.under(top, apart, room, work) }

// What a directory is that is looked through.
type storeKind uint8

const (
	apart  storeKind = iota // nothing can be moved there from a tree
	inTree                  // from the tree around it links can, with the directory that they are in: all count
	gits                    // a repository's own
)

// under looks through a directory of some kind.
func (i *inerter) under(top string, kind storeKind, room, work *int) {
	for todo := []string{top}; len(todo) > 0; {
		path := todo[0] // what git itself writes is not deep, and comes first
		todo = todo[1:]
		depth := strings.Count(path[len(top):], "/") + 1
		if depth > maxNested {
			i.aside(path, vcs.TooDeep)
			continue
		}
		list, fd, err := i.list(path)
		if err != nil {
			i.fail(path, err)
			continue
		}
		var l listing
		runs := false
		if *work -= (len(list) + 1) * depth; *work < 0 {
			unix.Close(fd)
			i.errs = append(i.errs, fmt.Errorf("look through %s: %w", shorten(path), ErrTooMuch))
			return
		}
		for _, e := range list {
			l.note([]byte(e.Name()))
			runs = runs || slices.Contains(gitNames[:], e.Name())
			switch {
			case e.Type()&os.ModeSymlink != 0 && kind == inTree:
				i.judge(path+"/"+e.Name(), room)
			case e.Type()&os.ModeSymlink != 0:
				i.link(fd, path+"/"+e.Name(), room)
			case e.IsDir():
				todo = append(todo, path+"/"+e.Name())
			}
		}
		if l.git() && runs && (path != top || kind != gits) {
			i.aside(path+"/HEAD", vcs.HidesGit)
		}
		unix.Close(fd)
	}
}

// each calls look for all that is in a directory, and with that itself.
func (i *inerter) each(path string, look func(fd int, e os.DirEntry)) {
	list, fd, err := i.list(path)
	if err != nil {
		i.fail(path, err)
		return
	}
	defer unix.Close(fd)
	for _, e := range list {
		look(fd, e)
	}
}

// list lists a directory, and leaves it open.
func (i *inerter) list(path string) ([]os.DirEntry, int, error) {
	at, name, err := i.guard.parent(path)
	if err != nil {
		return nil, -1, err
	}
	defer unix.Close(at)
	fd, err := i.guard.openDir(at, name)
	if err == unix.EACCES && unlock(at, name) == unix.EPERM {
		err = unix.ENOENT // another's, and closed to the command as well
	}
	if err != nil {
		return nil, -1, err
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&0o500 != 0o500 {
		_ = unix.Fchmod(fd, st.Mode&0o7777|0o700) // what is in it could not be looked at
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		unix.Close(fd)
		return nil, -1, err
	}
	f := os.NewFile(uintptr(dup), path)
	defer f.Close()
	list, err := f.ReadDir(-1)
	if errors.Is(err, unix.ENOENT) {
		err = unix.ENOENT // the host, or another run, has removed it while it was read
	}
	if err != nil {
		unix.Close(fd)
		return nil, -1, err
	}
	slices.SortFunc(list, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, fd, nil
}

// openDir is openDirOf for a directory of a repository. One that nobody can enter, since before
// the run, stays as it is, and is none: so is what lies in it.
func (g *Guard) openDir(dir int, name string) (int, error) {
	var st unix.Stat_t
	if err := beneath.Stat(dir, name, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o111 == 0 && !g.touched(&st) {
		return -1, unix.ENOENT
	}
	return openDirOf(dir, name)
}

// changed reports whether the run may have made or changed what stands in a directory.
func (i *inerter) changed(dir int, name string) bool {
	var st unix.Stat_t
	return beneath.Stat(dir, name, &st) == nil && i.guard.touched(&st)
}

// link sets a link aside that is new, and that git would write through.
func (i *inerter) link(dir int, path string, room *int) {
	if i.changed(dir, filepath.Base(path)) {
		i.judge(path, room)
	}
}

// judge sets a link aside that git would write through.
func (i *inerter) judge(path string, room *int) {
	if why := i.through(path, room); why != "" {
		i.aside(path, why)
	}
}
