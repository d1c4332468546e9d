//go:build unix

package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/task/agent"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// recordVersion is the schema of task.json.
const recordVersion = 1

// A State is how far a task has come.
type State string

// The states.
const (
	Working State = "working" // a process works at it, or was killed
	Done    State = "done"    // it has succeeded
	Failed  State = "failed"  // it has not
	Stopped State = "stopped" // a signal or the time ended it
)

// A Record is what is kept of a task: task.json of its directory.
type Record struct {
	V            int
	Name         string
	Key          string // of its directory
	Repository   string // the top of the user's work tree
	Common       string // its git directory
	Worktree     string // "" until the clone is made
	Unfilled     bool   // not all files are there yet: nothing has worked at it
	InPlace      bool   // the work tree is the user's own
	Branch       string
	Base         string // a commit
	BaseName     string
	Agent        string
	Version      string // of the agent
	Model        string
	Conversation string
	Prompt       string
	State        State
	Place        []string // flags of run that say where; nil for this machine
	Image        string
	Worker       sessions.Process // that works at it, or has last
	Why          string           // it has not succeeded
	Begun        time.Time
	Spent        time.Duration
	Fetched      string // the commit that the branch was last brought to, "" for none
	Bringing     string // the commit that it is about to be brought to: whoever is killed meanwhile leaves the branch at one or the other
	Usage        agent.Usage
	PlaceUSD     float64     // what the sandboxes have cost, beside that
	Brought      []string    // sessions at a cloud whose changes are in the work tree, but for what was held back
	Conversed    agent.Usage // what the whole conversation had used when it was last counted
	Changes      Changes
	Kept
	Denials  []string
	Findings []string
	Message  string // the agent's last
}

// Kept is what a user gives with a task and holds when it goes on, until something else is given.
type Kept struct {
	Flags   []string // of each run, as for a run in the work tree
	Profile string   // of the agent's phases; "" for the agent's own
	Args    []string // the agent's own
	Timeout time.Duration
	User    Identity
	Check   string // a shell's command that decides
	Until   string // a shell's command: the agent goes on until it succeeds
	MaxRuns int    // how often the agent may run for Until; 0 without
}

// Words are what is shown of it, as on a command line: of a variable that is set, its name alone.
func (k *Kept) Words() (words []string) {
	if k.Profile != "" {
		words = append(words, "--profile", k.Profile)
	}
	for i, word := range k.Flags {
		if name, _, set := strings.Cut(word, "="); set && i > 0 && k.Flags[i-1] == "--env" {
			word = name + "=..."
		}
		words = append(words, word)
	}
	for _, f := range [][2]string{{"--check", k.Check}, {"--until", k.Until}} {
		if f[1] != "" {
			words = append(words, f[0], f[1])
		}
	}
	if len(k.Args) > 0 {
		words = append(append(words, "--"), k.Args...)
	}
	return words
}

// withoutSecrets is what a record may have of it: a flag whose value holds a secret is given anew with each order, and so are the
// agent's arguments where one does.
func (k Kept) withoutSecrets(to Reporter) Kept {
	secret := func(word string) bool {
		found, err := filesync.SecretsIn("flags", []byte(word))
		return err != nil || len(found) > 0
	}
	flags := k.Flags
	k.Flags = nil
	for i, word := range flags {
		if secret(word) {
			name, _, has := strings.Cut(word, "=")
			if !has {
				name = "..."
			}
			to.Line(flags[i-1] + " " + name + " holds a secret: it is not kept, and --continue needs it anew")
			k.Flags = k.Flags[:len(k.Flags)-1]
			continue
		}
		k.Flags = append(k.Flags, word)
	}
	if slices.ContainsFunc(k.Args, secret) {
		to.Line("an argument of the agent holds a secret: none is kept, and --continue needs them anew")
		k.Args = nil
	}
	return k
}

// Changes counts what a branch has over its base.
type Changes struct{ Commits, Files, Added, Removed int }

// A Store holds the records of a user's tasks.
type Store struct{ dir string }

// StoreIn returns the records below a state directory.
func StoreIn(stateDir string) Store { return Store{filepath.Join(stateDir, "tasks")} }

// Path is the directory of a task's record.
func (s Store) Path(r Record) string { return filepath.Join(s.dir, r.Key) }

// A Task is a record, with the lock that keeps others from it.
type Task struct {
	Record
	root  *os.Root
	locks []*state.Lock
}

// ErrUnread is wrapped by errors of a record that cannot be read: the other tasks are listed all the same.
var ErrUnread = errors.New("passed over")

// ErrRunning is wrapped by errors of a task that another process works at.
var ErrRunning = errors.New("another pccrun works at it")

const (
	recordFile = "task.json"
	lockFile   = "lock"
	recordSize = 4 << 20
)

// begin makes the directory of a task. The error is [fs.ErrExist] where the name is taken.
func (s Store) begin(r Record, workspace string) (*Task, error) {
	all, err := state.Open(s.dir, workspace)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	// A directory without a record is one whose maker was killed, or has not written it yet: the lock tells which.
	err = all.Mkdir(r.Key, 0o700)
	if err != nil && (!errors.Is(err, fs.ErrExist) || recorded(all, r.Key)) {
		return nil, err
	}
	t, err := s.take(all, r)
	if err != nil {
		return nil, err
	}
	if recorded(all, r.Key) { // another process has made it meanwhile
		t.close()
		return nil, fs.ErrExist
	}
	t.Record = r
	if err := t.save(); err != nil {
		return nil, errors.Join(err, t.forget(s))
	}
	return t, nil
}

// recorded reports whether a directory of the store may hold a record.
func recorded(all *os.Root, key string) bool {
	_, err := all.Lstat(filepath.Join(key, recordFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// take locks a task, and the work tree of the user's own that it works in.
func (s Store) take(all *os.Root, r Record) (*Task, error) {
	root, err := all.OpenRoot(r.Key)
	if err != nil {
		return nil, err
	}
	t := &Task{root: root}
	err = t.hold(root, lockFile)
	if err == nil && r.InPlace {
		if err = t.hold(all, keyOf(".in-place", r.Worktree)); errors.Is(err, ErrRunning) {
			err = hint.Errorf("wait for it: pccrun task list names it", "work tree %s: %w", r.Worktree, err)
		}
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// hold takes a lock, which the end of this process releases too.
func (t *Task) hold(root *os.Root, name string) error {
	lock, err := state.TryLock(root, name)
	switch {
	case errors.Is(err, state.ErrLocked):
		return ErrRunning
	case err != nil:
		return err
	}
	t.locks = append(t.locks, lock)
	return nil
}

// holdRepository keeps other tasks from writing into a repository, until release is called or this process ends. It waits for
// those that write.
func (s Store) holdRepository(ctx context.Context, common string) (release func(), err error) {
	all, err := state.OpenExisting(s.dir, "")
	if err != nil {
		return nil, err
	}
	name := keyOf(".fetch", common)
	for {
		lock, err := state.WaitLock(ctx, all, name)
		if err != nil {
			all.Close()
			return nil, err
		}
		if lock.Names(all, name) {
			return func() {
				_ = all.Remove(name)
				_ = lock.Release()
				all.Close()
			}, nil
		}
		_ = lock.Release() // whoever had it has removed the file
	}
}

// Open takes a task to work at it.
func (s Store) Open(r Record) (*Task, error) {
	all, err := state.OpenExisting(s.dir, "")
	if err != nil {
		return nil, err
	}
	defer all.Close()
	t, err := s.take(all, r)
	if errors.Is(err, ErrRunning) {
		return nil, hint.Errorf("wait for it, or interrupt it", "task %s: %w", r.Name, err)
	} else if err != nil {
		return nil, err
	}
	if t.Record, err = read(all, r.Key); err != nil { // it may have changed before it was locked
		t.close()
		return nil, err
	}
	return t, nil
}

// save writes the record.
func (t *Task) save() error {
	t.V = recordVersion
	text, err := json.MarshalIndent(t.Record, "", "  ")
	if err != nil {
		return err
	}
	if len(text) >= recordSize { // it could not be read again
		return fmt.Errorf("task %s: its record would take %d bytes: want less than %d", t.Name, len(text), recordSize)
	}
	return state.WriteFile(t.root, recordFile, append(text, '\n'), state.Durable)
}

// brought takes in that the branch is where it was about to be brought: whoever brought it there was killed before it was noted.
func brought(r *Record, tip string) {
	if tip != "" && tip == r.Bringing {
		r.Fetched, r.Bringing = tip, ""
	}
}

// checkWorktree refuses a record whose work tree is the user's own, though the task has not worked in place.
func (s Store) checkWorktree(r *Record) error {
	if r.InPlace || r.Worktree == "" {
		return nil
	}
	for _, path := range []string{r.Repository, r.Common} {
		if _, within := beneath.Path(r.Worktree, path); within {
			return hint.Errorf("delete the record: "+filepath.Join(s.dir, r.Key), "task %s: its record has your own repository for the work tree: %s", r.Name, r.Worktree)
		}
	}
	return nil
}

// close lets others have the task.
func (t *Task) close() {
	for _, lock := range t.locks {
		_ = lock.Release()
	}
	_ = t.root.Close()
}

// forget removes the record.
func (t *Task) forget(s Store) error {
	all, err := state.OpenExisting(s.dir, "")
	if err != nil {
		return err
	}
	defer all.Close()
	defer t.close()
	return state.RemoveAll(all, t.Key)
}

// read returns the record in a directory of the store.
func read(all *os.Root, key string) (r Record, err error) {
	text, err := state.ReadFile(all, filepath.Join(key, recordFile), recordSize)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("task %s: %w", key, err)
	}
	isCommit := func(id string) bool { return isID(id, "sha1") || isID(id, "sha256") }
	if r.V != recordVersion || r.Key != key || r.Name == "" || r.InPlace && r.Worktree == "" || !isCommit(r.Base) || r.Fetched != "" && !isCommit(r.Fetched) {
		return r, fmt.Errorf("task %s: a record of another version of pccrun, or a damaged one", key)
	}
	return r, nil
}

// List returns the records of all tasks, the oldest first, and what is wrong with those that cannot be read.
func (s Store) List() (list []Record, err error) {
	all, err := state.OpenExisting(s.dir, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer all.Close()
	dir, err := all.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	var wrong []error
	for _, name := range names {
		r, err := read(all, name)
		if errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(name, ".") {
			continue
		} else if err != nil {
			wrong = append(wrong, fmt.Errorf("%w: %w", ErrUnread, err))
			continue
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Record) int { return a.Begun.Compare(b.Begun) })
	return list, errors.Join(append(wrong, err)...)
}

// Find returns the task of a name: of the repository at top, if it has one, else the only one.
func (s Store) Find(name, top string) (Record, error) {
	list, err := s.List()
	common := CommonDir(top)
	var found []Record
	for _, r := range list {
		if r.Name != name {
			continue
		}
		if r.Worktree == top || common != "" && r.Common == common {
			return r, nil
		}
		found = append(found, r)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Record{}, hint.Errorf("start pccrun in the repository that is meant", "task %q: %d repositories have one of that name", name, len(found))
	case err != nil:
		return Record{}, err
	}
	return Record{}, hint.Errorf("pccrun task list lists them", "no task %q", name)
}

// Running reports whether a process works at a task.
func (s Store) Running(r Record) bool {
	all, err := state.OpenExisting(s.dir, "")
	if err != nil {
		return false
	}
	defer all.Close()
	held, err := state.Locked(all, filepath.Join(r.Key, lockFile))
	return held && err == nil
}
