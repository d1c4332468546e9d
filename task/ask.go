//go:build unix

package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/task/agent"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// An Order is what the user asks for.
type Order struct {
	Prompt   string
	Name     string // "" for one that the prompt gives
	Continue bool   // go on with the task of that name
	Agent    *agent.Agent
	Model    string
	Kept

	Dir          string // where work trees are made, in a directory of the repository's name; "" for the usual places
	BranchPrefix string // "" for task/

	Base         string   // "" for HEAD
	From         string   // a checkpoint to begin at; "" for none
	Copy         []string // patterns of ignored files that the clone gets a copy of, beside those of .worktreeinclude
	Prepare      string   // a shell's command that runs before the agent
	PrepareAllow []string // hosts that it reaches, and the agent does not
	Commit       string   // a message; "" for one of the prompt and the agent's last words
	Leave        bool     // commit nothing
	InPlace      bool     // work in the user's own work tree
	Dirty        bool     // begin with what the user has not committed

	Budget      spending.USD // of the requests to model APIs from now on; 0: that of an earlier order, or none
	Prices      string       // the user's own, as package meter reads them; "" for none
	Spending    string       // a file that other tasks count in too: see [Store.Together]; "" for none
	Place       []string     // flags that say where the runs are; nil for this machine
	Image       string       // of a container, whose programs are executed; "" for this machine's
	Keep        bool         // the sandbox at a cloud stands afterwards
	Installs    profiles.AgentSettings
	SkipsUpdate bool // an agent that is there is taken, whatever its version
	Notifier    Notifier
	Policy      *profiles.Policy // of the agent's run, as it would be in the user's work tree
	Workspace   string           // the top of the user's repository
	Home        string
	Program     run.Program // which reaches what a killed run has at a cloud
}

// A Reporter is who is shown what happens. Texts are as they came: whoever prints them escapes them.
type Reporter interface {
	Line(text string)
	Step(since time.Duration, step agent.Step)
	Denied(since time.Duration, denial events.Denial)
	AgentRuns() // at each of its runs: it was not refused
}

// An Asked is an order whose repository has been looked at, and nothing made.
type Asked struct {
	order Order
	repo  *repository
	from  *Checkpoint // nil for none
	base  string      // a commit
	named string      // what it was asked for as
	taken bool        // a branch stands that the task's would lie below
	store Store
	to    Reporter
	stop  Stop
}

// Ask looks at what an order is about, and refuses what cannot be done.
func Ask(stop Stop, store Store, to Reporter, o Order) (*Asked, error) {
	ctx := stop.Hard
	if o.Name != "" {
		if err := CheckName(o.Name); err != nil {
			return nil, err
		}
	}
	if o.BranchPrefix == "" {
		o.BranchPrefix = branchPrefix
	} else if err := checkPrefix(o.BranchPrefix); err != nil {
		return nil, err
	}
	repo, err := open(ctx, o.Workspace)
	if err != nil {
		return nil, err
	}
	if _, within := beneath.Path(repo.top, o.Dir); within && o.Dir != "" {
		return nil, hint.Errorf("name one outside of it", "task.dir %s lies in the repository", o.Dir)
	}
	var from *Checkpoint
	if o.From != "" {
		c, err := FindCheckpoint(store, o.From)
		if err == nil {
			err = c.begins(&o, repo.common)
		}
		if err != nil {
			return nil, err
		}
		from = &c
	}
	a := &Asked{from: from, order: o, repo: repo, store: store, to: to, stop: stop, named: cmp.Or(o.From, o.Base)}
	if a.named == "" {
		a.named = repo.branch
	}
	name := o.Base
	if name == "" {
		name = "HEAD"
	}
	if a.base, err = repo.commit(ctx, name); err != nil {
		return nil, err
	}
	if err := checkImage(stop, store, &a.order, repo.top); err != nil {
		return nil, err
	}
	for i, c := range o.BranchPrefix {
		if c != '/' || a.taken {
			continue
		}
		tip, err := repo.tip(ctx, o.BranchPrefix[:i])
		if a.taken = tip != ""; err != nil {
			return nil, err
		}
	}
	return a, nil
}

// A Placed is a task with a work tree in which its base is checked out.
type Placed struct {
	order  Order
	repo   *repository
	task   *Task
	store  Store
	to     Reporter
	stop   Stop
	fresh  bool // nothing has worked at it yet
	copies copyList
	money  *money
	held   []string // paths that were changed at a cloud and not written here: a host tool would execute them
}

// attempts bounds how often another name is made where one is taken.
const attempts = 8

// Place makes the work tree, and has git check the base out in a run.
func (a *Asked) Place() (*Placed, error) {
	ctx := a.stop.Hard
	var p *Placed
	var copies copyList
	var err error
	if !a.order.InPlace {
		if copies, err = a.repo.wanted(ctx, a.order.Copy, a.order.Policy); err != nil {
			return nil, err
		}
		a.repo.exclude = append(a.repo.exclude, copies.excludes()...)
	}
	for range attempts {
		name := a.order.Name
		if name == "" {
			name = NameFor(a.order.Prompt)
		}
		p, err = a.begin(ctx, name)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
		if err = hint.Errorf("pccrun task --continue "+name+" goes on with it, pccrun task rm "+name+" removes it", "task %s stands already", name); a.order.Name != "" {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if p.money, err = openMoney(p); err != nil {
		return nil, errors.Join(err, p.task.forget(a.store))
	}
	if a.order.InPlace {
		return p, nil
	}
	if err := cloneFor(p, a); err != nil {
		return nil, errors.Join(err, p.task.forget(a.store))
	}
	p.copies = copies
	err = p.fill()
	if err == nil && a.from != nil {
		err = a.from.resume(p)
	}
	if err != nil {
		return nil, errors.Join(err, p.Undo())
	}
	return p, nil
}

// fill makes the files of the work tree.
func (p *Placed) fill() error {
	identity := p.gitPhase(append(p.identity(), "var", "GIT_COMMITTER_IDENT")...)
	identity.place = nil
	o, err := runGit(p, identity)
	if err != nil {
		return err
	}
	if err := o.refusal("checkout"); err != nil {
		return err
	}
	if o.code != 0 && !p.order.Leave {
		return hint.Errorf("git config --global user.name NAME and user.email ADDRESS, or --git-user NAME --git-email ADDRESS", "git does not know whom commits are to be by")
	}
	if p.order.Dirty {
		if err := takeUncommitted(p); err != nil {
			return fmt.Errorf("what is not committed cannot be taken along: %w", err)
		}
	}
	if err := p.checkout(); err != nil {
		return err
	}
	if err := p.copies.copyTo(p.task.Worktree, p.repo.top); err != nil {
		return err
	}
	p.task.Unfilled = false
	return p.task.save()
}

// takeUncommitted makes a first commit of what the user has not committed. Git adds it in a run that
// sees the user's work tree as the user's rules have it, read-only, and writes the clone's git directory.
func takeUncommitted(p *Placed) error {
	changed, unknown, err := p.repo.uncommitted(p.stop.Hard)
	if err != nil || changed+unknown == 0 {
		return err
	}
	own := filepath.Join(p.task.Worktree, ".git")
	hidden, _, err := tracked(p, p.repo.git)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"read-tree", "HEAD"}, {"add", "-A", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul"}} {
		o, err := phase{
			in:  except(hidden),
			dir: p.repo.top, flags: append(p.flags("default"), "--read", p.repo.top, "--write", own), keepOn: true,
			command: slices.Concat(plainGit, []string{"--git-dir=" + own, "--work-tree=" + p.repo.top}, args),
		}.runIn(p)
		if err == nil {
			err = o.refusal("git " + args[0])
		}
		if failure := o.failure(); err == nil && failure != "" {
			if err = errors.New(failure); args[0] == "add" {
				p.to.Line("not all of it can be taken along: " + failure)
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
	commit := p.gitPhase(append(append([]string{"-c", "core.hooksPath=/dev/null"}, p.identity()...), "commit", "-q", "-m", "wip: not committed when task "+p.task.Name+" began")...)
	commit.place = nil
	o, err := runGit(p, commit)
	if err == nil && o.code != 0 {
		err = errors.New(o.failure())
	}
	return err
}

// begin makes the record of a task.
func (a *Asked) begin(ctx context.Context, name string) (*Placed, error) {
	r := Record{
		Name: name, Key: keyOf(name, a.repo.common), Repository: a.repo.top, Common: a.repo.common, InPlace: a.order.InPlace,
		Branch: a.repo.branch, Base: a.base, BaseName: a.named, Agent: a.order.Agent.Name, Model: a.order.Model, Prompt: events.Cut(a.order.Prompt), State: Working, Begun: time.Now(),
		Kept: a.order.Kept.withoutSecrets(a.to), Place: a.order.Place, Image: a.order.Image, Worker: sessions.Self(),
	}
	if a.order.InPlace {
		r.Worktree = a.repo.top
	} else {
		r.Branch, r.Unfilled = branchFor(a.order.BranchPrefix, name, a.taken), true
	}
	t, err := a.store.begin(r, a.repo.top)
	if err != nil {
		return nil, err
	}
	if !a.order.InPlace {
		stands, err := a.repo.inTheWay(ctx, r.Branch)
		if err == nil && stands != "" {
			err = hint.Errorf("--name NAME for another", "branch %s stands already", stands)
		}
		if err != nil {
			return nil, errors.Join(err, t.forget(a.store))
		}
	}
	return &Placed{order: a.order, repo: a.repo, task: t, store: a.store, to: a.to, stop: a.stop, fresh: true}, nil
}

// cloneFor writes the git directory of the work tree.
func cloneFor(p *Placed, a *Asked) error {
	c, err := makeClone(p.repo, placesFor(p.repo.top, p.order.Dir, p.order.Home, p.task.Name), p.task.Branch, a.base)
	if err != nil {
		return err
	}
	p.task.Worktree = c.path
	return p.task.save()
}

// checkout has git write the files of the base, on this machine wherever the agent is to work. No name is protected in this run: git alone makes them, all of them from
// a commit that the user has, in a tree that nobody else knows of. From then on they stand, and are protected.
func (p *Placed) checkout() error {
	reset := p.gitPhase("reset", "-q", "--hard")
	reset.place, reset.flags = nil, append(reset.flags, "--without", "protect")
	o, err := runGit(p, reset)
	if err != nil {
		return err
	}
	if err := o.refusal("checkout"); err != nil {
		return err
	}
	if failure := o.failure(); failure != "" {
		return fmt.Errorf("git cannot check %s out: %s", short(p.task.Base), failure)
	}
	if err := p.repo.checkClone(p.stop.Hard, p.task.Worktree); err != nil {
		return err
	}
	return passOver(p)
}

// Continue takes up a task that stands.
func Continue(stop Stop, store Store, to Reporter, o Order) (*Placed, error) {
	r, err := store.Find(o.Name, o.Workspace)
	if err != nil {
		return nil, err
	}
	repo, err := open(stop.Hard, r.Repository)
	if err != nil {
		return nil, err
	}
	t, err := store.Open(r)
	if err != nil {
		return nil, err
	}
	p := &Placed{order: o, repo: repo, task: t, store: store, to: to, stop: stop}
	if t.Place != nil && o.Place == nil {
		where := "in a container"
		if Elsewhere(t.Place) {
			where = "at " + t.Place[1]
		}
		err = hint.Errorf("pccrun task --base "+t.Branch+" PROMPT begins another here", "task %s began %s, and goes on there", t.Name, where)
	} else {
		err = p.resumable()
	}
	if err == nil {
		err = passOver(p)
	}
	if err == nil {
		err = checkImage(stop, store, &p.order, repo.top)
	}
	if err == nil { // not before: what an order adds to the budget it adds once
		p.money, err = openMoney(p)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	t.Kept, t.Place, t.Image = o.Kept.withoutSecrets(to), o.Place, o.Image
	if p.order.InPlace = t.InPlace; t.InPlace && o.Commit == "" { // who works there commits, and knows what is his
		p.order.Leave = true
	}
	t.State, t.Worker = Working, sessions.Self()
	if t.Agent != o.Agent.Name { // another agent has a conversation of its own
		t.Agent, t.Conversation, t.Conversed = o.Agent.Name, "", agent.Usage{}
	}
	return p, t.save()
}

// resumable refuses a task whose branch or work tree is not where it was left.
func (p *Placed) resumable() error {
	t := p.task
	if err := p.store.checkWorktree(&t.Record); err != nil {
		return err
	}
	if t.Worktree == "" || t.Unfilled {
		return hint.Errorf("pccrun task rm "+t.Name+", and begin again: nothing has worked at it", "task %s: it was killed before its work tree was made", t.Name)
	}
	if !isDir(t.Worktree) {
		return hint.Errorf("pccrun task rm "+t.Name, "task %s: its work tree %s is gone", t.Name, t.Worktree)
	}
	if t.InPlace {
		return nil
	}
	if err := endLeftovers(t.Record); err != nil {
		return err
	}
	if err := recoverAt(p); err != nil {
		return err
	}
	if t.State == Working {
		// The post-run check of a killed run is made by the next one. It has no record of the clone's git directory, and judges by
		// times: it may take what the clone borrows, which the agent would miss.
		if _, err := p.git("", nil, "version"); err != nil {
			return err
		}
	}
	if t.State != Done {
		if err := unlock(&t.Record); err != nil {
			return err
		}
	}
	tip, err := p.repo.tip(p.stop.Hard, t.Branch)
	if err != nil || tip == "" {
		return err
	}
	if brought(&t.Record, tip); tip != t.Fetched {
		return p.moved(tip)
	}
	return p.repo.free(p.stop.Hard, &p.task.Record)
}

// free refuses a branch that the user has checked out: if it moved, his next commit there would undo what it was moved to.
func (r *repository) free(ctx context.Context, t *Record) error {
	at, err := r.checkedOut(ctx, t.Branch)
	if err != nil || at == "" {
		return err
	}
	return hint.Errorf("git switch to another branch there, then pccrun task --continue "+t.Name, "branch %s is checked out in %s", t.Branch, at)
}

// moved is the error for a branch that the user has moved.
func (p *Placed) moved(tip string) error {
	t := p.task
	return hint.Errorf("a task of its own goes on from there: pccrun task --base "+t.Branch+" PROMPT",
		"branch %s is at %s, and not at %s where this task left it; its own commits are in %s", t.Branch, short(tip), short(t.Fetched), t.Worktree)
}

// Begun is the task's record as it begins.
func (p *Placed) Begun() Record { return p.task.Record }

// Announce says what is going to happen.
func (p *Placed) Announce() {
	t, o := p.task, p.order
	from := short(t.Base)
	if t.BaseName != "" && t.BaseName != from {
		from = t.BaseName + " (" + from + ")"
	}
	switch {
	case t.InPlace:
		p.to.Line("task " + t.Name + ": " + t.Agent + " in place, in " + t.Worktree)
		if p.repo.git != p.repo.common {
			p.to.Line("references are shared with " + p.repo.common + ", index and work tree with you: nothing keeps this task and you from each other's work")
			break
		}
		p.to.Line("references, index and work tree are shared with you: nothing keeps this task and you from each other's work")
	case o.Continue:
		p.to.Line("task " + t.Name + ": " + t.Agent + " goes on with branch " + t.Branch)
	default:
		p.to.Line("task " + t.Name + ": " + t.Agent + " on a new branch " + t.Branch + " from " + from)
	}
	if !t.InPlace {
		p.to.Line("worktree " + t.Worktree)
	}
	if with := t.Words(); o.Continue && len(with) > 0 {
		for i := range with {
			with[i] = shell.Quote(with[i])
		}
		p.to.Line("with " + strings.Join(with, " "))
	}
	if !t.InPlace && !o.Continue && !o.Dirty {
		leftOut(p)
	}
	switch {
	case Elsewhere(o.Place):
		p.to.Line("works on a copy at " + o.Place[1] + "; git works here, on what comes back")
		if o.Agent.Conversations == nil {
			p.to.Line(o.Agent.Name + " keeps its conversation in one file with its logins: it does not come back, and --continue begins a new one")
		}
	case o.Place != nil:
		p.to.Line("works in a container (" + strings.Join(o.Place, " ") + "); the checkout does not")
	}
	for _, line := range p.copies.said() {
		p.to.Line(line)
	}
	p.to.Line("asks nothing inside the sandbox (" + o.Agent.Unattended + "); network: " + networkText(o.Policy) + "; limits: " + timeText(o.Timeout) + budgetText(o.Budget))
}

// shownHosts bounds how many rules the opening lines name.
const shownHosts = 6

// networkText says where the agent may connect to.
func networkText(policy *profiles.Policy) string {
	var hosts []string
	for _, rule := range policy.Network.Allow {
		hosts = append(hosts, rule.Text)
	}
	if over := len(hosts) - shownHosts; over > 0 {
		return strings.Join(hosts[:shownHosts], ", ") + fmt.Sprintf(" and %d more", over)
	}
	return cmp.Or(strings.Join(hosts, ", "), "none")
}

// leftOut says what of the user's is not in the work tree.
func leftOut(p *Placed) {
	changed, unknown, err := p.repo.uncommitted(p.stop.Hard)
	switch {
	case err != nil:
		p.to.Line("what you have not committed is not in it, and git cannot list it: " + messages.InWords(err))
	case changed+unknown > 0:
		p.to.Line(uncommittedText(changed, unknown) + " of yours not in it (--dirty takes along what is not committed)")
	}
}

// uncommittedText says how many files are not committed.
func uncommittedText(changed, unknown int) string {
	switch {
	case unknown == 0:
		return Count(changed, "changed file")
	case changed == 0:
		return Count(unknown, "new file")
	}
	return Count(changed, "changed file") + " and " + Count(unknown, "new file")
}

// Count writes a number of things.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
