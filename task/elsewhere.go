//go:build unix

package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/leftovers"
)

// Elsewhere reports whether the runs of a place have a copy of the work tree. Git works on this machine then, in the work tree
// itself: what is committed, packed and fetched is what was brought back and checked.
func Elsewhere(place []string) bool {
	if len(place) < 2 {
		return false
	}
	kind, err := providers.KindOf(place[1])
	return err == nil && kind.Cloud
}

// sayApart says what the commands of a task do not find at a cloud that keeps no sandbox for the next run.
func sayApart(p *Placed) {
	if o := &p.order; Elsewhere(o.Place) && !slices.Contains(o.Place, "--keep") && o.Check+o.Until != "" {
		p.to.Line("each run of the task has a new sandbox at " + o.Place[1] + ": what git ignores does not come from one to the next")
	}
}

// gitPlace is where git works, and the hooks that it starts.
func gitPlace(place []string) []string {
	if Elsewhere(place) {
		return nil
	}
	return place
}

// installOf is how the agent is installed where a place lacks it.
func installOf(o *Order) providers.Install {
	script, hosts := o.Agent.Installer(o.Installs.Install, o.Installs.Allow)
	update := "update"
	if o.SkipsUpdate {
		update = "skip"
	}
	return providers.Install{Name: o.Agent.Name, Script: script, Args: []string{o.Installs.Version, update}, Allow: hosts}
}

// installFlags have a run install it.
func installFlags(o *Order) []string {
	text, _ := json.Marshal(installOf(o)) // no string fails
	return []string{"--install", string(text)}
}

// runElsewhere carries a phase out on a copy of the work tree, and brings what changed there into the work tree, but for what a host
// tool would execute.
func (ph phase) runElsewhere(p *Placed) (outcome, error) {
	seen := ph.seen
	ph.seen = func(e events.Event) {
		if w, is := e.(events.Warning); is && !p.order.Keep && strings.HasPrefix(w.Text, "kept: sandbox ") { // for the next run of the task
			return
		}
		if seen != nil {
			seen(e)
		}
	}
	o, err := ph.run(p.stop)
	p.task.PlaceUSD += o.placeUSD
	if err != nil || o.refused != nil || o.session == "" {
		return o, err
	}
	if err = bring(p, o.session); err != nil { // what is there is not lost: the session and its sandbox are kept
		o.code, o.said = statusRefused, err.Error()
		sayFailed(p.to, "what was changed there is not in "+p.task.Worktree, err)
	}
	return o, nil
}

// bring is apply, and says what that held back.
func bring(p *Placed, session string) error {
	held, err := apply(p.order.Program, session)
	for _, path := range held {
		p.to.Line("held back, since a host tool would execute it: " + path + "; pccrun diff --session " + session + " shows it")
		p.held = append(p.held, filepath.Join(p.task.Worktree, path))
	}
	if err == nil && len(held) > 0 { // the session stands as long as it has them
		p.task.Brought = append(p.task.Brought, session)
		err = p.task.save()
	}
	return err
}

// apply writes what a run changed in its copy into the work tree, and returns what it held back.
func apply(program run.Program, session string) (held []string, err error) {
	c, err := leftovers.OpenChanges(session)
	if errors.Is(err, leftovers.ErrNoChanges) || errors.Is(err, sessions.ErrNoSession) { // of which nothing was to be kept
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer c.Upper.Close()
	if err := c.Begin(program); err != nil {
		return nil, err
	}
	done, err := c.Upper.Apply(run.Selection{})
	if err != nil {
		return nil, err
	}
	for _, change := range done.Withheld {
		held = append(held, change.Path)
	}
	if done.Left == 0 {
		err = c.Drop()
	}
	return held, err
}

// runsAt returns the sessions that the task's own runs at a cloud have left. Those of the user's in the work tree are the user's.
func runsAt(p *Placed) (runs []sessions.Entry, err error) {
	if !Elsewhere(p.order.Place) {
		return nil, nil
	}
	home, err := run.Sessions()
	if err != nil {
		return nil, err
	}
	list, err := home.List()
	for _, e := range list {
		if e.Workspace == p.task.Worktree && IsPhase(e.Argv) && Elsewhere([]string{"", e.Provider}) {
			runs = append(runs, e)
		}
	}
	return runs, err
}

// recoverAt brings what runs of the task have changed at the cloud, and is not in the work tree since this program was killed, as far
// as it can come.
func recoverAt(p *Placed) error {
	runs, err := runsAt(p)
	for _, e := range runs {
		if slices.Contains(p.task.Brought, e.ID) {
			continue
		}
		var failed error
		if e.Unfetched {
			failed = own(p.task.Worktree, "download", e.ID)
		}
		if e.Unfetched || e.State == sessions.Ended || e.State == sessions.Crashed {
			failed = errors.Join(failed, bring(p, e.ID))
		}
		if failed != nil { // all of it stays where it is
			sayFailed(p.to, "not all that an earlier run changed there is here", failed)
		}
	}
	return err
}

// leave ends the sandbox that the runs of the task have shared, unless the user keeps it.
func leave(p *Placed) {
	if p.order.Keep {
		return
	}
	runs, err := runsAt(p)
	for _, e := range runs {
		if e.Standing {
			err = errors.Join(err, own(p.task.Worktree, "kill", e.ID))
		}
	}
	if err != nil {
		p.to.Line("the sandbox was not destroyed: " + err.Error())
	}
}

// own is a verb of this program's.
func own(dir string, args ...string) error {
	cmd, err := Program(syscall.SIGKILL, args...)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pccrun %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return nil
}
