package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/quarantine"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// What stands in a git directory when a run begins is noted: its directories, and what the table of package
// gitdir does not keep. When the run is over, each git directory is gone through once. What stood stays;
// beside that stays what the table keeps.

// maxStore bounds the names that are looked at in all git directories of a run.
const (
	maxStore  = 32 << 20
	maxStood  = 1 << 16 // names at the launch: of what lies beyond, ctimes tell
	maxSummed = 4096    // in one directory that git acts on
)

// noteGit notes what stands in a git directory, or in a part of one.
func (r *Standing) noteGit(dir, rel string, room *int) {
	path := filepath.Join(dir, rel)
	if _, done := r.Git[path]; done {
		return // with the repository that it is in
	}
	at, name, err := beneath.ParentOf(path)
	if err != nil {
		return
	}
	defer unix.Close(at)
	fd, err := beneath.Open(at, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return // a file
	}
	defer unix.Close(fd)
	r.noteGitIn(fd, dir, rel, ofWorktree(dir), room)
}

// ofWorktree reports whether a git directory is a linked worktree's part of one.
func ofWorktree(gitDir string) bool { return filepath.Base(filepath.Dir(gitDir)) == "worktrees" }

func (r *Standing) noteGitIn(fd int, dir, rel string, worktree bool, room *int) {
	list, err := readDir(fd)
	path := filepath.Join(dir, rel)
	var st unix.Stat_t
	if *room -= len(list) + 1; err != nil || *room < 0 || unix.Fstat(fd, &st) != nil {
		return
	}
	r.Git[path] = GitEntry{st.Ino, unix.S_IFDIR}
	for _, entry := range list {
		name, kind := join(rel, entry.Name()), entry.Type()
		e := gitdir.Judge(name, kind, worktree)
		switch {
		case e.Verdict == gitdir.Config && name != "gitdir", e.Verdict == gitdir.Keep && !kind.IsDir(), gitdir.IsFan(name):
		case e.Verdict == gitdir.Keep, e.Verdict == gitdir.Nest:
			at, err := beneath.Open(fd, filepath.Base(name), unix.O_RDONLY|unix.O_DIRECTORY)
			if err != nil {
				if e.Verdict == gitdir.Nest && beneath.Stat(fd, filepath.Base(name), &st) == nil { // it is closed
					r.Git[dir+"/"+name] = GitEntry{st.Ino, unix.S_IFDIR}
				}
				continue
			}
			if may, tree := gitdir.Nests(name); may && (tree || isBegun(at)) {
				r.noteGitIn(at, dir+"/"+name, "", tree, room)
			} else {
				r.noteGitIn(at, dir, name, worktree, room)
			}
			unix.Close(at)
		case beneath.Stat(fd, filepath.Base(name), &st) == nil:
			r.Git[dir+"/"+name] = GitEntry{st.Ino, gitSum(fd, filepath.Base(name), e.Verdict)}
		}
	}
}

func isBegun(fd int) bool {
	var st unix.Stat_t
	return gitdir.IsBegun(func(name string) bool { return beneath.Stat(fd, name, &st) == nil })
}

// readDir lists a directory that stays open.
func readDir(fd int) ([]os.DirEntry, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(dup), ".")
	defer f.Close()
	return f.ReadDir(-1)
}

// gitSum is another number when what git acts on, or a link, has changed. Of what git does not read the kind alone
// counts: a new file may have the inode of one that is gone.
func gitSum(dir int, name string, v gitdir.Verdict) uint64 {
	var top unix.Stat_t
	if beneath.Stat(dir, name, &top) != nil {
		return 0
	}
	if kind := top.Mode & unix.S_IFMT; kind != unix.S_IFLNK && (v == gitdir.Foreign || v == gitdir.Lock) {
		return uint64(kind)
	}
	h, room := fnv.New64a(), maxSummed
	var sum func(dir int, name, rel string)
	sum = func(dir int, name, rel string) {
		var st unix.Stat_t
		if room--; room < 0 || beneath.Stat(dir, name, &st) != nil {
			return
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			fmt.Fprintf(h, "%s %d %d\n", rel, st.Ino, st.Ctim.Nano())
			return
		}
		fmt.Fprintf(h, "%s/ %d %o\n", rel, st.Ino, st.Mode)
		fd, err := beneath.Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return // it is closed, and stays so
		}
		defer unix.Close(fd)
		names, _ := beneath.Entries(fd)
		slices.Sort(names)
		for _, name := range names {
			sum(fd, name, rel+"/"+name)
		}
	}
	sum(dir, name, "")
	return h.Sum64() | 1
}

// A gitDirCheck goes through one git directory after a run.
type gitDirCheck struct {
	*gitCheck
	gitdir.Place // without a name
}

// gitDirectories goes through all that the command could write in.
func (i *gitCheck) gitDirectories() {
	g := i.guard
	i.work, i.passed = maxStore, map[string]bool{}
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.Name == "" {
			i.gitDirectory(i.view.abs(s.rel), !g.repos[s.rel])
		}
	})
	if g.rules.kept {
		i.strayStores(g.tree)
	}
	for _, dir := range g.standing.GitDirs {
		i.gitDirectory(dir, false)
	}
	for _, dir := range g.standing.Stores {
		i.store(dir)
	}
}

// gitDirectory goes through one, of which all is new, or what did not stand.
func (i *gitCheck) gitDirectory(path string, all bool) {
	if !i.passed[path] {
		i.passed[path] = true
		if all && i.git.Owned(path) { // what else is there is no repository's
			i.foreign = append(i.foreign, Finding{Path: path + "/HEAD", Why: gitdir.WhyMakes})
			return
		}
		in, _ := i.git.Locate(path + "/HEAD")
		worktree := ofWorktree(path) && (!all || in.Dir == path && in.Worktree)
		p := &gitDirCheck{i, gitdir.Place{Dir: path, Worktree: worktree, Standing: !all}}
		p.walk("", all)
	}
}

// store goes through a directory of objects or references that stood.
func (i *gitCheck) store(path string) {
	p := &gitDirCheck{i, gitdir.Place{Dir: filepath.Dir(path), Standing: true}}
	p.walk(filepath.Base(path), false)
}

// strayStores goes through directories of objects in what programs keep for themselves that belong to no
// repository: the walk does not look below their parts.
func (i *gitCheck) strayStores(d *dir) {
	if d.gone || d.shut {
		return
	}
	if path := i.view.abs(d.Rel); d.store() && !i.passed[filepath.Dir(path)] {
		i.store(path)
	}
	for _, k := range d.Kids {
		i.strayStores(k)
	}
}

// room counts the names that were looked at, and says once that they are too many.
func (i *gitCheck) room(path string) bool {
	if i.work--; i.work == -1 {
		i.errs = append(i.errs, fmt.Errorf("look through %s: %w", beneath.Shorten(path), ErrTooMuch))
	}
	return i.work >= 0
}

// walk goes through a directory in it. One that is new is judged when it has been opened: in one that is closed nobody
// finds a repository.
func (p *gitDirCheck) walk(rel string, all bool) {
	path := filepath.Join(p.Dir, rel)
	list, fd, err := p.list(path)
	if err != nil {
		p.fail(path, err)
		return
	}
	defer unix.Close(fd)
	if all && rel != "" && p.judge(rel, fs.ModeDir).Why != "" {
		return
	}
	for _, e := range list {
		p.entry(fd, join(rel, e.Name()), e.Type(), all)
	}
}

// entry looks whether a name is new or has changed, and has it judged.
func (p *gitDirCheck) entry(fd int, rel string, kind fs.FileMode, all bool) {
	path, name := p.Dir+"/"+rel, filepath.Base(rel)
	e := gitdir.Judge(rel, kind, p.Worktree)
	if !p.room(path) || strings.HasPrefix(name, quarantine.Prefix) && e.Verdict != gitdir.Nest { // what could not be moved away, or is being exchanged
		return
	}
	if e.Verdict == gitdir.Config && p.Standing && rel != "gitdir" || e.Verdict == gitdir.Keep && e.Sound == nil && !kind.IsDir() {
		return
	}
	var st unix.Stat_t
	if beneath.Stat(fd, name, &st) != nil {
		return
	}
	had, known := p.guard.standing.Git[path]
	kept := e.Verdict == gitdir.Keep || e.Verdict == gitdir.Config || p.guard.standing.Git == nil // nil: nobody has noted what stood
	switch {
	case kind.IsDir() && e.Verdict == gitdir.Nest:
		all = p.isNew(path, rel, &st, all)
		if own, err := p.nested(fd, rel); err != nil {
			p.fail(path, err)
		} else if own {
			p.gitDirectory(path, all)
		} else {
			p.walk(rel, all)
		}
	case kind.IsDir() && e.Verdict == gitdir.Keep:
		if all = p.isNew(path, rel, &st, all); all || !gitdir.IsFan(rel) {
			p.walk(rel, all)
		}
	case !all && kept && !p.guard.touched(&st):
	case !all && known && had == (GitEntry{st.Ino, gitSum(fd, name, e.Verdict)}): // what is kept is never noted
	case e.Verdict == gitdir.Keep && gitdir.IsIndex(rel):
		p.index(fd, rel, e)
	case rel == "config" || rel == "config.worktree":
		p.configs = append(p.configs, path)
	case p.Worktree && rel == "gitdir" && p.absent(path):
	default:
		if !p.judge(rel, kind).Drop {
			break
		}
		if err := beneath.RemoveTree(fd, name); err != nil && !beneath.Gone(err) {
			p.foreign = append(p.foreign, Finding{Path: path, Why: gitdir.WhyForeign})
		}
	}
}

// judge does with a name what the table says.
func (p *gitDirCheck) judge(rel string, kind fs.FileMode) gitdir.Decision {
	place, path, target := p.Place, p.Dir+"/"+rel, ""
	if place.Rel = rel; kind&fs.ModeSymlink != 0 {
		target = p.guard.linkText(path)
	}
	d := p.git.JudgeIn(place, kind, target)
	if d.Content != nil {
		p.guard.wrote(p.Dir, rel, d.Content)
	}
	switch {
	case d.Note != "":
		p.notes = append(p.notes, Finding{Kind: Review, Path: path, Why: d.Note, What: d.What})
	case d.Why != "":
		p.foreign = append(p.foreign, Finding{Path: path, Why: d.Why})
	}
	return d
}

// isNew reports whether a directory is not the one that stood: all that is in it has come with it, as old as
// that may be.
func (p *gitDirCheck) isNew(path, rel string, st *unix.Stat_t, all bool) bool {
	if all || gitdir.IsFan(rel) {
		return all || p.guard.touched(st)
	}
	had, known := p.guard.standing.Git[path]
	if !known {
		return p.guard.standing.Git != nil || p.guard.touched(st)
	}
	return had.Ino != st.Ino
}

// nested reports whether a directory in it is a git directory of its own.
func (p *gitDirCheck) nested(fd int, rel string) (bool, error) {
	may, worktree := gitdir.Nests(rel)
	if !may || worktree {
		return worktree, nil
	}
	dir, err := beneath.OpenOwnDir(fd, filepath.Base(rel)) // also one that is closed
	if err != nil {
		return false, err
	}
	defer unix.Close(dir)
	return isBegun(dir), nil
}

// absent reports whether the working tree of a linked worktree is nowhere on the host. Of one that is lost with the run
// all that the repository has is quarantined.
func (p *gitDirCheck) absent(path string) bool {
	b, err := p.guard.readOwn(path, vcs.MaxGitFile)
	file := gitdir.ByText(p.Dir, vcs.ParsePathFile(b))
	if err != nil || filepath.Base(file) != ".git" {
		return false
	}
	var st unix.Stat_t
	tree := filepath.Dir(file)
	if err := p.guard.near(tree).stat(tree, &st); err != unix.ENOENT && err != unix.ENOTDIR {
		return false
	}
	if lost := p.guard.peers[0].TreeLost; lost != nil && !p.Standing && lost(tree, p.Dir) {
		p.foreign = append(p.foreign, Finding{Path: p.Dir, Why: "its working tree " + tree + " is not saved"})
	}
	return true
}

// index looks at an index that the run has left.
func (p *gitDirCheck) index(dir int, rel string, e *gitdir.Entry) {
	b, err := beneath.ReadOwn(dir, rel, e.Limit)
	if beneath.Gone(err) {
		return
	}
	f, known := p.git.Format(p.Place)
	plain, shorter, sound := gitdir.PlainIndex(b, f, p.guard.stages(p.Dir))
	switch {
	case err != nil, !known, !sound:
		p.foreign = append(p.foreign, Finding{Path: p.Dir + "/" + rel, Why: e.Bad})
	case shorter && rel == "index":
		p.fail(p.Dir+"/"+rel, p.replaceIndex(dir, b, plain))
	}
}

// replaceIndex puts an index without what git computes in the place of one that the run has written, under
// git's own lock; where somebody holds that, the index stays as it is. Its time stays: by that git knows which files
// may have been changed in the moment in which it was written.
func (p *gitDirCheck) replaceIndex(dir int, b, plain []byte) error {
	const name, lock = "index", "index.lock"
	var st unix.Stat_t
	if err := beneath.Stat(dir, name, &st); err != nil {
		return err
	}
	defer allowWrites(dir)()
	err := quarantine.WriteNewFor(ownedAs(&st), dir, lock, plain, st.Mode&0o777)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.EROFS) { // or nobody can write there, the command neither
		return nil
	}
	if err == nil {
		err = unix.UtimesNanoAt(dir, lock, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
	}
	now, e := beneath.ReadOwn(dir, name, int64(len(b)))
	if err == nil && e == nil && bytes.Equal(now, b) {
		err = unix.Renameat(dir, lock, dir, name)
		if err == nil {
			return nil
		}
	}
	_ = unix.Unlinkat(dir, lock, 0)
	return err
}

// readOwn reads a file of a repository, in the tree or outside.
func (g *Guard) readOwn(path string, limit int64) ([]byte, error) {
	dir, name, err := g.parent(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return beneath.ReadOwn(dir, name, limit)
}

// list lists a directory, and leaves it open.
func (i *gitCheck) list(path string) ([]os.DirEntry, int, error) {
	at, name, err := i.guard.parent(path)
	if err != nil {
		return nil, -1, err
	}
	defer unix.Close(at)
	fd, err := i.guard.openDir(at, name)
	if err == unix.EACCES && beneath.Unlock(at, name) == unix.EPERM {
		err = unix.ENOENT // another's, and closed to the command as well
	}
	if err != nil {
		return nil, -1, err
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&0o500 != 0o500 {
		_ = unix.Fchmod(fd, st.Mode&0o7777|0o700) // what is in it could not be looked at
	}
	list, err := readDir(fd)
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

// openDir is [beneath.OpenOwnDir] for a directory of a repository. One that nobody can enter, since before
// the run, stays as it is, and is none: so is what lies in it.
func (g *Guard) openDir(dir int, name string) (int, error) {
	var st unix.Stat_t
	if err := beneath.Stat(dir, name, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o111 == 0 && !g.touched(&st) {
		return -1, unix.ENOENT
	}
	return beneath.OpenOwnDir(dir, name)
}
