//go:build linux || darwin

// Package postrun is the post-run check of a system on which nothing is mounted over a workspace and
// nobody watches it: a [Record] of what stands is taken before the command starts, and [Record.Check]
// goes through the same directories when it has ended. A record can be written down with package gob:
// another process checks what a run left whose launcher was killed.
//
// It promises that a protected name, and what the table of package gitdir does not keep in a git
// directory, is quarantined if it came into being in between, and that git takes no directory for a
// repository that is new and has configuration or hooks which it would execute; that files for review
// which changed are found, and protected names in new commits and in the index. It reads names by
// descriptors and follows no link. Of what stood, only what the table judges by its content is compared:
// the sandbox keeps the rest.
package postrun

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/quarantine"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Rules say what of a tree counts.
type Rules struct {
	Hidden    func(path string) bool                              // no directory to look into: the command could not
	Protected func(path string) (pattern string, review, is bool) // a tool of the host would execute it
	Tails     []string                                            // of patterns, behind a slash: a link could be what stands before one
	AskGit    workspace.AskGit
}

// A Record is what stood in some directories.
type Record struct {
	Roots    []string
	Repos    map[string]repository // git directories
	Stood    map[string]stamp      // protected names, .git files, and all in git directories
	Reviewed map[string]string     // files for review, by which pattern
	Texts    map[string][]byte     // what they held, as far as there is room

	rules Rules
	room  int64 // for more of those
}

// A stamp is what a name stood for.
type stamp struct {
	Kind    fs.FileMode
	Inode   uint64        // of no directory
	Changed unix.Timespec // the same: it changes with each name in it
}

// maxStood bounds what is kept in mind, and maxTexts of that what files for review held.
const (
	maxStood = 1_000_000
	maxTexts = 8 << 20
)

// Take records what stands below some directories. A root may be a git directory itself.
func Take(roots []string, rules Rules) (*Record, error) {
	r := &Record{
		Roots: roots, Repos: map[string]repository{}, Stood: map[string]stamp{}, Reviewed: map[string]string{}, Texts: map[string][]byte{}, rules: rules, room: maxTexts,
	}
	w := walk{Record: r, meet: func(e *entry) (deeper bool, err error) {
		if len(r.Stood) == maxStood {
			return false, fmt.Errorf("more than %d protected names and files of git", maxStood)
		}
		r.Stood[e.path] = e.stamp
		if e.review && !e.Kind.IsDir() {
			r.Reviewed[e.path] = e.pattern
			if text, err := beneath.ReadIn(e.dir, e.name, min(r.room, vcs.MaxOriginal)); err == nil {
				r.Texts[e.path] = text
				r.room -= int64(len(text))
			}
		}
		return e.Kind.IsDir(), nil
	}}
	return r, w.all()
}

// Under gives a record its rules that another process has taken.
func (r *Record) Under(rules Rules) *Record {
	r.rules = rules
	return r
}

// Check goes through the directories again. What is quarantined goes into the session, which stash
// opens when something is to be kept.
func (r *Record) Check(stash func() (*os.Root, error)) (found []quarantine.Finding, err error) {
	c := &check{Record: r, stash: &quarantine.Stash{Open: stash}, seen: map[string]bool{}}
	c.git = &gitdir.Tree{Root: "/", Before: before{Record: r}, Now: now{}, Live: true, Fold: true, Stood: func(dir string) bool {
		_, stood := r.Repos[dir]
		return stood
	}}
	defer c.stash.Settle()
	w := walk{Record: r, git: c.git, meet: func(e *entry) (bool, error) {
		was, stood := r.Stood[e.path]
		same := stood && was == e.stamp
		if e.review {
			c.reviewed(e, stood, same)
			return e.Kind.IsDir(), nil
		}
		if e.git != "" {
			// A link that stood may lead to another place by now.
			return c.inGit(e, stood && was.Kind == e.Kind && e.Kind != fs.ModeSymlink, same)
		}
		if !stood { // what stood the sandbox keeps: it is the user who has changed it
			return false, c.take(e, quarantine.Stashed, e.pattern)
		}
		return e.Kind.IsDir(), nil
	}}
	err = w.all()
	c.removed()
	c.commits(w.visited)
	return quarantine.Merge(c.found), err
}

// An entry is a name that counts.
type entry struct {
	path    string
	dir     int // that holds it
	name    string
	pattern string // that it matches
	review  bool   // it may change
	git     string // the git directory in which it lies, "" for none
	linked  bool   // that is a linked worktree's part
	stamp
}

func (e *entry) rel() string { return strings.TrimPrefix(e.path, e.git+"/") }

type walk struct {
	*Record
	git     *gitdir.Tree // nil: nothing has run yet
	meet    func(*entry) (deeper bool, err error)
	visited []string // git directories
	errs    []error  // of what could not be looked at, or moved: the rest is looked at all the same
}

// failed notes an error.
func (w *walk) failed(err error) {
	if err != nil && len(w.errs) < maxErrors {
		w.errs = append(w.errs, err)
	}
}

const maxErrors = 10

func (w *walk) all() error {
	for _, root := range w.Roots {
		dir, err := beneath.OpenDirectory(root)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = w.list(dir, func(dir int, list []fs.DirEntry) error { return w.directory(dir, list, root, "") })
		}
		w.failed(err)
	}
	return errors.Join(w.errs...)
}

// has reports whether one of some names is there, in the case of any letter: a disk of a Mac's
// does not tell them apart.
func has(list []fs.DirEntry, name string) bool {
	return slices.ContainsFunc(list, func(e fs.DirEntry) bool { return strings.EqualFold(e.Name(), name) })
}

// isRepository reports whether git takes a directory for one of its own.
func isRepository(name string, list []fs.DirEntry) bool {
	return strings.EqualFold(name, ".git") || gitdir.IsRepository(func(name string) bool { return has(list, name) })
}

// directory goes through one. For review is what lies in a directory that is.
func (w *walk) directory(dir int, list []fs.DirEntry, at, reviewed string) error {
	if w.git == nil && isRepository(path.Base(at), list) {
		w.Repos[at] = repository{}
	}
	_, stood := w.Repos[at]
	switch {
	case stood || strings.EqualFold(path.Base(at), ".git"):
		e := entry{git: at, linked: has(list, "commondir")}
		return w.repository(&e, dir, list, at)
	case isRepository("", list) && w.harmless(dir, at, list):
		w.visited = append(w.visited, at)
	case isRepository("", list):
		// What else is there may be the user's: without a HEAD git takes it for none.
		i := slices.IndexFunc(list, func(e fs.DirEntry) bool { return strings.EqualFold(e.Name(), "HEAD") })
		head := entry{path: at + "/" + list[i].Name(), dir: dir, name: list[i].Name(), pattern: "git would execute what this repository names"}
		_, err := w.met(&head)
		w.failed(err)
	}
	for _, d := range list {
		e := entry{path: at + "/" + d.Name(), dir: dir, name: d.Name()}
		pattern, review, is := w.rules.Protected(e.path)
		if !is && d.Type()&fs.ModeSymlink != 0 {
			pattern, review, is = w.leads(e.path)
		}
		if !is && reviewed != "" {
			pattern, review, is = reviewed, true, true
		}
		e.pattern, e.review = pattern, review
		isGit := strings.EqualFold(d.Name(), ".git")
		deeper := d.IsDir()
		if is || isGit && !deeper {
			if !is || review && isGit {
				e.pattern, e.review = ".git", false
			}
			var err error
			deeper, err = w.met(&e)
			w.failed(err)
		}
		if deeper && !w.rules.Hidden(e.path) {
			under := ""
			if e.review {
				under = e.pattern
			}
			w.failed(w.descend(&e, func(in int, list []fs.DirEntry) error { return w.directory(in, list, e.path, under) }))
		}
	}
	return nil
}

// met stamps an entry, and says what it is for. Of what is gone nothing is said.
func (w *walk) met(e *entry) (deeper bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(e.dir, e.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if err == unix.ENOENT {
			return false, nil
		}
		return false, err
	}
	e.stamp = stampOf(&st)
	return w.meet(e)
}

func stampOf(st *unix.Stat_t) stamp {
	s := stamp{Kind: beneath.KindOf(uint32(st.Mode)).Type()}
	if !s.Kind.IsDir() {
		s.Inode, s.Changed = uint64(st.Ino), st.Ctim
	}
	return s
}

// leads returns the pattern of a protected name to which a link would be the way.
func (w *walk) leads(path string) (pattern string, review, is bool) {
	for _, tail := range w.rules.Tails {
		if pattern, review, is := w.rules.Protected(path + "/" + tail); is && !review {
			return pattern, false, true
		}
	}
	return "", false, false
}

// descend lists a directory, after the run also one that is closed to its owner.
func (w *walk) descend(e *entry, each func(dir int, list []fs.DirEntry) error) error {
	fd, err := beneath.Open(e.dir, e.name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.EACCES && w.git != nil {
		fd, err = beneath.OpenOwnDir(e.dir, e.name)
	}
	switch {
	case err == nil:
		return w.list(os.NewFile(uintptr(fd), e.path), each)
	case beneath.Gone(err) || err == unix.EACCES: // it has gone meanwhile, or is somebody else's
		return nil
	}
	return &fs.PathError{Op: "open", Path: e.path, Err: err}
}

// list lists a directory, and closes it when each has gone through it.
func (w *walk) list(dir *os.File, each func(dir int, list []fs.DirEntry) error) error {
	defer dir.Close()
	list, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	return each(int(dir.Fd()), list)
}

// repository goes through a git directory, and those that lie in it.
func (w *walk) repository(of *entry, dir int, list []fs.DirEntry, at string) error {
	if at == of.git {
		w.visited = append(w.visited, at)
		if w.git == nil {
			tips, err := tipsOf(at)
			w.Repos[at] = repository{tips, err == nil} // what is not known the check reports
		}
	}
	for _, d := range list {
		e := *of
		e.path, e.dir, e.name = at+"/"+d.Name(), dir, d.Name()
		rel := e.rel()
		deeper, err := w.met(&e)
		if w.failed(err); !deeper || gitdir.IsFan(rel) {
			continue
		}
		w.failed(w.descend(&e, func(in int, list []fs.DirEntry) error {
			if may, linked := gitdir.Nests(rel); may && isRepository("", list) {
				return w.repository(&entry{git: e.path, linked: linked}, in, list, e.path)
			}
			return w.repository(of, in, list, e.path)
		}))
	}
	return nil
}

// A before is what stood, as [gitdir.View]. What it reads is what files hold now: the sandbox lets nobody change a
// configuration that stood.
type before struct {
	now
	*Record
}

// Kind returns what stood at a path.
func (v before) Kind(path string) (fs.FileMode, bool) {
	was, stood := v.Stood[path]
	return was.Kind, stood
}

// A now is what stands, as [gitdir.View].
type now struct{}

// Kind returns what is at a path.
func (now) Kind(at string) (fs.FileMode, bool) {
	dir, name, err := beneath.ParentOf(at)
	if err != nil {
		return 0, false
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return beneath.KindOf(uint32(st.Mode)).Type(), err == nil
}

// Read reads a regular file.
func (now) Read(at string, limit int64) ([]byte, error) { return beneath.ReadPath(at, limit) }

// A check collects findings.
type check struct {
	*Record
	git   *gitdir.Tree
	stash *quarantine.Stash
	found []quarantine.Finding
	seen  map[string]bool // files for review
}

// inGit judges a name in a git directory that is new or has changed. What stood stays, whatever it is.
func (c *check) inGit(e *entry, stood, same bool) (deeper bool, err error) {
	isDir, rel := e.Kind.IsDir(), e.rel()
	if same || stood && (isDir || gitdir.Judge(rel, e.Kind, e.linked).Verdict == gitdir.Config) { // what stood the sandbox lets nobody change: the user has
		return isDir, nil
	}
	d := c.git.JudgeIn(gitdir.Place{Dir: e.git, Rel: rel, Worktree: e.linked, Standing: c.git.Stood(e.git)}, e.Kind, files.Link(e.path))
	switch {
	case d.Why == "" && rel == "gitdir": // the .git file of a new worktree does not stay
		d.Why = gitdir.WhyPointer
		fallthrough
	case d.Why != "":
		return false, c.take(e, quarantine.Inert, d.Why)
	case d.Note != "":
		c.note(quarantine.Finding{Path: e.path, Why: d.Note, What: d.What}, nil, false)
	case d.Drop && !isDir:
		return false, unix.Unlinkat(e.dir, e.name, 0)
	}
	return isDir, nil
}

// harmless reports whether a git directory that is new under any name has nothing that git would execute. A name there
// may be the user's: as long as none is one of git's, it counts for nothing.
func (w *walk) harmless(dir int, at string, list []fs.DirEntry) bool {
	sound := func(rel string, kind fs.FileMode) bool {
		return w.git.JudgeIn(gitdir.Place{Dir: at, Rel: rel}, kind, "").Why == ""
	}
	for _, e := range list {
		if !sound(e.Name(), e.Type()) {
			return false
		}
		if e.Name() != "hooks" {
			continue
		}
		fd, err := beneath.Open(dir, e.Name(), unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return false
		}
		names, err := beneath.Entries(fd)
		unix.Close(fd)
		if err != nil || slices.ContainsFunc(names, func(name string) bool { return !sound("hooks/"+name, 0) }) {
			return false
		}
	}
	return true
}

// take quarantines an entry.
func (c *check) take(e *entry, kind quarantine.FindingKind, why string) error {
	f, err := c.stash.Take(e.dir, e.name, quarantine.Finding{Kind: kind, Path: e.path, Why: why, Of: e.git})
	if err != nil {
		return fmt.Errorf("quarantine %s: %w", e.path, err)
	}
	c.found = append(c.found, f)
	return nil
}

// note reports something that stays, with what it held before if that is known.
func (c *check) note(f quarantine.Finding, before []byte, known bool) {
	f.Kind = quarantine.Review
	c.found = append(c.found, c.stash.Note(f, before, known))
}

// reviewed reports a file for review that came into being or holds something else.
func (c *check) reviewed(e *entry, stood, same bool) {
	if c.seen[e.path] = true; same || e.Kind.IsDir() {
		return
	}
	before, known := c.Texts[e.path]
	if now, err := beneath.ReadIn(e.dir, e.name, vcs.MaxOriginal); known && err == nil && bytes.Equal(now, before) {
		return
	}
	what := "new"
	if stood {
		what = "changed"
	}
	c.note(quarantine.Finding{Path: e.path, Why: e.pattern, What: what}, before, known)
}

// removed reports the files for review that are gone.
func (c *check) removed() {
	for _, file := range slices.Sorted(maps.Keys(c.Reviewed)) {
		if _, e := os.Lstat(file); !c.seen[file] && errors.Is(e, fs.ErrNotExist) {
			before, known := c.Texts[file]
			c.note(quarantine.Finding{Path: file, Why: c.Reviewed[file], What: "removed"}, before, known)
		}
	}
}
