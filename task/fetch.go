//go:build unix

package task

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run/askgit"
)

// packSize bounds what a task may bring back.
const packSize = 2 << 30

// fetchTime bounds how long git may take to read what was packed.
const fetchTime = 10 * time.Minute

// errMuch is the error for a pack that is larger.
var errMuch = fmt.Errorf("the new commits take more than %d GiB", packSize>>30)

// A Fetched is a task that is over. Its branch is in the user's repository, if there is one.
type Fetched struct {
	committed *Committed
	verdict   verdict
	changes   Changes
	elsewhere bool // commits stay that are not on the branch
}

// Fetch brings the new commits into the user's repository. They are packed in a run, and git reads the pack in a sandbox
// in which the objects of the repository can be written and the work tree does not exist.
func (d *Committed) Fetch() (*Fetched, error) {
	f := &Fetched{committed: d, verdict: d.verdict}
	var err error
	switch {
	case d.task.InPlace, d.head == "", d.head == d.task.Fetched:
	case d.head == d.task.Base && d.task.Fetched == "":
	case !isID(d.head, d.repo.format):
		err = fmt.Errorf("git names no commit in %s", d.task.Worktree)
	default:
		err = d.bring()
	}
	if err == nil && d.head != "" && d.head != d.task.Base {
		f.changes, err = d.repo.changes(d.stop.Hard, d.task.Base, d.head)
	}
	if err != nil {
		sayFailed(d.to, "the commits stay in "+d.task.Worktree, err)
		f.verdict = f.verdict.worse("its commits are not in your repository")
	}
	if elsewhere := f.notOfHead(); elsewhere != "" {
		d.to.Line(elsewhere)
		if f.elsewhere = true; d.head == d.task.Base {
			f.verdict = f.verdict.worse("its commits are not on the task's branch")
		}
	}
	return f, f.record()
}

// notOfHead says that the work tree has commits of which its HEAD has none, "" for none: of other branches, or of the stash.
func (f *Fetched) notOfHead() string {
	d := f.committed
	if d.task.InPlace || d.head == "" {
		return ""
	}
	id, err := d.printed(append([]string{"rev-list", "--max-count=1", "--all", "^" + d.head}, known(&d.task.Record)...)...)
	switch {
	case err != nil:
		return "whether " + d.task.Worktree + " has commits that are not on the task's branch is not known: " + err.Error()
	case id != "":
		return "commits that are not on the task's branch stay in " + d.task.Worktree + ", up to " + short(id)
	}
	return ""
}

// bring packs, reads, checks, and moves the branch.
func (d *Committed) bring() error {
	name := fmt.Sprintf("pack-%d", os.Getpid())
	file, err := d.task.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := d.task.root.Remove(name); err != nil { // it has no name, so that nobody who is killed leaves it
		return err
	}
	if err := d.pack(file); err != nil {
		return err
	}
	takes, err := taker(file)
	if err != nil {
		return err
	}
	r, ctx := d.repo, d.stop.Hard
	// Tasks of one repository that end at once bring their commits one after the other: they write the same directories.
	release, err := d.store.holdRepository(ctx, r.common)
	if err != nil {
		return err
	}
	defer release()
	if err := r.asks.Do(ctx, askgit.Call{
		Read: r.dirs(), Write: r.objects[:1], In: file, Patience: fetchTime,
		Args: append([]string{"--git-dir=" + r.common, "-c", "core.fsyncMethod=batch"}, takes...),
	}); err != nil {
		return fmt.Errorf("git does not take the pack: %w", err)
	}
	if is, err := r.descends(ctx, d.head, d.task.Base); err != nil || !is {
		return errors.Join(err, fmt.Errorf("commit %s does not come after %s", short(d.head), short(d.task.Base)))
	}
	// Every object that the commits need is there: git reads each of their trees.
	if _, err := r.ask(ctx, "rev-list", "--objects", "--quiet", d.head, "^"+d.task.Base); err != nil {
		return fmt.Errorf("the pack is not whole: %w", err)
	}
	return d.move()
}

// unpackLimit is from how many objects on a pack stays one, as of git's transfer.unpackLimit: a hundred small tasks leave no
// hundred packs, of which git would look into each.
const unpackLimit = 100

// taker is how git takes a pack in, with the same checks of each object. The pack is read from its beginning afterwards.
func taker(pack *os.File) ([]string, error) {
	var header struct{ Signature, Version, Objects uint32 } // gitformat-pack(5)
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if err := binary.Read(pack, binary.BigEndian, &header); err != nil {
		return nil, fmt.Errorf("git has packed nothing: %w", err)
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if header.Objects < unpackLimit {
		return []string{"unpack-objects", "-q", "--strict"}, nil
	}
	return []string{"index-pack", "--stdin", "--fix-thin", "--strict", "--fsck-objects"}, nil
}

// pack writes the commits over the base to a file.
func (d *Committed) pack(file *os.File) error {
	var failed error
	o, err := d.git(d.head+"\n^"+d.task.Base+"\n", func(r io.Reader) {
		n, err := io.Copy(file, io.LimitReader(r, packSize+1))
		if failed = err; n > packSize {
			failed = errMuch
		}
	}, "pack-objects", "-q", "--revs", "--thin", "--stdout", "--delta-base-offset")
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return err
	case o.code != 0:
		return fmt.Errorf("git cannot pack the commits: %s", o.failure())
	}
	return nil
}

// move brings the branch to the commit, from where the task has left it. It moves forward only.
func (d *Committed) move() error {
	r, t, ctx := d.repo, d.task, d.stop.Hard
	tip, err := r.tip(ctx, t.Branch)
	if err != nil {
		return err
	}
	if brought(&t.Record, tip); tip != "" && tip != t.Fetched {
		return d.moved(tip)
	}
	if err := r.free(ctx, &t.Record); err != nil {
		return err
	}
	if tip != "" {
		if is, err := r.descends(ctx, d.head, tip); err != nil || !is {
			return errors.Join(err, hint.Errorf("git branch -D "+t.Branch+" and pccrun task --continue "+t.Name+" make it anew",
				"the task has rewritten its commits: branch %s stays at %s, which %s does not come after", t.Branch, short(tip), short(d.head)))
		}
	}
	old := tip
	if old == "" {
		old = strings.Repeat("0", len(d.head))
	}
	t.Bringing = d.head
	if err := t.save(); err != nil { // whoever kills this process, or fills the disk, leaves a branch that is known to be the task's
		return err
	}
	if err := r.setReference(ctx, "-m", "pccrun task "+t.Name, "refs/heads/"+t.Branch, d.head, old); err != nil {
		return fmt.Errorf("branch %s: %w", t.Branch, err)
	}
	brought(&t.Record, d.head)
	return nil
}

// record writes what became of the task, and lets others have it.
func (f *Fetched) record() error {
	t, w := f.committed.task, f.committed.work
	defer t.close()
	w.quiet()
	defer leave(f.committed.Placed)
	w.money.cost(&w.usage, &t.Usage)
	t.State, t.Why, t.Changes = f.verdict.state, f.verdict.why, f.changes
	t.Spent += time.Since(w.began)
	w.seen.mu.Lock()
	for _, path := range f.committed.held {
		note(w.seen.findings, path)
	}
	t.Denials, t.Findings = listed(w.seen.denials), listed(w.seen.findings)
	w.seen.mu.Unlock()
	return t.save()
}

// A Result is what a task has come to.
type Result struct {
	Record
	Head      string
	Left      bool // nothing was to be committed, or could be
	Elsewhere bool // commits stay in the work tree that are not on the branch
	Status    int  // the exit status
	Agent     int  // the agent's own, which decides nothing
	Took      time.Duration
	Used      string // in words
	Hooks     string
	Runs      int // of the agent, for Until
	Checked   string
	Refused   []string // tools that the agent's own rules refused it
	Command   string   // the last one that the agent ran, and how it ended
}

// Result is what there is to say.
func (f *Fetched) Result() Result {
	d, w := f.committed, f.committed.work
	r := Result{
		Record: d.task.Record, Head: d.head, Left: d.left, Elsewhere: f.elsewhere, Status: f.verdict.code, Agent: w.last.code, Took: time.Since(w.began), Used: w.money.usedText(w.usage, d.task.Agent),
		Hooks: d.hooks, Runs: w.runs, Checked: d.checked, Refused: w.denied,
	}
	if usd := d.task.PlaceUSD; usd > 0 {
		r.Used = strings.TrimPrefix(fmt.Sprintf("%s, $%.4f for the sandbox", r.Used, usd), ", ")
	}
	if last := w.end.LastCommand; last != nil {
		r.Command = strings.TrimSpace(last.What + " " + last.Result)
	}
	return r
}

// Nothing reports whether a task has changed nothing.
func (r *Result) Nothing() bool { return r.Head == r.Base }

// isDir reports whether a directory stands at a path.
func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// removeTree removes a work tree, and the directory of work trees if it was the last.
func removeTree(path string) error {
	if err := state.RemovePath(path); err != nil {
		return err
	}
	if err := os.Remove(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil // others are in it
	}
	return nil
}

// sayFailed says what an error has come to, and what mends it.
func sayFailed(to Reporter, what string, err error) {
	to.Line(what + ": " + messages.InWords(err))
	if h := profiles.Hint(err); h != "" {
		to.Line("hint: " + h)
	}
}
