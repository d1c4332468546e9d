//go:build linux || darwin

// Package postrun is the post-run check of a system on which nothing is mounted over a workspace and
// nobody watches it: a [Record] of what stands is taken before the command starts, and [Record.Check]
// goes through the same directories when it has ended.
//
// It promises that a protected name, and what the table of package gitdir does not keep in a git
// directory, is quarantined if it came into being in between, and that git takes no directory for a
// repository that is new and has configuration or hooks which it would execute. It reads names by
// descriptors and follows no link. Of what stood, only what the table judges by its content is compared:
// the sandbox keeps the rest.
package postrun

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/quarantine"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Rules say what of a tree counts.
type Rules struct {
	Hidden    func(path string) bool                      // no directory to look into: the command could not
	Protected func(path string) (pattern string, is bool) // a tool of the host would execute it
}

// A Record is what stood in some directories.
type Record struct {
	rules Rules
	roots []string
	repos map[string]bool  // git directories
	stood map[string]stamp // protected names, .git files, and all in git directories
}

// A stamp is what a name stood for.
type stamp struct {
	kind    fs.FileMode
	inode   uint64        // of no directory
	changed unix.Timespec // the same: it changes with each name in it
}

// maxStood bounds what is kept in mind.
const maxStood = 1_000_000

// Take records what stands below some directories. A root may be a git directory itself.
func Take(roots []string, rules Rules) (*Record, error) {
	r := &Record{rules: rules, roots: roots, repos: map[string]bool{}, stood: map[string]stamp{}}
	w := walk{Record: r, take: true, meet: func(e *entry) (deeper bool, err error) {
		if len(r.stood) == maxStood {
			return false, fmt.Errorf("more than %d protected names and files of git", maxStood)
		}
		r.stood[e.path] = e.stamp
		return e.kind.IsDir(), nil
	}}
	return r, w.all()
}

// Check goes through the directories again. What is quarantined goes into the session, which stash
// opens when something is to be kept.
func (r *Record) Check(stash func() (*os.Root, error)) (found []quarantine.Finding, err error) {
	c := &check{stash: stash}
	w := walk{Record: r, meet: func(e *entry) (bool, error) {
		was, stood := r.stood[e.path]
		same := stood && was == e.stamp
		if e.git != "" {
			// A link that stood may lead to another place by now.
			return c.inGit(e, stood && was.kind == e.kind && e.kind != fs.ModeSymlink, same)
		}
		if !stood { // what stood the sandbox keeps: it is the user who has changed it
			return false, c.take(e, quarantine.Stashed, e.pattern)
		}
		return e.kind.IsDir(), nil
	}}
	err = w.all()
	return quarantine.Merge(c.found), err
}

// An entry is a name that counts.
type entry struct {
	path    string
	dir     *os.File // that holds it
	name    string
	pattern string // that it matches
	git     string // the git directory in which it lies, "" for none
	linked  bool   // that is a linked worktree's part
	format  vcs.Format
	stamp
}

func (e *entry) rel() string { return strings.TrimPrefix(e.path, e.git+"/") }

type walk struct {
	*Record
	take bool // nothing has run yet
	meet func(*entry) (deeper bool, err error)
	errs []error // of what could not be looked at, or moved: the rest is looked at all the same
}

// failed notes an error.
func (w *walk) failed(err error) {
	if err != nil && len(w.errs) < maxErrors {
		w.errs = append(w.errs, err)
	}
}

const maxErrors = 10

func (w *walk) all() error {
	for _, root := range w.roots {
		dir, err := quarantine.OpenDirectory(root)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = w.directory(dir, root)
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

// isRepository reports whether git takes a directory for one of its own (setup.c, is_git_directory).
func isRepository(name string, list []fs.DirEntry) bool {
	return strings.EqualFold(name, ".git") || has(list, "HEAD") && (has(list, "objects") && has(list, "refs") || has(list, "commondir"))
}

// directory goes through one, and closes it.
func (w *walk) directory(dir *os.File, at string) error {
	defer dir.Close()
	list, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	if w.take && isRepository(path.Base(at), list) {
		w.repos[at] = true
	}
	switch own := strings.EqualFold(path.Base(at), ".git"); {
	case own || w.repos[at]:
		e := entry{git: at, linked: has(list, "commondir"), format: formatOf(dir)}
		return w.repository(&e, dir, list, at)
	case isRepository("", list) && !harmless(dir, list):
		// What else is there may be the user's: without a HEAD git takes it for none.
		i := slices.IndexFunc(list, func(e fs.DirEntry) bool { return strings.EqualFold(e.Name(), "HEAD") })
		head := entry{path: at + "/" + list[i].Name(), dir: dir, name: list[i].Name(), pattern: "git would execute what this repository names"}
		_, err := w.met(&head)
		w.failed(err)
	}
	for _, d := range list {
		e := entry{path: at + "/" + d.Name(), dir: dir, name: d.Name()}
		pattern, is := w.rules.Protected(e.path)
		e.pattern = pattern
		isGit := strings.EqualFold(d.Name(), ".git")
		deeper := d.IsDir()
		if is || isGit && !deeper {
			if e.pattern == "" {
				e.pattern = ".git"
			}
			deeper, err = w.met(&e)
			w.failed(err)
		}
		if deeper && !w.rules.Hidden(e.path) {
			w.failed(w.descend(&e, func(in *os.File) error { return w.directory(in, e.path) }))
		}
	}
	return nil
}

// met stamps an entry, and says what it is for. Of what is gone nothing is said.
func (w *walk) met(e *entry) (deeper bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(e.dir.Fd()), e.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if err == unix.ENOENT {
			return false, nil
		}
		return false, err
	}
	if e.stamp = (stamp{kind: kindOf(uint32(st.Mode))}); !e.kind.IsDir() {
		e.inode, e.changed = uint64(st.Ino), st.Ctim
	}
	return w.meet(e)
}

func kindOf(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	}
	return fs.ModeIrregular
}

// descend opens a directory, after the run also one that is closed to its owner.
func (w *walk) descend(e *entry, into func(*os.File) error) error {
	at := int(e.dir.Fd())
	fd, err := quarantine.OpenIn(at, e.name)
	if err == unix.EACCES && !w.take {
		var st unix.Stat_t
		if unix.Fstatat(at, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && int(st.Uid) == os.Getuid() && kindOf(uint32(st.Mode)).IsDir() {
			_ = unix.Fchmodat(at, e.name, uint32(st.Mode)&0o7777|0o700, 0)
			defer func() { _ = unix.Fchmodat(at, e.name, uint32(st.Mode)&0o7777, 0) }()
			fd, err = quarantine.OpenIn(at, e.name)
		}
	}
	switch err {
	case nil:
		return into(os.NewFile(uintptr(fd), e.path))
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EACCES: // it has gone meanwhile, or is somebody else's
		return nil
	}
	return &fs.PathError{Op: "open", Path: e.path, Err: err}
}

// repository goes through a git directory, and those that lie in it.
func (w *walk) repository(of *entry, dir *os.File, list []fs.DirEntry, at string) error {
	for _, d := range list {
		e := *of
		e.path, e.dir, e.name = at+"/"+d.Name(), dir, d.Name()
		rel := e.rel()
		deeper, err := w.met(&e)
		if w.failed(err); !deeper || inFan(rel) {
			continue
		}
		w.failed(w.descend(&e, func(in *os.File) error {
			defer in.Close()
			list, err := in.ReadDir(-1)
			if err != nil {
				return err
			}
			if nests(rel) && rel != "modules" && rel != "worktrees" && isRepository("", list) {
				own := entry{git: e.path, linked: strings.HasPrefix(rel, "worktrees/"), format: of.format}
				if !own.linked {
					own.format = formatOf(in)
				}
				return w.repository(&own, in, list, e.path)
			}
			return w.repository(of, in, list, e.path)
		}))
	}
	return nil
}

// nests reports whether a name lies where git keeps git directories of submodules and worktrees.
func nests(rel string) bool {
	return rel == "modules" || rel == "worktrees" || strings.HasPrefix(rel, "modules/") || strings.HasPrefix(rel, "worktrees/")
}

// inFan reports whether a directory holds loose objects, which are files by the thousand: what else
// lies there git does not look for.
func inFan(rel string) bool {
	fan, is := strings.CutPrefix(rel, "objects/")
	return is && vcs.IsFan(fan)
}

// formatOf reads by what the objects of a repository are named.
func formatOf(dir *os.File) vcs.Format {
	text, _ := read(dir, "config", vcs.MaxConfig)
	f, _ := vcs.HashOf(text)
	return f
}

// read reads a regular file in a directory, not through a link.
func read(dir *os.File, name string, limit int64) ([]byte, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%d bytes, limit %d", info.Size(), limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// A check collects findings.
type check struct {
	stash func() (*os.Root, error)
	found []quarantine.Finding
}

// inGit judges a name in a git directory by the table. What stood stays, whatever it is.
func (c *check) inGit(e *entry, stood, same bool) (deeper bool, err error) {
	isDir := e.kind.IsDir()
	if same || stood && isDir {
		return isDir, nil
	}
	rel := e.rel()
	if nests(rel) && isDir {
		return true, nil
	}
	rule := gitdir.Judge(rel, e.kind, e.linked)
	switch rule.Verdict {
	case gitdir.Keep, gitdir.List, gitdir.Lock:
		if isDir {
			return true, nil
		}
		if rule.Sound != nil {
			if text, err := read(e.dir, e.name, rule.Limit); err != nil || !rule.Sound(text, e.format) {
				return false, c.take(e, quarantine.Inert, rule.Bad)
			}
		}
		if rule.Verdict != gitdir.Keep {
			return false, c.note(e, rule.Why)
		}
		return false, nil
	case gitdir.Delete:
		if isDir {
			return true, nil
		}
		return false, unix.Unlinkat(int(e.dir.Fd()), e.name, 0)
	case gitdir.Config:
		if stood { // the sandbox lets nobody change it: the user has
			return false, nil
		}
		if rel == "config" && inert(e.dir) {
			return false, nil
		}
		return false, c.take(e, quarantine.Inert, "git would execute what it names")
	case gitdir.Foreign:
		if stood {
			return isDir, nil
		}
	}
	return false, c.take(e, quarantine.Inert, rule.Why)
}

// harmless reports whether a new git directory names nothing that git would execute.
func harmless(dir *os.File, list []fs.DirEntry) bool {
	for _, e := range list {
		switch name := strings.ToLower(e.Name()); {
		case e.Type()&fs.ModeSymlink != 0, name == "commondir", name == "config.worktree", name == "config" && !inert(dir):
			return false
		case name == "hooks":
			fd, err := quarantine.OpenIn(int(dir.Fd()), e.Name())
			if err != nil {
				return false
			}
			hooks := os.NewFile(uintptr(fd), e.Name())
			names, err := hooks.Readdirnames(-1)
			hooks.Close()
			if err != nil || slices.ContainsFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".sample") }) {
				return false
			}
		}
	}
	return true
}

// inert reports whether a new repository's configuration makes git execute nothing, and names no
// other working tree.
func inert(dir *os.File) bool {
	text, err := read(dir, "config", vcs.MaxConfig)
	if err != nil {
		return false
	}
	settings, err := vcs.ParseConfig(text)
	return err == nil && !slices.ContainsFunc(settings, func(s vcs.Setting) bool { return !s.Inert() || s.Places() })
}

// take quarantines an entry.
func (c *check) take(e *entry, kind quarantine.FindingKind, why string) error {
	what := "file"
	switch e.kind {
	case fs.ModeDir:
		what = "directory"
	case fs.ModeSymlink:
		what = "link"
	case fs.ModeIrregular:
		what = "special file"
	}
	session, err := c.stash()
	if err != nil {
		return err
	}
	f, err := quarantine.MoveOut(session, int(e.dir.Fd()), e.name, quarantine.Finding{Kind: kind, Path: e.path, Why: why, What: what, Of: e.git})
	if err != nil {
		return fmt.Errorf("quarantine %s: %w", e.path, err)
	}
	c.found = append(c.found, f)
	return nil
}

// note reports an entry that stays.
func (c *check) note(e *entry, why string) error {
	session, err := c.stash()
	if err != nil {
		return err
	}
	f := quarantine.Finding{Kind: quarantine.Review, Path: e.path, Why: why, What: "new"}
	c.found = append(c.found, f)
	return quarantine.Note(session, f)
}
