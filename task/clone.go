//go:build unix

package task

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/state"
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
		return nil, hint.Errorf("--name NAME for another name, or pccrun task --continue "+at.name, "%s stands already", at.path())
	} else if err != nil {
		return nil, err
	}
	defer parent.Close()
	c := &clone{path: at.path(), branch: branch, base: base}
	if err := c.write(parent, at.name, r); err != nil {
		return nil, errors.Join(err, state.RemoveAll(parent, at.name))
	}
	time.Sleep(beforeRun)
	return c, nil
}

// make makes the directory of a work tree, and opens its parent.
func (p place) make() (parent *os.Root, err error) {
	for range attempts { // another task that ends removes the parent where nothing is in it
		if err = os.MkdirAll(p.parent, 0o700); err != nil {
			return nil, err
		}
		if !state.Straight(p.parent) {
			return nil, fmt.Errorf("%s: a link leads there", p.parent)
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

// beforeRun is how old a file must be when a run begins, so that the run's check does not take it for one that the run made:
// twice what package workspace allows for the ticks of a file system's clock.
const beforeRun = 40 * time.Millisecond

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

// madeByCheckout are the names in a clone's git directory after its checkout, or a first commit.
var madeByCheckout = []string{"COMMIT_EDITMSG", "HEAD", "ORIG_HEAD", "config", "index", "info", "logs", "objects", "refs", "shallow"}

// checkClone refuses a clone whose git directory is not what was written and what a checkout adds: no name was protected
// while git ran filters of the user's configuration on files of the branch.
func (r *repository) checkClone(path string) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	git, err := root.Open(".git")
	if err != nil {
		return err
	}
	defer git.Close()
	names, err := git.Readdirnames(2 * len(madeByCheckout))
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(madeByCheckout, name) {
			return fmt.Errorf("a filter made .git/%s at the checkout", name)
		}
	}
	for name, text := range map[string][]byte{alternates: r.alternates(), ".git/config": []byte(r.cloneConfig()), ".git/info/exclude": r.exclude} {
		if now, err := state.ReadFile(root, name, copySize); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		} else if !bytes.Equal(now, text) {
			return fmt.Errorf("a filter changed %s at the checkout", name)
		}
	}
	return nil
}

// alternates is where git reads which objects a repository borrows.
const alternates = ".git/objects/info/alternates"

func (r *repository) alternates() []byte { return []byte(strings.Join(r.objects, "\n") + "\n") }

// restore has the clone borrow the user's objects again, whatever the agent has made of that. The post-run check of a run
// whose launcher was killed is made by the next run here, and may take what the clone borrows for the killed run's: so there is
// one before.
func (p *Placed) restore(killed bool) error {
	if p.task.InPlace {
		return nil
	}
	if killed {
		if _, err := p.git(nil, nil, "version"); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(p.task.Worktree)
	if err != nil {
		return err
	}
	defer root.Close()
	if text, err := state.ReadFile(root, alternates, copySize); err == nil && bytes.Equal(text, p.repo.alternates()) {
		return nil
	}
	err = state.WriteFile(root, alternates, p.repo.alternates(), state.Fast)
	time.Sleep(beforeRun)
	return err
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
