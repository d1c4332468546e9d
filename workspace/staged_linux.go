package workspace

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// indexSize is how many bytes one of an index takes with what is made of it.
const indexSize = 4

// staged looks at what the run has put into the index and that the last commit has not.
func (c *commits) staged() error {
	path := c.gitDir + "/index"
	var st unix.Stat_t
	if err := c.guard.stat(path, &st); err != nil || c.stood && !c.guard.touched(&st) && !c.reshared() {
		return nil
	}
	dir, name, err := c.guard.parent(path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	read := func(name string) ([]byte, error) {
		var st unix.Stat_t
		if err := beneath.Stat(dir, name, &st); err != nil {
			return nil, err
		}
		if err := c.left.spend(indexSize * st.Size); err != nil { // before it is taken
			return nil, err
		}
		return readOwn(dir, name, st.Size)
	}
	b, err := read(name)
	if err != nil {
		return err
	}
	var list []committed
	shared := func(id string) ([]byte, error) { return read("sharedindex." + id) }
	within := "" // the directory that was asked for last
	var above committed
	forged, err := vcs.EachStaged(b, c.store.format, shared, func(path string, mode uint32, id string, written, undo bool) error {
		if len(path) >= unix.PathMax {
			return errPath
		}
		dir := path[:strings.LastIndexByte(path, '/')+1]
		if dir != within {
			if err := c.left.spend(64); err != nil {
				return err
			}
			within = dir
			above.rule, above.tree = c.protects(strings.TrimSuffix(dir, "/"), 0, unix.S_IFDIR)
		}
		rule, tree := above.rule, above.tree
		if rule == "" {
			rule, tree = c.protects(path, len(dir), mode)
		}
		if undo && !c.store.fresh(id) { // it stays there for long
			return nil
		}
		if kind := mode & unix.S_IFMT; (rule != "" || kind == unix.S_IFDIR || kind == gitLink) && len(list) <= maxFound {
			list = append(list, committed{path: path, rule: rule, tree: tree, mode: mode, id: id, where: "the index", unwritten: !written && !undo})
		}
		return nil
	}, c.left.spend)
	if err == nil && len(list) > maxFound {
		err = ErrTooMuch
	}
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	c.forged = forged
	head := c.head()
	for _, f := range list {
		if f.unwritten && len(c.guard.unwritten) < maxNamed && c.pinned(f) && !c.stands(f) {
			c.guard.unwritten = append(c.guard.unwritten, Refusal{Path: f.tree + "/" + f.path, Why: f.rule})
		}
		if f.mode&unix.S_IFMT == unix.S_IFDIR { // of a sparse index
			var before []string
			f.path = strings.TrimSuffix(f.path, "/")
			if e, ok := c.at(head, f.path); ok {
				before = append(before, e.ID)
			}
			if err := c.changed(f.id, before, f, 0); err != nil {
				return err
			}
			continue
		}
		if e, ok := c.at(head, f.path); !ok || e.ID != f.id || e.Mode != f.mode {
			if f.mode&unix.S_IFMT == gitLink {
				c.links = append(c.links, tip{id: f.id, name: f.where})
			}
			if f.rule == "" {
				continue
			}
			if err := c.note(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// pinned reports whether a path is there by a protected name that stood when the run began, so
// that git could not write it: `git switch` says so, goes on, and exits with 0.
func (c *commits) pinned(f committed) bool {
	var st unix.Stat_t
	full := f.tree + "/" + f.path
	rel, in := beneath.Path(c.guard.standing.Root, full)
	if !c.stood || f.rule == "" || !in || c.guard.stat(full, &st) != nil {
		return false
	}
	for ; rel != "." && rel != "/"; rel = filepath.Dir(rel) {
		if c.guard.stood[rel] {
			return true
		}
	}
	return false
}

// reshared reports whether the run has changed what a split index begins with.
func (c *commits) reshared() bool {
	files, err := c.guard.filesIn(c.gitDir, 0, c.left)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(files, func(name string) bool {
		var st unix.Stat_t
		return strings.HasPrefix(name, "sharedindex.") && (c.guard.stat(c.gitDir+"/"+name, &st) != nil || c.guard.touched(&st))
	})
}

// gitLink is the mode of a submodule, whose commit stands there.
const gitLink = 0o160000

// head returns the tree of the commit that is checked out, "" if there is none.
func (c *commits) head() string {
	id := c.leads("HEAD")
	if 2*len(id) != c.format.Digits() {
		return ""
	}
	o, err := c.store.get(id)
	if err != nil || o.Kind != vcs.Commit {
		return ""
	}
	tree, _, _ := vcs.ParseCommit(o.Body)
	return tree
}

// leads returns what git takes a reference for, "" if that cannot be said: what a worktree
// has of its own counts only where git looks for it there.
func (c *commits) leads(name string) (id string) {
	refs, _ := c.guard.led(c.common + "/refs")
	for range maxSymrefs + 1 {
		path := c.gitDir + "/" + name
		if rest, is := strings.CutPrefix(name, "refs/"); is && !slices.ContainsFunc([]string{"bisect/", "worktree/", "rewritten/"}, func(own string) bool { return strings.HasPrefix(rest, own) }) {
			path = refs + "/" + rest
		}
		b, _, err := c.beginning(path, maxRef)
		if err != nil {
			packed, _ := c.guard.led(c.common + "/packed-refs")
			if at := slices.IndexFunc(c.all, func(t tip) bool { return t.name == name && t.file == packed }); at >= 0 {
				return c.all[at].id
			}
			return ""
		}
		to, is := strings.CutPrefix(string(b), "ref:")
		if !is {
			if words := strings.Fields(to); len(words) > 0 {
				id, _, _ = vcs.ParseID(words[0])
			}
			return id
		}
		if name = strings.TrimSpace(to); !filepath.IsLocal(name) {
			return ""
		}
	}
	return ""
}
