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
	if err := c.guard.stat(path, &st); err != nil || c.stood && !c.guard.touched(&st) {
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
	var unwritten []bool // the index has it, and git has never written it
	within := ""         // the directory that was asked for last
	var above committed
	err = vcs.EachStaged(b, c.format, func(id string) ([]byte, error) { return read("sharedindex." + id) }, func(path string, mode uint32, id string, written bool) error {
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
		if rule != "" || mode&unix.S_IFMT == unix.S_IFDIR {
			if len(list) == maxFound {
				return ErrTooMuch
			}
			list = append(list, committed{path: path, rule: rule, tree: tree, mode: mode, id: id, where: "the index"})
			unwritten = append(unwritten, !written)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	head := c.head()
	for i, f := range list {
		if unwritten[i] && len(c.guard.unwritten) < maxNamed && c.pinned(f) && !c.stands(f) {
			c.guard.unwritten = append(c.guard.unwritten, Refusal{Path: f.tree + "/" + f.path, Why: f.rule})
		}
		f.path = strings.TrimSuffix(f.path, "/") // of a sparse index
		e, ok := c.at(head, f.path)
		switch {
		case ok && e.ID == f.id && e.Mode == f.mode:
		case f.mode&unix.S_IFMT == unix.S_IFDIR:
			var before []string
			if ok {
				before = append(before, e.ID)
			}
			err = c.changed(f.id, before, f, 0)
		default:
			err = c.note(f)
		}
		if err != nil {
			return err
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

// head returns the tree of the commit that is checked out, "" if that cannot be said: what a worktree has of
// references of its own counts only for HEAD.
func (c *commits) head() string {
	path, name := c.gitDir+"/HEAD", "HEAD"
	for range 5 { // as git follows them
		b, err := c.guard.small(path)
		text := strings.TrimSpace(string(b))
		id, _, ok := vcs.ParseID(text)
		if at := slices.IndexFunc(c.tips, func(t tip) bool { return t.packed && t.name == name }); err != nil && at >= 0 {
			id, ok = c.tips[at].id, true
		}
		if ok {
			if n, err := c.node(tip{id: id}); err == nil && n != nil {
				return n.tree
			}
			return ""
		}
		if name, ok = strings.CutPrefix(text, "ref: "); !ok || !filepath.IsLocal(name) {
			return ""
		}
		path = c.common + "/" + name
	}
	return ""
}
