//go:build unix

package task

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/askgit"
	"github.com/pccrun/pccrun/task/agent"
)

// A Checkpoint is a task as it was: its commit, which a reference of the user's repository keeps, and a copy of the agent's
// conversation. Any number of tasks can begin there.
type Checkpoint struct {
	V            int
	Name         string
	Task         string
	Repository   string
	Common       string
	Commit       string
	Worktree     string
	Agent, Model string
	Conversation string
	Made         time.Time
}

// checkpointVersion is the schema of a checkpoint's record.
const checkpointVersion = 1

// checkpointsIn opens the directory of all checkpoints.
func checkpointsIn(s Store, workspace string) (*os.Root, error) {
	return state.Open(filepath.Join(filepath.Dir(s.dir), "checkpoints"), workspace)
}

// reference keeps the commit of a checkpoint.
func reference(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "refs/pccrun/checkpoints/" + hex.EncodeToString(sum[:8])
}

// MakeCheckpoint keeps what a task has come to, under a name that is not taken; "" for one of its own.
func MakeCheckpoint(ctx context.Context, s Store, r Record, name string) (c Checkpoint, err error) {
	if name == "" {
		name = r.Name + "-" + time.Now().UTC().Format("20060102T150405Z")
	}
	if err := run.CheckSnapshotName(name); err != nil {
		return c, err
	}
	t, err := s.Open(r)
	if errors.Is(err, ErrRunning) {
		return c, hint.Errorf("pccrun task stop "+r.Name+" interrupts it, and what stands is committed", "task %s: %w", r.Name, ErrRunning)
	} else if err != nil {
		return c, err
	}
	defer t.close()
	c = Checkpoint{
		V: checkpointVersion, Name: name, Task: t.Name, Repository: t.Repository, Common: t.Common, Commit: t.Fetched, Worktree: t.Worktree,
		Agent: t.Agent, Model: t.Model, Conversation: t.Conversation, Made: time.Now().UTC(),
	}
	switch {
	case t.InPlace:
		return c, hint.Errorf("git tag keeps a commit of yours", "task %s works in place, and has no commit of its own", t.Name)
	case c.Commit == "":
		c.Commit = t.Base
	}
	all, err := checkpointsIn(s, t.Repository)
	if err != nil {
		return c, err
	}
	defer all.Close()
	if err := all.Mkdir(name, 0o700); errors.Is(err, fs.ErrExist) {
		return c, hint.Errorf("name another, or pccrun checkpoint rm "+name, "checkpoint %s: it stands already", name)
	} else if err != nil {
		return c, err
	}
	repo, err := open(ctx, t.Repository)
	if err == nil {
		err = repo.setReference(ctx, "-m", "pccrun checkpoint "+name, reference(name), c.Commit)
	}
	refers := err == nil
	if err == nil {
		err = keepConversation(s, &c, filepath.Join(all.Name(), name))
	}
	if err == nil { // it stands when it is whole
		var text []byte
		if text, err = json.MarshalIndent(c, "", "  "); err == nil {
			err = state.WriteFile(all, filepath.Join(name, recordFile), append(text, '\n'), state.Durable)
		}
	}
	if err != nil {
		if refers {
			err = errors.Join(err, repo.setReference(context.WithoutCancel(ctx), "-d", reference(name)))
		}
		err = errors.Join(err, state.RemoveAll(all, name))
	}
	return c, err
}

// setReference has git write one reference of the repository, as update-ref has it.
func (r *repository) setReference(ctx context.Context, args ...string) error {
	return r.asks.Do(ctx, askgit.Call{
		Read: r.borrowed(), Write: []string{r.common}, Patience: patience, Args: append([]string{"--git-dir=" + r.common, "update-ref", "--no-deref"}, args...),
	})
}

// keepConversation copies the agent's conversations out of its home in the work tree.
func keepConversation(s Store, c *Checkpoint, to string) error {
	a, known := agent.Named(c.Agent)
	list, err := homes.List(filepath.Dir(s.dir))
	if !known || c.Conversation == "" || err != nil {
		return err
	}
	for _, e := range list { // the last used first
		if e.Record.Workspace.Path == c.Worktree && e.Record.Name == c.Agent && e.Bad == "" {
			return copyConversations(a, filepath.Join(filepath.Dir(s.dir), homes.DirName, e.Key, "home"), to, func(name string) string { return name })
		}
	}
	return nil
}

// copyConversations copies the directories that there are from a home into another.
func copyConversations(a *agent.Agent, from, to string, as func(name string) string) error {
	home, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer home.Close()
	for _, dir := range a.Conversations {
		root, err := home.OpenRoot(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		err = homes.Replace(to, dir, root, as)
		root.Close()
		if err != nil {
			return fmt.Errorf("the agent's ~/%s: %w", dir, err)
		}
	}
	return nil
}

// Checkpoints lists all, the oldest first.
func Checkpoints(s Store) (list []Checkpoint, err error) {
	all, err := state.OpenExisting(filepath.Join(filepath.Dir(s.dir), "checkpoints"), "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer all.Close()
	entries, err := fs.ReadDir(all.FS(), ".")
	for _, e := range entries {
		text, e := state.ReadFile(all, filepath.Join(e.Name(), recordFile), recordSize)
		if errors.Is(e, fs.ErrNotExist) { // whoever made it was killed
			continue
		}
		var c Checkpoint
		if e == nil {
			e = json.Unmarshal(text, &c)
		}
		if e == nil && (c.V != checkpointVersion || !isID(c.Commit, "sha1") && !isID(c.Commit, "sha256")) {
			e = fmt.Errorf("a checkpoint of another version of pccrun, or a damaged one")
		}
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Checkpoint) int { return a.Made.Compare(b.Made) })
	return list, err
}

// FindCheckpoint returns the one of a name.
func FindCheckpoint(s Store, name string) (Checkpoint, error) {
	list, err := Checkpoints(s)
	for _, c := range list {
		if c.Name == name {
			return c, nil
		}
	}
	if err != nil {
		return Checkpoint{}, err
	}
	return Checkpoint{}, hint.Errorf("pccrun checkpoint list lists them", "no checkpoint %q", name)
}

// RemoveCheckpoint removes one, and the reference that keeps its commit.
func RemoveCheckpoint(ctx context.Context, s Store, name string) error {
	c, err := FindCheckpoint(s, name)
	if err != nil {
		return err
	}
	if repo, e := open(ctx, c.Repository); e == nil { // it may be gone
		err = repo.setReference(ctx, "-d", reference(c.Name))
	}
	all, e := checkpointsIn(s, c.Repository)
	if e != nil {
		return errors.Join(err, e)
	}
	defer all.Close()
	return errors.Join(err, state.RemoveAll(all, c.Name))
}

// begins has a task begin at a checkpoint: at its commit, and with its conversation, if the agent is the same.
func (c *Checkpoint) begins(o *Order, common string) error {
	if c.Common != common {
		return hint.Errorf("start it there: "+c.Repository, "checkpoint %s is of another repository", c.Name)
	}
	o.Base = c.Commit
	return nil
}

// resume copies the conversation of a checkpoint into the home that the agent will have in the work tree of a task.
func (c *Checkpoint) resume(p *Placed) error {
	a := p.order.Agent
	if c.Agent != a.Name || c.Conversation == "" {
		return nil
	}
	home, err := homes.For(filepath.Dir(p.store.dir), p.task.Worktree, p.order.Policy)
	if err != nil {
		return err
	}
	defer home.Close()
	from, to := filepath.Base(c.Worktree), filepath.Base(p.task.Worktree)
	err = copyConversations(a, filepath.Join(filepath.Dir(p.store.dir), "checkpoints", c.Name), home.Path, func(name string) string { return conversationAs(name, from, to) })
	if err == nil {
		p.task.Conversation, p.task.Model = c.Conversation, c.Model
		err = p.task.save()
	}
	return err
}

var notPlain = regexp.MustCompile(`[^A-Za-z0-9]`)

// conversationAs is what a file of an agent's conversations is called in another work tree: agents keep them by the path, in which
// Claude Code writes a dash for what is no letter or digit, or by its last element. Work trees of a repository lie beside each other.
func conversationAs(name, from, to string) string {
	first, rest, below := strings.Cut(name, "/")
	dashed := "-" + notPlain.ReplaceAllString(from, "-")
	switch {
	case first == from:
		first = to
	case strings.HasSuffix(first, dashed):
		first = strings.TrimSuffix(first, dashed) + "-" + notPlain.ReplaceAllString(to, "-")
	}
	if !below {
		return first
	}
	return path.Join(first, rest)
}
