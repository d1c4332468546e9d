//go:build unix

package task

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/askgit"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A repository is what a task needs to know of the user's. Git says it, in sandboxes of its own.
type repository struct {
	top         string // of the work tree
	git, common string // its git directory, and the one that it shares with other work trees
	objects     []string
	branch      string // what HEAD names, in short; "" where it is detached

	format  string // of object names: sha1 or sha256
	remotes [][2]string
	hooks   string // a directory; one that is not absolute is below a work tree
	user    Identity
	shallow []byte // where history ends
	exclude []byte // info/exclude

	asks *askgit.Git
}

// An Identity is whom commits are by. An empty field is the user's git configuration's.
type Identity struct{ Name, Email string }

// Bounds of what is asked.
const (
	patience   = 30 * time.Second
	answerSize = 1 << 20
	statusSize = 16 << 20
	copySize   = 1 << 20 // of a small file that the clone gets a copy of
)

// ask has git answer about the repository. What it prints ends without its newline.
func (r *repository) ask(ctx context.Context, args ...string) (string, error) {
	text, err := r.asks.Answer(ctx, askgit.Call{Read: r.dirs(), Args: append([]string{"--git-dir=" + r.git}, args...), Patience: patience}, answerSize)
	return strings.TrimSuffix(text, "\n"), err
}

// dirs are the directories that git needs to answer.
func (r *repository) dirs() []string {
	return slices.Compact(slices.Concat([]string{r.git}, []string{r.common}, r.borrowed()))
}

// borrowed are the object directories of other repositories.
func (r *repository) borrowed() (dirs []string) {
	for _, dir := range r.objects {
		if _, in := beneath.Path(r.common, dir); !in {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// open finds the repository whose work tree is at a directory.
func open(ctx context.Context, top string) (*repository, error) {
	git, common, err := gitDirs(top)
	if err != nil {
		return nil, hint.Errorf("start it in a git repository with a work tree, or make one: git init, or git clone of a bare one", "a task needs a git repository with a work tree: %w", err)
	}
	r := &repository{top: top, asks: run.Git(top), format: "sha1"}
	if r.git, err = state.Real(git); err != nil {
		return nil, err
	}
	if r.common, err = state.Real(common); err != nil {
		return nil, err
	}
	if r.objects, err = objectDirs(filepath.Join(r.common, "objects")); err != nil {
		return nil, err
	}
	settings, err := r.ask(ctx, "config", "--file", filepath.Join(r.common, "config"), "--no-includes", "--list", "-z")
	if err != nil {
		return nil, fmt.Errorf("read the repository's configuration: %w", err)
	}
	r.configure(settings)
	full, err := r.ask(ctx, "rev-parse", "--symbolic-full-name", "HEAD")
	if err != nil {
		return nil, hint.Errorf("make a first commit", "the repository has no commit: %w", err)
	}
	if short, is := strings.CutPrefix(full, "refs/heads/"); is {
		r.branch = short
	}
	r.shallow, _ = beneath.ReadPath(filepath.Join(r.common, "shallow"), copySize)      // there may be none
	r.exclude, _ = beneath.ReadPath(filepath.Join(r.common, "info/exclude"), copySize) // likewise
	return r, nil
}

// gitDirs returns the git directory of a work tree, and the one that it shares with others. A .git file could name any: one
// that does not lead back is refused.
func gitDirs(top string) (git, common string, err error) {
	at := filepath.Join(top, ".git")
	info, err := os.Lstat(at)
	if err != nil {
		if isDir(filepath.Join(top, "refs")) && isDir(filepath.Join(top, "objects")) {
			return "", "", fmt.Errorf("%s is a bare one", top)
		}
		return "", "", fmt.Errorf("%s is not the top of one", top)
	}
	if info.IsDir() {
		return at, at, nil
	}
	text, err := beneath.ReadPath(at, copySize)
	if err != nil {
		return "", "", err
	}
	if git, err = vcs.ParseGitFile(text); err != nil {
		return "", "", err
	}
	below := func(dir, path string) string {
		if filepath.IsAbs(path) {
			return filepath.Clean(path)
		}
		return filepath.Join(dir, path)
	}
	git = below(top, git)
	shared, err := beneath.ReadPath(filepath.Join(git, "commondir"), copySize)
	if err != nil {
		return "", "", fmt.Errorf("%s names %s, which is no linked work tree's: %w", at, git, err)
	}
	common = below(git, vcs.ParsePathFile(shared))
	if back, err := beneath.ReadPath(filepath.Join(git, "gitdir"), copySize); err != nil || below(git, vcs.ParsePathFile(back)) != at || filepath.Dir(git) != filepath.Join(common, "worktrees") {
		return "", "", fmt.Errorf("%s names %s, which does not name it", at, git)
	}
	return git, common, nil
}

// CommonDir is the git directory that all work trees of a repository share, by one of them; "" where none stands.
func CommonDir(top string) string {
	_, common, err := gitDirs(top)
	if err != nil {
		return ""
	}
	common, _ = state.Real(common)
	return common
}

// FindWorktree returns the linked work tree of a repository that a name means: its path, the last element of that, or the
// branch that is checked out there.
func FindWorktree(ctx context.Context, top, name string) (string, error) {
	r, err := open(ctx, top)
	if err != nil {
		return "", err
	}
	list, err := r.ask(ctx, "worktree", "list", "--porcelain")
	if err != nil {
		return "", err
	}
	var found, all []string
	for i, entry := range strings.Split(strings.TrimSpace(list), "\n\n") {
		path, rest, _ := strings.Cut(strings.TrimPrefix(entry, "worktree "), "\n")
		if i == 0 { // the first is the repository's own
			continue
		}
		all = append(all, filepath.Base(path))
		if name == path || name == filepath.Base(path) || strings.Contains("\n"+rest+"\n", "\nbranch refs/heads/"+name+"\n") {
			found = append(found, path)
		}
	}
	switch len(found) {
	case 1:
		// The repository's own files say so, and a run may have written them: what stands there has to say it too.
		if git, common, err := gitDirs(found[0]); err != nil || git == common || CommonDir(found[0]) != r.common {
			return "", hint.Errorf("git worktree list lists them", "worktree %q: %s is no linked work tree of this repository", name, found[0])
		}
		return found[0], nil
	case 0:
		if len(all) == 0 {
			return "", hint.Errorf("git worktree add DIR makes one; without --worktree a task has one of its own", "worktree %q: the repository has no linked work trees", name)
		}
		return "", hint.Errorf("one of "+strings.Join(all, ", "), "no linked work tree %q", name)
	}
	return "", hint.Errorf("name one by its path: "+strings.Join(found, ", "), "worktree %q: there are %d", name, len(found))
}

// configure takes what a task needs from the repository's configuration, which git has printed.
func (r *repository) configure(settings string) {
	r.hooks = filepath.Join(r.common, "hooks")
	for setting := range strings.SplitSeq(settings, "\x00") {
		key, value, _ := strings.Cut(setting, "\n")
		remote, isURL := strings.CutSuffix(key, ".url")
		name, isRemote := strings.CutPrefix(remote, "remote.")
		switch {
		case key == "core.hookspath":
			r.hooks = value
		case key == "user.name":
			r.user.Name = value
		case key == "user.email":
			r.user.Email = value
		case key == "extensions.objectformat":
			r.format = value
		case isURL && isRemote:
			if address := withoutCredentials(value); address != "" && plainValue(name) && plainValue(address) {
				r.remotes = append(r.remotes, [2]string{name, address})
			}
		}
	}
}

// withoutCredentials is the address of a remote without a password; "" for one that cannot be read.
func withoutCredentials(address string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil && strings.Contains(address, "://"):
		return ""
	case err != nil || u.User == nil:
		return address // host:path, or a path
	case u.Scheme == "ssh":
		u.User = url.User(u.User.Username())
	default:
		u.User = nil
	}
	return u.String()
}

// plainValue reports whether a text can stand in a configuration between quotes as it is.
func plainValue(s string) bool { return s != "" && !strings.ContainsAny(s, "\"\\\n\r\x00[]") }

// maxObjectDirs bounds the object directories that others borrow from each other; git itself follows five levels.
const maxObjectDirs = 32

// objectDirs returns an object directory and those that it borrows from, as git follows them.
func objectDirs(first string) (dirs []string, err error) {
	for next := []string{first}; len(next) > 0; next = next[1:] {
		dir, err := state.Real(next[0])
		if err != nil {
			if next[0] == first {
				return nil, err
			}
			continue // git goes on without it, too
		}
		if slices.Contains(dirs, dir) {
			continue
		}
		if len(dirs) == maxObjectDirs || strings.ContainsAny(dir, "\n\"") {
			return nil, fmt.Errorf("%s: objects/info/alternates names more than %d directories, or one with a quote or a newline in its name", first, maxObjectDirs)
		}
		dirs = append(dirs, dir)
		text, err := beneath.ReadPath(filepath.Join(dir, "info/alternates"), copySize)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if line == "" || line[0] == '#' || line[0] == '"' {
				continue
			}
			if !filepath.IsAbs(line) {
				line = filepath.Join(dir, line)
			}
			next = append(next, line)
		}
	}
	return dirs, nil
}

// commit returns the commit that a name stands for.
func (r *repository) commit(ctx context.Context, name string) (string, error) {
	id, err := r.ask(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil || !isID(id, r.format) {
		return "", hint.Errorf("git log --oneline lists commits", "base %q: no such commit", name)
	}
	return id, nil
}

// tip returns the commit that a branch is at, "" where there is no such branch.
func (r *repository) tip(ctx context.Context, branch string) (string, error) {
	list, err := r.ask(ctx, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/"+branch)
	for line := range strings.SplitSeq(list, "\n") { // also the branches below it, as of a directory
		if id, is := strings.CutPrefix(line, "refs/heads/"+branch+" "); is {
			return id, err
		}
	}
	return "", err
}

// inTheWay returns a branch that stands where one is to be made: of that name, or below it as in a directory. "" for none.
func (r *repository) inTheWay(ctx context.Context, branch string) (string, error) {
	list, err := r.ask(ctx, "for-each-ref", "--count=1", "--format=%(refname)", "refs/heads/"+branch)
	return strings.TrimPrefix(list, "refs/heads/"), err
}

// checkedOut returns the work tree in which the user has a branch checked out, "" for none.
func (r *repository) checkedOut(ctx context.Context, branch string) (string, error) {
	list, err := r.ask(ctx, "for-each-ref", "--format=%(refname) %(worktreepath)", "refs/heads/"+branch)
	for line := range strings.SplitSeq(list, "\n") {
		if path, is := strings.CutPrefix(line, "refs/heads/"+branch+" "); is {
			return path, err
		}
	}
	return "", err
}

// descends reports whether a commit is another, or comes after it.
func (r *repository) descends(ctx context.Context, commit, from string) (bool, error) {
	count, err := r.ask(ctx, "rev-list", "--count", "--max-count=1", from, "^"+commit)
	return count == "0", err
}

// uncommitted counts the files of the user's work tree that differ from HEAD, and those that git does not know.
func (r *repository) uncommitted(ctx context.Context) (changed, unknown int, err error) {
	text, err := r.asks.Answer(ctx, askgit.Call{Read: append(r.dirs(), r.top), Patience: patience, Args: []string{
		"--git-dir=" + r.git, "--work-tree=" + r.top, "--no-optional-locks", "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=all",
	}}, statusSize)
	for entry := range strings.SplitSeq(text, "\x00") {
		switch {
		case strings.HasPrefix(entry, "?? "):
			unknown++
		case entry != "":
			changed++
		}
	}
	return changed, unknown, err
}

// isID reports whether a text names an object in full.
func isID(s, format string) bool {
	length := 40
	if format == "sha256" {
		length = 64
	}
	return len(s) == length && strings.Trim(s, "0123456789abcdef") == ""
}

// short is the beginning of a commit's name.
func short(id string) string { return id[:min(len(id), 7)] }

// writable reports whether a directory can be made in another that may not stand yet.
func writable(dir string) bool {
	for dir != "/" {
		info, err := os.Stat(dir)
		if err == nil {
			return info.IsDir() && canWrite(dir)
		}
		dir = filepath.Dir(dir)
	}
	return false
}
