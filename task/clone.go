//go:build unix

package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/run/askgit"
)

// A clone is a work tree with a git directory of its own. This program writes the few files that git needs to find a
// commit in it, and executes no git: the checkout is a phase.
type clone struct {
	path   string
	branch string // without refs/heads/
	base   string // a commit
}

// canWrite reports whether this user may make entries in a directory.
func canWrite(dir string) bool { return unix.Access(dir, unix.W_OK|unix.X_OK) == nil }

// makeClone writes a clone of a repository in the first place where one can be made. Nothing of its name may stand there.
func makeClone(r *repository, places []place, branch, base string) (*clone, error) {
	var at place
	for _, at = range places {
		if writable(at.parent) {
			break
		}
	}
	parent, err := at.make()
	if errors.Is(err, fs.ErrExist) {
		return nil, hint.Errorf("--name NAME for another", "%s stands already", at.path())
	} else if err != nil {
		return nil, err
	}
	defer parent.Close()
	c := &clone{path: at.path(), branch: branch, base: base}
	if err := c.write(parent, at.name, r); err != nil {
		return nil, errors.Join(err, state.RemoveAll(parent, at.name))
	}
	return c, nil
}

// make makes the directory of a work tree, and opens its parent.
func (p place) make() (parent *os.Root, err error) {
	for range attempts { // another task that ends removes the parent where nothing is in it
		if err = os.MkdirAll(p.parent, 0o700); err != nil {
			return nil, err
		}
		if !state.Straight(p.parent) {
			return nil, hint.Errorf("remove that link", "%s: a link leads there", p.parent)
		}
		if parent, err = os.OpenRoot(p.parent); err == nil {
			if err = parent.Mkdir(p.name, 0o700); err == nil {
				return parent, nil
			}
			parent.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, err
}

// write writes the git directory.
func (c *clone) write(parent *os.Root, name string, r *repository) error {
	root, err := parent.OpenRoot(name)
	if err != nil {
		return err
	}
	defer root.Close()
	ref := ".git/refs/heads/" + c.branch
	for _, dir := range []string{".git/objects/info", ".git/objects/pack", ".git/info", filepath.Dir(ref), ".git/refs/tags"} {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	files := []struct {
		name string
		text []byte
	}{
		{alternates, r.alternates()},
		{".git/config", []byte(r.cloneConfig())},
		{".git/info/exclude", r.exclude},
		{".git/shallow", r.shallow},
		{ref, []byte(c.base + "\n")},
		{".git/HEAD", []byte("ref: refs/heads/" + c.branch + "\n")},
	}
	for _, f := range files {
		if len(f.text) == 0 {
			continue
		}
		if err := state.WriteFile(root, f.name, f.text, state.Fast); err != nil {
			return err
		}
	}
	return nil
}

// madeByCheckout are the names in directories of a clone's git directory after its checkout, or a first commit.
var madeByCheckout = map[string][]string{
	".git":              {"COMMIT_EDITMSG", "HEAD", "ORIG_HEAD", "config", "index", "info", "lfs", "logs", "objects", "refs", "shallow"}, // lfs: where git-lfs, which is a filter, keeps contents
	".git/info":         {"exclude"},
	".git/objects/info": {"alternates"},
}

// checkClone refuses a clone whose git directory is not what was written and what a checkout adds, and whose work tree has more
// files than the index: no name was protected while git ran filters of the user's configuration on files of the branch.
func (r *repository) checkClone(ctx context.Context, path string) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	for dir, made := range madeByCheckout {
		list, err := fs.ReadDir(root.FS(), dir)
		if err != nil {
			return err
		}
		for _, e := range list {
			if !slices.Contains(made, e.Name()) {
				return fmt.Errorf("a filter made %s/%s at the checkout", dir, e.Name())
			}
		}
	}
	for name, text := range map[string][]byte{alternates: r.alternates(), ".git/config": []byte(r.cloneConfig()), ".git/info/exclude": r.exclude} {
		if now, err := state.ReadFile(root, name, copySize); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		} else if !bytes.Equal(now, text) {
			return fmt.Errorf("a filter changed %s at the checkout", name)
		}
	}
	more, err := r.asks.Answer(ctx, askgit.Call{Read: append(r.dirs(), path), Patience: patience, Args: []string{
		"--git-dir=" + path + "/.git", "--work-tree=" + path, "ls-files", "--others", "-z",
	}}, statusSize)
	if err != nil {
		return err
	}
	if first, _, _ := strings.Cut(more, "\x00"); first != "" {
		return fmt.Errorf("a filter made %s at the checkout", first)
	}
	return nil
}

// alternates is where git reads which objects a repository borrows.
const alternates = ".git/objects/info/alternates"

func (r *repository) alternates() []byte { return []byte(strings.Join(r.objects, "\n") + "\n") }

// runIn carries a phase of a task out. A clone borrows the user's objects when it begins; one that cannot be written is refused.
func (ph phase) runIn(p *Placed) (outcome, error) {
	if err := p.repo.lendTo(&p.task.Record); err != nil {
		return outcome{code: statusRefused, refused: &events.Refused{Cause: err.Error()}, said: err.Error()}, nil
	}
	if Elsewhere(ph.place) {
		return ph.runElsewhere(p)
	}
	if !p.task.InPlace { // the objects that it borrows are shown read-only
		for _, dir := range p.repo.objects {
			ph.flags = append([]string{"--read", dir}, ph.flags...)
		}
	}
	return ph.run(p.stop)
}

// lendTo has a clone borrow the user's objects again, whatever an agent, or a check, has made of that.
func (r *repository) lendTo(t *Record) error {
	if t.InPlace {
		return nil
	}
	root, err := os.OpenRoot(t.Worktree)
	if err != nil {
		return err
	}
	defer root.Close()
	if text, err := state.ReadFile(root, alternates, copySize); err == nil && bytes.Equal(text, r.alternates()) {
		return nil
	}
	return errors.Join(root.MkdirAll(filepath.Dir(alternates), 0o700), state.WriteFile(root, alternates, r.alternates(), state.Fast))
}

// unlock removes the locks of gits that were killed: every later git would wait for them. Nothing of the task's runs, and in the
// user's own work tree they are the user's.
func unlock(t *Record) error {
	if t.InPlace {
		return nil
	}
	root, err := os.OpenRoot(t.Worktree)
	if err != nil {
		return err
	}
	defer root.Close()
	var errs []error
	for _, name := range []string{"index", "HEAD", "packed-refs", "config", "shallow", "refs/heads/" + t.Branch} {
		if err := root.Remove(".git/" + name + ".lock"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// cloneConfig is the configuration of a clone: its format, and where the remotes are.
func (r *repository) cloneConfig() string {
	var b strings.Builder
	version := 0
	if r.format != "sha1" {
		version = 1
	}
	fmt.Fprintf(&b, "[core]\n\trepositoryformatversion = %d\n\tbare = false\n\tlogAllRefUpdates = true\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n", version)
	if version == 1 {
		fmt.Fprintf(&b, "[extensions]\n\tobjectFormat = %s\n", r.format)
	}
	for _, remote := range r.remotes {
		fmt.Fprintf(&b, "[remote \"%s\"]\n\turl = \"%s\"\n\tfetch = +refs/heads/*:refs/remotes/%s/*\n", remote[0], remote[1], remote[0])
	}
	return b.String()
}
