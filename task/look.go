//go:build unix

package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/askgit"
)

var statWord = regexp.MustCompile(`(\d+) (file|insertion|deletion)`)

// changes counts what commits have over a base.
func (r *repository) changes(ctx context.Context, base, head string) (c Changes, err error) {
	n, err := r.ask(ctx, "rev-list", "--count", head, "^"+base)
	if err != nil {
		return c, err
	}
	c.Commits = atoi(n)
	text, err := r.ask(ctx, "diff-tree", "--shortstat", "--no-ext-diff", "--no-textconv", "-r", base, head)
	for _, m := range statWord.FindAllStringSubmatch(text, -1) {
		switch m[2] {
		case "file":
			c.Files = atoi(m[1])
		case "insertion":
			c.Added = atoi(m[1])
		case "deletion":
			c.Removed = atoi(m[1])
		}
	}
	return c, err
}

// atoi is a number that git has printed, 0 for none.
func atoi(text string) int { n, _ := strconv.Atoi(text); return n }

// A View is what is to be said of a task from outside: by its record, and by commits of the user's repository.
type View struct {
	Record
	Running bool
	Killed  bool   // what worked at it was killed
	Tip     string // of its branch now, "" for none
	Merged  bool   // another branch has its commits
}

// Views returns what there is to say of tasks.
func Views(ctx context.Context, s Store, list []Record) (views []View) {
	repos := map[string]*repository{}
	for _, r := range list {
		v := View{Record: r, Running: s.Running(r)}
		v.Killed = r.State == Working && !v.Running
		repo, known := repos[r.Repository]
		if !known {
			repo, _ = open(ctx, r.Repository) // it may be gone, and the task is listed all the same
			repos[r.Repository] = repo
		}
		if repo != nil && !r.InPlace {
			v.Tip, _ = repo.tip(ctx, r.Branch)
			brought(&v.Record, v.Tip)
			v.Merged, _ = repo.merged(ctx, v.Record)
		}
		views = append(views, v)
	}
	return views
}

// merged reports whether what was fetched of a task is in another branch than its own.
func (r *repository) merged(ctx context.Context, t Record) (bool, error) {
	if t.Fetched == "" {
		return false, nil
	}
	names, err := r.ask(ctx, "for-each-ref", "--format=%(refname)", "--contains="+t.Fetched, "refs/heads", "refs/remotes")
	return slices.ContainsFunc(strings.Fields(names), func(name string) bool { return name != "refs/heads/"+t.Branch }), err
}

// Diff writes what a task's branch has over its base, as git prints it: by no program but git.
func Diff(ctx context.Context, t Record, options []string, to io.Writer) error {
	if t.Fetched == "" {
		return hint.Errorf("pccrun task show "+t.Name, "task %s: it has no branch: nothing was committed, or it was not brought back", t.Name)
	}
	repo, err := open(ctx, t.Repository)
	if err != nil {
		return err
	}
	args := slices.Concat([]string{"--git-dir=" + repo.git, "diff", "--no-ext-diff", "--no-textconv"}, options, []string{t.Base, t.Fetched, "--"})
	return repo.asks.Do(ctx, askgit.Call{Read: repo.dirs(), Args: args, Out: to, Patience: fetchTime})
}

// unsaved says what of a task's work tree is nowhere else, "" for nothing.
func unsaved(ctx context.Context, s Store, t Record) (string, error) {
	if t.InPlace || t.Unfilled {
		return "", nil
	}
	list, err := sessions.In(filepath.Dir(s.dir)).List()
	if err != nil {
		return "", err
	}
	for i := range list {
		if e := &list[i]; e.Unfetched && e.Workspace == t.Worktree {
			return "changes that only a cloud has (pccrun download " + e.ID + ")", nil
		}
	}
	if !isDir(t.Worktree) {
		return "", nil
	}
	wt, err := open(ctx, t.Worktree)
	if err != nil {
		return "", err
	}
	// Also those of other branches, of tags and of the stash.
	lost, err := wt.ask(ctx, append([]string{"rev-list", "--max-count=1", "--all", "HEAD"}, known(&t)...)...)
	if err != nil {
		return "", err
	}
	if lost != "" {
		return "commits that are in no branch, up to " + short(lost), nil
	}
	changes, err := wt.asks.Answer(ctx, askgit.Call{Read: wt.dirs(), Patience: patience, Args: append([]string{"--git-dir=" + wt.git}, rawChanges(t.Base)...)}, statusSize)
	if err != nil {
		return "", err
	}
	if within, err := repositoryWithin(strings.NewReader(changes)); err != nil || within != "" {
		return "a repository of its own in " + within, err
	}
	changed, unknown, err := wt.uncommitted(ctx)
	if err == nil && changed+unknown > 0 {
		return uncommittedText(changed, unknown) + " not committed", nil
	}
	return "", err
}

// known are arguments of rev-list that leave out what the user's repository has of a task.
func known(r *Record) []string {
	known := []string{"^" + r.Base}
	if r.Fetched != "" {
		known = append(known, "^"+r.Fetched)
	}
	return known
}

// Remove removes a task: its work tree with the homes that its runs had, its record, and its branch where another has its commits. With force it removes
// them whatever is lost. It returns what it leaves, and why.
func Remove(ctx context.Context, s Store, r Record, force bool) (left string, err error) {
	t, err := s.Open(r)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if err := s.checkWorktree(&t.Record); err != nil {
		return "", err
	}
	if !t.InPlace && t.Bringing != "" {
		if repo, err := open(ctx, t.Repository); err == nil { // it may be gone
			tip, _ := repo.tip(ctx, t.Branch)
			brought(&t.Record, tip)
		}
	}
	if r = t.Record; !force {
		lost, err := unsaved(ctx, s, r)
		if err != nil {
			lost = "work that git cannot list: " + messages.InWords(err)
		}
		if lost != "" {
			return "", hint.Errorf("pccrun task rm --force "+r.Name+" removes the task all the same", "task %s: its work tree %s has %s", r.Name, r.Worktree, lost)
		}
	}
	if err := endLeftovers(r); err != nil {
		return "", err
	}
	if left, err = removeBranch(ctx, r, force); err != nil {
		return "", err
	}
	if !r.InPlace && r.Worktree != "" {
		if err := errors.Join(removeTree(r.Worktree), removeHomes(s, r.Worktree)); err != nil {
			return "", err
		}
	}
	return left, t.forget(s)
}

// removeHomes removes the persistent homes of a work tree: nothing works there any more.
func removeHomes(s Store, worktree string) error {
	stateDir := filepath.Dir(s.dir)
	list, _ := homes.List(stateDir) // one that goes at this moment ends the list; what stays goes when it is old
	var err error
	for i := range list {
		if list[i].Record.Workspace.Path == worktree {
			err = errors.Join(err, homes.Remove(stateDir, list[i].Key))
		}
	}
	return err
}

// removeBranch deletes a task's branch, if it is where the task has left it.
func removeBranch(ctx context.Context, t Record, force bool) (left string, err error) {
	if t.InPlace || t.Fetched == "" {
		return "", nil
	}
	repo, err := open(ctx, t.Repository)
	if err != nil {
		if force {
			return "", nil // the repository is gone
		}
		return "", err
	}
	tip, err := repo.tip(ctx, t.Branch)
	if err != nil || tip == "" {
		return "", err
	}
	merged, err := repo.merged(ctx, t)
	at, wrong := repo.checkedOut(ctx, t.Branch)
	switch err = errors.Join(err, wrong); {
	case err != nil:
		return "", err
	case tip != t.Fetched:
		return "branch " + t.Branch + " stays: it is at " + short(tip) + ", and the task left it at " + short(t.Fetched), nil
	case !merged && !force:
		return "branch " + t.Branch + " stays: no other branch has its commits (git branch -D " + t.Branch + " deletes it)", nil
	case at != "":
		return "branch " + t.Branch + " stays: it is checked out in " + at, nil
	}
	return "", repo.setReference(ctx, "-d", "refs/heads/"+t.Branch, tip)
}

// endLeftovers ends runs that go on in the work tree of a task though whoever has started them was killed. Where nobody was
// killed at work such a run is the user's own: that is an error.
func endLeftovers(t Record) error {
	if t.InPlace || t.Worktree == "" {
		return nil
	}
	home, err := run.Sessions()
	if err != nil {
		return nil // there are none
	}
	list, _ := home.List()
	for _, e := range list {
		switch {
		case e.State != sessions.Running || e.Workspace != t.Worktree:
		case t.State != Working:
			return hint.Errorf("pccrun kill "+e.ID+" ends it", "task %s: a run of yours goes on in %s", t.Name, t.Worktree)
		default:
			_ = home.Kill(e, syscall.SIGKILL, impatience)
		}
	}
	return nil
}

// End interrupts whatever works at a task, as Ctrl-C does: what stands is committed and comes back. It waits for that. With force
// what goes on then is ended at once.
func End(s Store, r Record, wait time.Duration, force bool) error {
	if !s.Running(r) {
		return hint.Errorf("pccrun task list says how tasks stand", "task %s: nobody works at it", r.Name)
	}
	_ = r.Worker.Signal(syscall.SIGCONT, 0) // one that is stopped, as by Ctrl-Z, would not hear of it
	err := r.Worker.Signal(syscall.SIGINT, wait)
	if force && errors.Is(err, sessions.ErrAlive) { // the second one ends all at once
		err = r.Worker.Signal(syscall.SIGINT, wait)
	}
	switch {
	case errors.Is(err, sessions.ErrGone):
		if s.Running(r) {
			return hint.Errorf("try again", "task %s: it has just been taken up", r.Name)
		}
		return nil // it has ended meanwhile
	case errors.Is(err, sessions.ErrAlive):
		err = hint.Errorf("pccrun task stop --force "+r.Name+" ends it at once", "%w", err)
	}
	if err != nil {
		return fmt.Errorf("task %s: %w", r.Name, err)
	}
	return nil
}

// Clean removes the tasks that need nobody any more: those whose commits another branch has, and those that have none. It
// returns the names of what it removed.
func Clean(ctx context.Context, s Store, list []Record) (removed []string, err error) {
	for _, v := range Views(ctx, s, list) {
		if v.Running || v.Killed || v.InPlace || v.Fetched != "" && !v.Merged {
			continue
		}
		if lost, e := unsaved(ctx, s, v.Record); e != nil || lost != "" {
			continue
		}
		if _, e := Remove(ctx, s, v.Record, false); e != nil {
			err = errors.Join(err, e)
			continue
		}
		removed = append(removed, v.Name)
	}
	return removed, err
}
