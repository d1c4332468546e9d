package filesync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/changes"
)

// Limits bound what goes up, and what comes down.
type Limits struct {
	Bytes int64 // of the content of all files together
	Files int   // names of any kind
}

// DefaultLimits are those of the guide that this follows.
var DefaultLimits = Limits{Bytes: 500 << 20, Files: 100_000}

func (l Limits) orDefault() Limits {
	if l.Bytes == 0 {
		l.Bytes = DefaultLimits.Bytes
	}
	if l.Files == 0 {
		l.Files = DefaultLimits.Files
	}
	return l
}

// Up says how a tree goes up.
type Up struct {
	Limits   Limits
	Git      RunGit                       // reads ignore files and lists what is tracked; without it a tree that has an ignore file is refused
	Excludes string                       // the text of the user's own ignore file (core.excludesFile)
	Kept     string                       // patterns of what the user keeps on this machine, as lines of an ignore file: no file of the tree has a say over them
	KeptBy   string                       // the file that says so, for messages
	Allow    []string                     // fingerprints of secrets that may go
	Hides    func(rel string) string      // why the policy shows a path to no command, "" if it does; nil for nothing
	Since    *Since                       // only what a copy that stands has not; nil for all
	Progress func(files int, bytes int64) // as they go, from one goroutine; nil for nobody
}

// A Tree is what of a directory would go up, before its content has been looked at.
type Tree struct {
	Manifest Manifest
	Bytes    int64
	Gone     []string // what has to go from the copy that stands, before the archive comes
	root     *os.Root
	up       Up
	send     map[string]bool // nil: all
}

// Open lists a directory. It opens no file but ignore files.
func Open(ctx context.Context, dir string, up Up) (_ *Tree, err error) {
	up.Limits = up.Limits.orDefault()
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	t := &Tree{root: root, up: up, Manifest: Manifest{Version: manifestVersion, Ignore: map[string]map[string]string{}}}
	defer func() {
		if err != nil {
			root.Close()
		}
	}()
	info, err := root.Lstat(".")
	if err != nil {
		return nil, err
	}
	t.Manifest.Items = append(t.Manifest.Items, Item{".", *changes.EntryOf(info)})
	if err := t.list(ctx, findRepository(dir)); err != nil {
		return nil, err
	}
	if up.Since != nil {
		t.send, t.Gone, err = t.since(ctx, up.Since)
	}
	return t, err
}

// Close closes the directory.
func (t *Tree) Close() error { return t.root.Close() }

// list fills in the manifest.
func (t *Tree) list(ctx context.Context, r *repository) error {
	l := &lister{Tree: t, ctx: ctx, repository: r, sizes: map[string]int64{}, keys: map[string]string{}}
	defer func() {
		for _, g := range l.ignorers {
			g.close()
		}
	}()
	if err := l.startRules(); err != nil {
		return err
	}
	if err := l.dir(t.root, ""); err != nil {
		return err
	}
	t.dropLinks()
	slices.SortFunc(t.Manifest.Left, func(a, b Left) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// A lister goes through the directories of a tree.
type lister struct {
	*Tree
	ctx        context.Context
	repository *repository // nil: the tree lies in none
	ignorers   [2]*ignorer // git's own files, which have no say over what it tracks, and all others
	sets       map[string]*ruleSet
	sizes      map[string]int64  // by name in the top directory
	keys       map[string]string // paths by [FoldKey]
}

// startRules adds the ignore rules that hold before any file of the tree is read, those of lower precedence first.
func (l *lister) startRules() error {
	git, others := newIgnorer(l.ctx, l.up.Git), newIgnorer(l.ctx, l.up.Git)
	l.ignorers = [2]*ignorer{git, others}
	under, r := "", l.repository
	if r != nil {
		under = r.under
	}
	l.sets = map[string]*ruleSet{gitIgnore: git.set(under), e2bIgnore: others.set(""), pccrunIgnore: others.set(""), l.up.KeptBy: others.set("")}
	if l.up.Kept != "" {
		l.Manifest.Ignore[l.up.KeptBy] = map[string]string{"": l.up.Kept}
		if err := others.add(l.sets[l.up.KeptBy], "", l.up.KeptBy, l.up.Kept); err != nil {
			return err
		}
	}
	if r == nil {
		return git.add(l.sets[gitIgnore], "", "the user's ignore file", l.up.Excludes)
	}
	err := git.add(l.sets[gitIgnore], "", "the user's ignore file", l.up.Excludes)
	if err == nil {
		err = git.add(l.sets[gitIgnore], "", ".git/info/exclude", r.exclude())
	}
	for dir := ""; err == nil && dir != under; {
		text, e := readSmall(filepath.Join(r.top, dir, gitIgnore), maxIgnoreFile)
		if e == nil {
			err = git.add(l.sets[gitIgnore], dir, path.Join(dir, gitIgnore), string(text))
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(under[len(dir):], "/"), "/")
		dir = join(dir, name)
		if err == nil && git.work != "" { // the tree was named itself: no rule for a directory around it holds
			err = git.reinclude(l.sets[gitIgnore], dir)
		}
	}
	return err
}

func (l *lister) leave(left Left) { l.Manifest.Left = append(l.Manifest.Left, left) }

// dir lists a directory and all in it.
func (l *lister) dir(root *os.Root, dir string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if IsIgnoreFile(name) {
			if err := l.readIgnore(root, dir, name); err != nil {
				return err
			}
		}
	}
	entries, err := l.entries(root, dir, names)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := l.take(root, e); err != nil {
			return fmt.Errorf("pack %s: %w", e.path, reason(err))
		}
	}
	return nil
}

// reason leaves out of an error what was said already.
func reason(err error) error {
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &at):
		return at.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

func (l *lister) readIgnore(root *os.Root, dir, name string) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() { // git follows no link there either
		return nil
	}
	var text []byte
	if err == nil {
		text, err = readIn(root, name, maxIgnoreFile)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path.Join(dir, name), reason(err))
	}
	if l.Manifest.Ignore[name] == nil {
		l.Manifest.Ignore[name] = map[string]string{}
	}
	l.Manifest.Ignore[name][dir] = string(text)
	g, s := l.ignorers[1], l.sets[name]
	if name == gitIgnore {
		g = l.ignorers[0]
	}
	return g.add(s, path.Join(s.under, dir), path.Join(s.under, dir, name), string(text))
}

func readIn(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAtMost(f, limit)
}

// A dirEntry is a name in a directory that may go up.
type dirEntry struct {
	path string
	info fs.FileInfo
}

func (e dirEntry) left(why string, notable bool) Left {
	l := Left{Path: e.path, Why: why, Dir: e.info.IsDir(), notable: notable}
	if e.info.Mode().IsRegular() {
		l.Size = e.info.Size()
	}
	return l
}

// entries returns what of a directory goes up. What stays goes into the manifest.
func (l *lister) entries(root *os.Root, dir string, names []string) (list []dirEntry, err error) {
	var paths []string
	for _, name := range names {
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went while we looked
		}
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", path.Join(dir, name), reason(err))
		}
		e := dirEntry{path.Join(dir, name), info}
		if why, notable := l.excluded(e, name); why != "" {
			l.leave(e.left(why, notable))
			continue
		}
		list, paths = append(list, e), append(paths, asked(e.path, info.IsDir()))
	}
	byGit, err := l.ignorers[0].excluded(paths)
	if err != nil {
		return nil, err
	}
	byOthers, err := l.ignorers[1].excluded(paths)
	if err != nil {
		return nil, err
	}
	kept := list[:0]
	for i, e := range list {
		switch {
		case byOthers[i] != "":
			l.leave(e.left(byOthers[i], false))
		case byGit[i] != "" && !l.tracked(e):
			l.leave(e.left(byGit[i], false))
		default:
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// excluded says why a name never goes up, whatever ignore files say, and whether that is to be told: it would be missed.
func (l *lister) excluded(e dirEntry, name string) (why string, notable bool) {
	if name == ".git" {
		return "a .git directory", false
	}
	if why := excludedAlways(e.path); why != "" {
		return why, false
	}
	if l.up.Hides != nil {
		if why := l.up.Hides(e.path); why != "" {
			return why, false
		}
	}
	if err := checkName(name); err != nil {
		return err.Error(), true
	}
	if len(e.path) > maxPath {
		return fmt.Sprintf("the path is longer than %d bytes", maxPath), true
	}
	if kind := e.info.Mode().Type(); kind&^(fs.ModeDir|fs.ModeSymlink) != 0 {
		return "neither a file, a directory nor a link", true
	}
	return "", false
}

// tracked reports whether git tracks a name, or something below it. Where git cannot list what it tracks, nothing counts
// as tracked, so that more stays, and that is told.
func (l *lister) tracked(e dirEntry) bool {
	r := l.repository
	if r == nil {
		return false
	}
	if err := r.list(l.ctx, l.up.Git); err != nil && l.ctx.Err() == nil {
		l.leave(Left{Path: ".", Why: fmt.Sprintf("what git tracks and ignores, since git cannot list what it tracks: %v", err), Dir: true, notable: true})
	}
	return r.tracks(e.path, e.info.IsDir())
}

// take takes a name into the manifest, and all in it if it is a directory.
func (l *lister) take(root *os.Root, entry dirEntry) error {
	rel, name := entry.path, path.Base(entry.path)
	key := FoldKey(rel)
	if other, taken := l.keys[key]; taken {
		l.leave(entry.left("other systems read it as "+other, true))
		return nil
	}
	e := changes.EntryOf(entry.info)
	e.Mode &= 0o1777 // what a set-user-ID file could do here is no business of another place
	if e.Kind == workspace.Link {
		var err error
		if e.Target, err = root.Readlink(name); vanished(err) {
			l.leave(entry.left(errMoved.Error(), true))
			return nil
		} else if err != nil {
			return err
		}
		e.Target = filepath.ToSlash(e.Target)
	}
	l.keys[key] = rel
	l.Manifest.Items = append(l.Manifest.Items, Item{rel, *e})
	if e.Kind == workspace.File {
		top, _, _ := strings.Cut(rel, "/")
		l.sizes[top] += e.Size
		l.Bytes += e.Size
	}
	if err := l.checkLimits(); err != nil {
		return err
	}
	if e.Kind != workspace.Dir {
		return nil
	}
	if depth := strings.Count(rel, "/") + 1; depth > maxDepth {
		return fmt.Errorf("deeper than %d directories", maxDepth)
	}
	sub, err := openDir(root, name, e.Stamp.Ino)
	if vanished(err) {
		l.Manifest.Items = l.Manifest.Items[:len(l.Manifest.Items)-1]
		l.leave(entry.left(errMoved.Error(), true))
		return nil
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	return l.dir(sub, rel)
}

// openDir opens the directory that was decided on, and no other that a link leads to by now.
func openDir(root *os.Root, name string, ino uint64) (*os.Root, error) {
	named, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	dir, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	info, err := dir.Lstat(".")
	if err == nil && (!os.SameFile(info, named) || changes.EntryOf(info).Stamp.Ino != ino) {
		err = errMoved
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

var errMoved = errors.New("it was removed, or became something else, while the workspace was read")

// vanished reports whether an error says that what was decided on is there no more: others work in the directory meanwhile.
func vanished(err error) bool {
	return errors.Is(err, errMoved) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENXIO) // a socket
}

func (l *lister) checkLimits() error {
	limits := l.up.Limits
	what := ""
	switch {
	case len(l.Manifest.Items)-1 > limits.Files:
		what = fmt.Sprintf("more than %d files", limits.Files)
	case l.Bytes > limits.Bytes:
		what = fmt.Sprintf("more than %d MB", limits.Bytes>>20)
	default:
		return nil
	}
	names := make([]string, 0, len(l.sizes))
	for name := range l.sizes {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(min(max(l.sizes[b]-l.sizes[a], -1), 1)) })
	var largest []string
	for _, name := range names[:min(3, len(names))] {
		if size := l.sizes[name]; size >= 1<<20 {
			largest = append(largest, fmt.Sprintf("%s (%d MB)", name, size>>20))
		}
	}
	fix := "list files that need no upload in .pccrunignore, or raise --max-size and --max-files"
	if largest != nil {
		fix += "; most is in " + strings.Join(largest, ", ")
	}
	return &hint.Error{Err: errors.New(what), Fix: fix}
}

// dropLinks leaves out the links that lead out.
func (t *Tree) dropLinks() {
	readlink := func(rel string) (string, bool) {
		info, err := t.root.Lstat(rel)
		if err != nil || info.Mode().Type() != fs.ModeSymlink {
			return "", false
		}
		to, err := t.root.Readlink(rel)
		return filepath.ToSlash(to), err == nil
	}
	t.Manifest.Items = slices.DeleteFunc(t.Manifest.Items, func(item Item) bool {
		if item.Entry.Kind != workspace.Link {
			return false
		}
		err := checkLink(item.Path, item.Entry.Target, readlink)
		if err != nil {
			t.Manifest.Left = append(t.Manifest.Left, Left{Path: item.Path, Why: err.Error(), notable: true})
		}
		return err != nil
	})
}
