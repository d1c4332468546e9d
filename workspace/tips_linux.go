package workspace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// By which names git knows commits: references, the heads of what is under way, logs, lists of
// picks. They are read as git reads them, from a repository that a run may have written.

const (
	maxTips    = 50_000 // references of one repository
	maxRef     = 4096   // what one says stands in its first line
	maxSymrefs = 5      // as SYMREF_MAXDEPTH of git
	tipSize    = 512    // bytes that one costs: a file may have one in five of its own
)

var errLed = errors.New("a link leads to no references of a repository")

// A tip is what git knows by a name.
type tip struct {
	id, name string
	file     string // that says so
	of       string // the commit or tag that does, "" for a file
	old      int    // how many on the way to it stood
}

// small reads a file of a repository that holds a few lines.
func (g *Guard) small(path string) ([]byte, error) {
	dir, name, err := g.parent(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return readOwn(dir, name, vcs.MaxConfig)
}

// beginning reads so much of a file of a repository. Of one that has more, whole is not set.
func (c *commits) beginning(path string, limit int64) (b []byte, whole bool, err error) {
	if err := c.left.spend(64); err != nil {
		return nil, false, err
	}
	dir, name, err := c.guard.parent(path)
	if err != nil {
		return nil, false, err
	}
	defer unix.Close(dir)
	fd, err := openOwn(dir, name)
	if err != nil {
		return nil, false, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, false, cmp.Or(err, beneath.ErrNotRegular)
	}
	b, err = io.ReadAll(io.LimitReader(beneath.Reader(fd), min(limit, st.Size)))
	return b, st.Size <= limit, cmp.Or(err, c.left.spend(int64(len(b))))
}

// readTips reads what git knows objects of the repository by: references, the heads and
// lists of things under way, logs, where older stashes are and from which `git switch -`
// takes where to go.
func (c *commits) readTips(dir string) error {
	top, err := c.guard.filesIn(dir, 0, c.left)
	if err != nil {
		return err
	}
	for _, name := range top { // HEAD, ORIG_HEAD, MERGE_HEAD, FETCH_HEAD, …
		path := dir + "/" + name
		switch {
		case name == "packed-refs" || name == "config" || vcs.IsIndex(name):
		case strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "":
			if err = c.listed(path, name); err == nil && name == "BISECT_START" {
				err = c.namedIn(dir, name)
			}
		default: // `git merge x` takes this before the branch of the name
			err = c.ref(dir, name, 0)
		}
		if err != nil {
			return err
		}
	}
	for _, state := range [...]string{"rebase-merge", "rebase-apply", "sequencer"} {
		files, err := c.guard.filesIn(dir+"/"+state, maxTips, c.left)
		if err != nil && !gone(err) {
			return err
		}
		for _, name := range files {
			if name = state + "/" + name; strings.Trim(filepath.Base(name), "0123456789") == "" {
				continue // see waits
			}
			if err := cmp.Or(c.listed(dir+"/"+name, name), c.namedIn(dir, name)); err != nil {
				return err
			}
		}
	}
	refs, err := c.readRefs(dir)
	if err != nil {
		return err
	}
	// Git looks for `origin/main` and `heads/main` in its own directory first, and for what
	// would be a branch made of a remote's (`git checkout feature/x` of `origin/feature/x`).
	begins := map[string]bool{}
	for _, name := range refs {
		name, deep := strings.TrimPrefix(name, "refs/"), true
		for ; deep; _, name, deep = strings.Cut(name, "/") {
			first, _, deep := strings.Cut(name, "/")
			there, known := begins[first]
			if deep && !known {
				var st unix.Stat_t
				there = c.guard.stat(dir+"/"+first, &st) == nil
				begins[first] = there
			}
			if deep && there {
				if err := c.ref(dir, name, 0); err != nil {
					return err
				}
			}
		}
	}
	return c.readLogs(dir)
}

// readRefs reads the references, and returns their names.
func (c *commits) readRefs(dir string) (names []string, err error) {
	path, led := c.guard.led(dir + "/refs")
	files, err := c.guard.filesIn(path, maxTips, c.left)
	if err != nil && (led && err == unix.ELOOP || !gone(err)) { // git follows links on the way too
		return nil, err
	}
	at := strings.TrimSuffix(path, "/refs") // of another repository, as git-new-workdir has it
	if led && at == path {
		return nil, errLed
	}
	for _, name := range files {
		name = "refs/" + name
		if err := c.ref(at, name, 0); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	path, led = c.guard.led(dir + "/packed-refs")
	b, whole, err := c.beginning(path, maxPackedRefs)
	switch {
	case gone(err) && !(led && err == unix.ELOOP):
		return names, nil
	case err == nil && !whole:
		err = ErrTooMuch
	}
	if err != nil {
		return nil, fmt.Errorf("packed-refs: %w", err)
	}
	for line := range bytes.Lines(b) {
		for _, f := range [...]vcs.Format{vcs.FormatSHA1, vcs.FormatSHA256} {
			if n := f.Digits(); (f == c.format || c.early) && len(line) > n {
				if name := strings.TrimSpace(string(line[n+1:])); c.add(string(line[:n]), name, path) {
					names = append(names, name)
				}
			}
		}
		if len(names) > maxTips {
			return nil, fmt.Errorf("references: %w", ErrTooMuch)
		}
	}
	return names, nil
}

// readLogs reads what references led to, as far as the run has written of that.
func (c *commits) readLogs(dir string) error {
	path, led := c.guard.led(dir + "/logs")
	files, err := c.guard.filesIn(path, maxTips, c.left)
	if err != nil {
		if gone(err) && !(led && err == unix.ELOOP) {
			err = nil
		}
		return err
	}
	for _, name := range files {
		file := path + "/" + name
		var st unix.Stat_t
		if !c.early && c.stood && name != "HEAD" && c.guard.stat(file, &st) == nil && !c.guard.touched(&st) && !c.moved(file) {
			continue
		}
		b, whole, err := c.beginning(file, maxPackedRefs)
		if err == nil && !whole {
			err = ErrTooMuch
		}
		if err != nil {
			if gone(err) {
				continue
			}
			return fmt.Errorf("logs/%s: %w", name, err)
		}
		for line := range bytes.Lines(b) {
			before, rest, _ := bytes.Cut(line, []byte(" "))
			after, rest, _ := bytes.Cut(rest, []byte(" "))
			c.add(string(before), "logs/"+name, file)
			c.add(string(after), "logs/"+name, file)
			if _, from, moved := bytes.Cut(rest, []byte("checkout: moving from ")); moved {
				from, _, _ = bytes.Cut(from, []byte(" "))
				c.words(from, "logs/"+name, file)
				if err := c.named(dir, from); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// add adds a tip that a text says in full.
func (c *commits) add(text, name, file string) bool {
	id, f, ok := vcs.ParseID(text)
	if ok = ok && (c.early || f == c.format); ok && c.left.spend(tipSize) == nil {
		c.tips = append(c.tips, tip{id: id, name: name, file: file})
	}
	return ok
}

// ref reads a reference. One that names another is followed where that is not read in any
// case: git takes any file of its directory for one.
func (c *commits) ref(dir, name string, depth int) error {
	b, _, err := c.beginning(dir+"/"+name, maxRef)
	if err != nil {
		if gone(err) || err == unix.EISDIR || err == beneath.ErrNotRegular {
			err = nil
		}
		return err
	}
	if to, is := strings.CutPrefix(string(b), "ref:"); is {
		if to = strings.TrimSpace(to); depth < maxSymrefs && filepath.IsLocal(to) && !strings.HasPrefix(to, "refs/") {
			err = c.ref(dir, to, depth+1)
			if dir != c.common && err == nil { // where git looks for what has a slash
				err = c.ref(c.common, to, depth+1)
			}
			return err
		}
		return nil
	}
	if words := bytes.Fields(b); len(words) > 0 {
		c.add(string(words[0]), name, dir+"/"+name)
	}
	return nil
}

// listed reads a file with names of objects in it.
func (c *commits) listed(path, name string) error {
	b, whole, err := c.beginning(path, vcs.MaxConfig)
	switch {
	case gone(err) || err == beneath.ErrNotRegular:
		return nil
	case err == nil && !whole:
		err = ErrTooMuch
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.words(b, name, path)
	return c.ref(strings.TrimSuffix(path, "/"+name), name, 0)
}

// words adds the tips that a text has among other things, also by their first digits, as
// lists of what is to be picked have them.
func (c *commits) words(text []byte, name, file string) {
	for word := range bytes.FieldsFuncSeq(text, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF", r) }) {
		if !c.add(string(word), name, file) && len(word) >= 4 && !c.early && len(word) < c.format.Digits() && c.left.spend(tipSize) == nil {
			c.short = append(c.short, tip{id: strings.ToLower(string(word)), name: name, file: file})
		}
	}
}

// namedIn reads what a list calls commits by: any name that git takes, `logs/x` too.
func (c *commits) namedIn(dir, list string) error {
	b, _, err := c.beginning(dir+"/"+list, vcs.MaxConfig)
	for word := range bytes.FieldsSeq(b) {
		if err := c.named(dir, word); err != nil {
			return err
		}
	}
	if gone(err) || err == beneath.ErrNotRegular {
		return nil
	}
	return err
}

// named reads what such a name leads to in the directory of a repository, beside what is
// read in any case.
func (c *commits) named(dir string, name []byte) error {
	if i := bytes.IndexAny(name, "~^@:"); i >= 0 {
		name = name[:i]
	}
	if c.early || !bytes.Contains(name, []byte("/")) || bytes.HasPrefix(name, []byte("refs/")) || !filepath.IsLocal(string(name)) || len(name) >= unix.PathMax {
		return nil
	}
	err := c.ref(dir, string(name), 0)
	if dir != c.common && err == nil {
		err = c.ref(c.common, string(name), 0)
	}
	return err
}

// moved reports whether a file may have come with a directory, as old as it was.
func (c *commits) moved(file string) bool {
	for dir := filepath.Dir(file); dir != c.gitDir && dir != c.common && dir != "/"; dir = filepath.Dir(dir) {
		is, known := c.dirs[dir]
		if !known {
			is = c.guard.came(dir)
			if c.dirs == nil {
				c.dirs = map[string]bool{}
			}
			c.dirs[dir] = is
		}
		if is {
			return true
		}
	}
	return false
}

// led returns where a path leads by links, and whether it does.
func (g *Guard) led(path string) (to string, led bool) {
	for range maxStores {
		dir, name, err := g.parent(path)
		if err != nil {
			break
		}
		b := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, b)
		unix.Close(dir)
		if err != nil {
			break
		}
		path, led = from(filepath.Dir(path), string(b[:n])), true
	}
	return path, led
}

// filesIn returns the regular files of a directory by their paths in it, and of those below
// it as far as so many are wanted; 0 is for none of those.
func (g *Guard) filesIn(path string, limit int, left *allowance) (list []string, err error) {
	dir, name, err := g.parent(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var read func(dir int, name, rel string) error
	read = func(dir int, name, rel string) error {
		fd, err := g.openDir(dir, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		names, err := beneath.Entries(fd)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := left.spend(64); err != nil {
				return err
			}
			switch t := beneath.DirentType(fd, name); {
			case t == unix.DT_REG:
				list = append(list, join(rel, name))
			case t == unix.DT_DIR && limit > 0:
				if err := read(fd, name, join(rel, name)); err != nil && !gone(err) {
					return err
				}
			}
			if limit > 0 && len(list) > limit || strings.Count(rel, "/") > 64 {
				return fmt.Errorf("%s: %w", path, ErrTooMuch)
			}
		}
		return nil
	}
	return list, read(dir, name, "")
}

// split tells what references lead to from that of which there is no object: what has its
// name later the run has brought.
func (c *commits) split(ids map[string]tip) (there map[string]bool, absent []tip, err error) {
	there = map[string]bool{}
	for _, f := range [...]vcs.Format{vcs.FormatSHA1, vcs.FormatSHA256} {
		var s *store
		for id, t := range ids {
			if 2*len(id) != f.Digits() {
				continue
			}
			if s == nil {
				if s, err = c.guard.store(c.common+"/objects", f, c.left); err != nil {
					return nil, nil, err
				}
				defer s.close()
			}
			if err := c.left.spend(64); err != nil {
				return nil, nil, err
			}
			if s.stood(id) {
				there[id] = true
			} else {
				absent = append(absent, t)
			}
		}
	}
	return there, absent, nil
}

// knowTips notes what the references of the repositories lead to, as far as the command has
// not changed them yet: git packs them, and what they lead to, anew.
func (g *Guard) knowTips(stop <-chan struct{}) {
	tips, absent := map[string]map[string]bool{}, map[string][]tip{}
	var dirs []string
	for rel := range g.repos {
		dirs = append(dirs, g.abs(rel))
	}
	dirs = append(dirs, g.standing.GitDirs...)
	if g.places == nil {
		g.places = map[string]uint64{}
	}
	a := &asked{left: &allowance{room: maxObjects, until: time.Now().Add(maxRead), stop: stop}}
	var all []*commits
	for _, gitDir := range dirs {
		c := &commits{asked: a, guard: g, gitDir: gitDir, common: g.commonOf(gitDir), early: true}
		g.know(c.common, "objects", "objects/pack", "objects/info", "rr-cache", "refs", "logs", "lfs", lfsObjects)
		if c.common != gitDir {
			g.know(gitDir, "refs", "logs")
		}
		all = append(all, c)
	}
	holds := g.holds
	if holds == nil {
		holds = g.holdPacks(all, stop) // before anything that takes longer
	}
	know := func(c *commits) {
		gitDir := c.gitDir
		if c.readTips(gitDir) != nil {
			return
		}
		if !g.looksAt(c.common) && c.readTips(c.common) != nil {
			return
		}
		ids, untouched := map[string]tip{}, map[string]bool{}
		for _, t := range c.tips {
			stood, known := untouched[t.file]
			if !known {
				var st unix.Stat_t
				stood = g.stat(t.file, &st) == nil && !g.touched(&st) && !c.moved(t.file)
				untouched[t.file] = stood
			}
			if stood {
				ids[t.id] = t
			}
		}
		if there, missing, err := c.split(ids); err == nil {
			tips[gitDir], absent[gitDir] = there, missing
		}
	}
	for _, c := range all {
		know(c)
	}
	g.tips, g.absent, g.holds = tips, absent, holds
}
