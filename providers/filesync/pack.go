package filesync

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

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
	Excludes string                       // the text of the user's own ignore file (core.excludesFile)
	Allow    []string                     // fingerprints of secrets that may go
	Hides    func(rel string) string      // why the policy shows a path to no command, "" if it does; nil for nothing
	Since    *Since                       // only what a copy that stands has not; nil for all
	Progress func(files int, bytes int64) // after each file, from one goroutine; nil for nobody
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

// The names of ignore files. Each holds for the directory that it lies in.
const (
	gitIgnore    = ".gitignore"
	e2bIgnore    = ".e2bignore"
	pccrunIgnore = ".pccrunignore"
)

// Open looks through a directory. It opens no file but ignore files.
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
	w := &walk{Tree: t, ctx: ctx, sizes: map[string]int64{}, keys: map[string]string{}, repository: findRepository(dir)}
	defer func() {
		if err != nil {
			root.Close()
		}
	}()
	w.prepare()
	info, err := root.Lstat(".")
	if err != nil {
		return nil, err
	}
	t.Manifest.Items = append(t.Manifest.Items, Item{".", *changes.EntryOf(info)})
	if err := w.dir(root, "", false); err != nil {
		return nil, err
	}
	w.links()
	if up.Since != nil {
		t.send, t.Gone, err = t.since(ctx, up.Since)
	}
	return t, err
}

// Close closes the directory.
func (t *Tree) Close() error { return t.root.Close() }

type walk struct {
	*Tree
	ctx        context.Context
	repository *repository
	git        *Ignore
	others     []*Ignore
	sizes      map[string]int64  // by name in the top directory
	keys       map[string]string // paths by [FoldKey]
}

// prepare makes the ignore rules that hold before any file of the tree is read.
func (w *walk) prepare() {
	w.git = newIgnore(gitIgnore, "")
	if r := w.repository; r != nil {
		w.git.under = r.under
		for dir := parentOf(r.under); r.under != ""; dir = parentOf(dir) {
			if text, err := readSmall(filepath.Join(r.top, dir, gitIgnore), maxIgnoreFile); err == nil {
				w.git.add(dir, string(text))
			}
			if dir == "" {
				break
			}
		}
		if list := parseIgnore(r.exclude); len(list) > 0 {
			w.git.below = append(w.git.below, ignoreFile{".git/info/exclude", list})
		}
	}
	if list := parseIgnore(w.up.Excludes); len(list) > 0 {
		w.git.below = append(w.git.below, ignoreFile{"the user's ignore file", list})
	}
	w.others = []*Ignore{newIgnore(e2bIgnore, ""), newIgnore(pccrunIgnore, "")}
}

func (w *walk) left(l Left) { w.Manifest.Left = append(w.Manifest.Left, l) }

// dir looks through a directory. In one that git ignores only what it tracks counts.
func (w *walk) dir(root *os.Root, dir string, ignored bool) error {
	if err := w.ctx.Err(); err != nil {
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
	for _, g := range append(slices.Clone(w.others), w.git) {
		if _, found := slices.BinarySearch(names, g.name); found {
			if err := w.readIgnore(root, dir, g); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		if err := w.name(root, dir, name, ignored); err != nil {
			return fmt.Errorf("pack %s: %w", path.Join(dir, name), reason(err))
		}
	}
	return nil
}

// reason leaves out of an error what was said already.
func reason(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

func (w *walk) readIgnore(root *os.Root, dir string, g *Ignore) error {
	info, err := root.Lstat(g.name)
	if err != nil || !info.Mode().IsRegular() { // git follows no link there either
		return err
	}
	f, err := root.Open(g.name)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := readAtMost(f, maxIgnoreFile)
	if err != nil {
		return fmt.Errorf("read %s: %w", path.Join(dir, g.name), reason(err))
	}
	g.add(path.Join(g.under, dir), string(text))
	if w.Manifest.Ignore[g.name] == nil {
		w.Manifest.Ignore[g.name] = map[string]string{}
	}
	w.Manifest.Ignore[g.name][dir] = string(text)
	return nil
}

// name decides on one name.
func (w *walk) name(root *os.Root, dir, name string, ignored bool) error {
	rel := path.Join(dir, name)
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went while we looked
	}
	if err != nil {
		return err
	}
	l := Left{Path: rel, Dir: info.IsDir()}
	if info.Mode().IsRegular() {
		l.Size = info.Size()
	}
	l.Why, l.notable = w.why(rel, name, info)
	key := FoldKey(rel)
	if other, taken := w.keys[key]; l.Why == "" && taken {
		l.Why, l.notable = "other systems read it as "+other, true
	}
	if l.Why == "" {
		byGit := ignored
		why := "git ignores the directory"
		if !byGit {
			why = w.git.own(rel, info.IsDir())
			byGit = why != ""
		}
		if byGit && !w.repository.tracks(rel, info.IsDir()) {
			l.Why = why
		}
		ignored = byGit
	}
	if l.Why != "" {
		w.left(l)
		return nil
	}
	w.keys[key] = rel
	e := changes.EntryOf(info)
	e.Mode &= 0o1777 // what a set-user-ID file could do here is no business of another place
	if e.Kind == workspace.Link {
		if e.Target, err = root.Readlink(name); err != nil {
			return err
		}
	}
	w.Manifest.Items = append(w.Manifest.Items, Item{rel, *e})
	top, _, _ := strings.Cut(rel, "/")
	w.sizes[top] += l.Size
	w.Bytes += l.Size
	if err := w.check(); err != nil {
		return err
	}
	if e.Kind != workspace.Dir {
		return nil
	}
	if depth := strings.Count(rel, "/") + 1; depth > maxDepth {
		return fmt.Errorf("deeper than %d directories", maxDepth)
	}
	sub, err := openDir(root, name, e.Stamp.Ino)
	if went(err) {
		w.Manifest.Items = w.Manifest.Items[:len(w.Manifest.Items)-1]
		w.left(Left{Path: rel, Why: errMoved.Error(), Dir: true, notable: true})
		return nil
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	return w.dir(sub, rel, ignored)
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

// went reports whether an error says that what was decided on is there no more: others work in the directory meanwhile.
func went(err error) bool {
	return errors.Is(err, errMoved) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// why says what keeps a path from going up, whatever git makes of it, and whether that is to be
// told: it would be missed.
func (w *walk) why(rel, name string, info fs.FileInfo) (why string, tell bool) {
	if name == ".git" {
		return "a .git directory", false
	}
	if why := excludedAlways(rel, info.IsDir()); why != "" {
		return why, false
	}
	if w.up.Hides != nil {
		if why := w.up.Hides(rel); why != "" {
			return why, false
		}
	}
	for _, g := range w.others {
		if why := g.own(rel, info.IsDir()); why != "" {
			return why, false
		}
	}
	if why := nameTrouble(name); why != "" {
		return why, true
	}
	if len(rel) > maxPath {
		return fmt.Sprintf("the path is longer than %d bytes", maxPath), true
	}
	if kind := info.Mode().Type(); kind&^(fs.ModeDir|fs.ModeSymlink) != 0 {
		return "neither a file, a directory nor a link", true
	}
	return "", false
}

func (w *walk) check() error {
	l := w.up.Limits
	what := ""
	switch {
	case len(w.Manifest.Items)-1 > l.Files:
		what = fmt.Sprintf("more than %d files", l.Files)
	case w.Bytes > l.Bytes:
		what = fmt.Sprintf("more than %d MB", l.Bytes>>20)
	default:
		return nil
	}
	names := make([]string, 0, len(w.sizes))
	for name := range w.sizes {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(min(max(w.sizes[b]-w.sizes[a], -1), 1)) })
	var largest []string
	for _, name := range names[:min(3, len(names))] {
		if size := w.sizes[name]; size >= 1<<20 {
			largest = append(largest, fmt.Sprintf("%s (%d MB)", name, size>>20))
		}
	}
	fix := "list files that need no upload in .pccrunignore, or raise --max-size and --max-files"
	if largest != nil {
		fix += "; most is in " + strings.Join(largest, ", ")
	}
	return &hint.Error{Err: errors.New(what), Fix: fix}
}

// links leaves out the links that lead out.
func (w *walk) links() {
	look := func(rel string) (string, bool) {
		info, err := w.root.Lstat(rel)
		if err != nil || info.Mode().Type() != fs.ModeSymlink {
			return "", false
		}
		to, err := w.root.Readlink(rel)
		return to, err == nil
	}
	w.Manifest.Items = slices.DeleteFunc(w.Manifest.Items, func(item Item) bool {
		if item.Entry.Kind != workspace.Link {
			return false
		}
		why := linkTrouble(item.Path, item.Entry.Target, look)
		if why != "" {
			w.left(Left{Path: item.Path, Why: why, notable: true})
		}
		return why != ""
	})
	slices.SortFunc(w.Manifest.Left, func(a, b Left) int { return strings.Compare(a.Path, b.Path) })
}

// A Sent is what became of an upload.
type Sent struct {
	Manifest Manifest // what went
	Findings []Finding
	Files    int
	Bytes    int64    // of their content
	Gone     []string // of [Tree]
}

// Left is what did not go, and why.
func (s *Sent) Left() []Left { return s.Manifest.Left }

// Write writes the archive: members by path, a directory before what is in it, with their times,
// since tools compare them, and without owners. A file in which a secret is found stays here. What
// is written of a file was looked through before, also where it changes meanwhile.
func (t *Tree) Write(ctx context.Context, to io.Writer) (*Sent, error) {
	rules, err := loadRules()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &packing{Tree: t, ctx: ctx, rules: rules, tar: tar.NewWriter(to), queue: make(chan *parcel, ahead), work: make(chan *parcel, ahead)}
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	for range min(runtime.GOMAXPROCS(0), 4) {
		workers.Go(p.look)
	}
	workers.Go(p.open)
	p.sent.Manifest = t.Manifest
	p.sent.Manifest.Items, p.sent.Manifest.Left, p.sent.Gone = nil, slices.Clone(t.Manifest.Left), t.Gone
	for c := range p.queue {
		if err := p.put(c); err != nil {
			cancel()
			for c := range p.queue {
				c.close()
			}
			return nil, fmt.Errorf("pack %s: %w", c.item.Path, reason(err))
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &p.sent, p.tar.Close()
}

// ahead is how many files are read before their turn: each of at most [piece] bytes.
const ahead = 16

// A parcel is one item on its way: opened, then looked through, then written, in turn.
type parcel struct {
	item     Item
	file     *os.File // nil if it is none
	data     []byte
	large    bool
	gone     bool // it stays here
	findings []Finding
	err      error
	done     chan struct{}
}

func (c *parcel) close() {
	if c.file != nil {
		c.file.Close()
	}
}

type packing struct {
	*Tree
	ctx   context.Context
	rules *secretRules
	tar   *tar.Writer
	queue chan *parcel // in the order of the archive
	work  chan *parcel
	sent  Sent

	buffers sync.Pool // of files that have gone
}

// open opens the files one after the other, through the directory of each.
func (p *packing) open() {
	defer close(p.queue)
	defer close(p.work)
	var dir *os.Root
	at := "."
	dirs := map[string]uint64{} // by their numbers
	defer func() {
		if dir != nil {
			dir.Close()
		}
	}()
	for _, item := range p.Manifest.Items {
		c := &parcel{item: item, done: make(chan struct{})}
		if item.Entry.Kind == workspace.Dir {
			dirs[item.Path] = item.Entry.Stamp.Ino
		}
		if item.Entry.Kind == workspace.File && (p.send == nil || p.send[item.Path]) {
			if in := path.Dir(item.Path); dir == nil || in != at {
				if dir != nil {
					dir.Close()
				}
				dir, c.err = openDir(p.root, in, dirs[in])
				at = in
			}
			if c.err == nil {
				c.file, c.err = open(dir, path.Base(item.Path), &c.item.Entry)
			}
			if c.gone = went(c.err); c.gone {
				c.err = nil
			}
		}
		select {
		case p.queue <- c:
		case <-p.ctx.Done():
			c.close()
			return
		}
		if c.file == nil || c.err != nil {
			close(c.done)
			continue
		}
		select {
		case p.work <- c:
		case <-p.ctx.Done(): // who takes it from the queue closes it
			close(c.done)
			return
		}
	}
}

// open opens the file of a name that was decided on, which may be another one by now: many a program saves a file so. A link is none.
func open(dir *os.Root, name string, e *changes.Entry) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	named, gone := dir.Lstat(name)
	if err = errors.Join(err, gone); err == nil {
		if !info.Mode().IsRegular() || !os.SameFile(info, named) {
			err = errMoved
		}
		now := changes.EntryOf(info)
		e.Size, e.Stamp, e.Mode = now.Size, now.Stamp, now.Mode&0o1777
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// look reads files and looks through them.
func (p *packing) look() {
	for c := range p.work {
		if c.large = c.item.Entry.Size > piece; !c.large {
			size := int(c.item.Entry.Size) + 1 // one more tells whether it has grown
			buf, _ := p.buffers.Get().([]byte)
			if cap(buf) < size {
				buf = make([]byte, max(size, 64<<10))
			}
			buf = buf[:size]
			n, err := io.ReadFull(c.file, buf)
			switch {
			case err == nil:
				c.large = true
			case err != io.EOF && err != io.ErrUnexpectedEOF:
				c.err = err
			default:
				c.data = buf[:n]
				c.findings = p.rules.all(c.item.Path, c.data, p.allowed)
			}
		}
		close(c.done)
	}
}

func (p *packing) allowed(print string) bool { return slices.Contains(p.up.Allow, print) }

// put writes one item, or says why it stays.
func (p *packing) put(c *parcel) error {
	<-c.done
	defer c.close()
	if c.err != nil {
		return c.err
	}
	e := &c.item.Entry
	if c.gone {
		p.sent.Manifest.Left = append(p.sent.Manifest.Left, Left{Path: c.item.Path, Why: errMoved.Error(), notable: true})
		return nil
	}
	if c.large {
		var err error
		if c.findings, err = p.through(c, nil); err != nil {
			return err
		}
	} else if c.file != nil {
		e.Size = int64(len(c.data))
	}
	if len(c.findings) > 0 {
		p.sent.Findings = append(p.sent.Findings, c.findings...)
		p.sent.Manifest.Left = append(p.sent.Manifest.Left, Left{Path: c.item.Path, Why: "a secret: " + c.findings[0].Rule, Size: e.Size, Secret: true})
		return nil
	}
	p.sent.Manifest.Items = append(p.sent.Manifest.Items, c.item)
	if p.send != nil && !p.send[c.item.Path] {
		return nil
	}
	h := &tar.Header{Name: c.item.Path, Mode: int64(e.Mode), ModTime: time.Unix(0, e.Stamp.Mtime), Format: tar.FormatPAX}
	if p.up.Since != nil {
		h.ModTime = time.Now() // what was built of what stood there is older, whatever it was
	}
	switch e.Kind {
	case workspace.Dir:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case workspace.Link:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
	default:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
		p.sent.Files++
		p.sent.Bytes += e.Size
	}
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	if c.large {
		if err := p.write(c); err != nil {
			return err
		}
	} else if c.file != nil {
		if _, err := p.tar.Write(c.data); err != nil {
			return err
		}
		p.buffers.Put(c.data[:0])
	}
	if p.up.Progress != nil {
		p.up.Progress(p.sent.Files, p.sent.Bytes)
	}
	return nil
}

// through looks through a large file from its beginning.
func (p *packing) through(c *parcel, passed func([]byte) error) ([]Finding, error) {
	if _, err := c.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return p.rules.read(c.item.Path, io.LimitReader(contextReader{p.ctx, c.file}, c.item.Entry.Size), p.allowed, passed)
}

// write writes a large file, once more looked through: it may have changed.
func (p *packing) write(c *parcel) error {
	written := int64(0)
	again, err := p.through(c, func(b []byte) error {
		n, err := p.tar.Write(b)
		written += int64(n)
		if p.up.Progress != nil {
			p.up.Progress(p.sent.Files, p.sent.Bytes-c.item.Entry.Size+written)
		}
		return err
	})
	if err == nil && len(again) > 0 {
		err = errors.New("it changed while it was read, and has a secret now")
	}
	if missing := c.item.Entry.Size - written; err == nil && missing > 0 { // the archive has said how much comes
		p.sent.Manifest.Left = append(p.sent.Manifest.Left, Left{Path: c.item.Path, Why: "its end, which was cut off while it was read", Size: missing, notable: true})
		_, err = io.CopyN(p.tar, zeros{}, missing)
	}
	return err
}

// zeros are any number of them.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if e := r.ctx.Err(); e != nil {
		return n, e // also where who wrote gave up for the same reason
	}
	return n, err
}

// Pack writes what of a directory may leave this machine as a plain tar.
func Pack(ctx context.Context, dir string, to io.Writer, up Up) (*Sent, error) {
	t, err := Open(ctx, dir, up)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	return t.Write(ctx, to)
}
