//go:build unix && !linux

package run

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/postrun"
)

// A guarded run is checked when it has ended: by the next pccrun, if this one was killed.
type guarded struct {
	*opened
	*planned
	record     *postrun.Record
	unfinished *sessions.Unfinished
	failed     bool // the post-run check was not finished
}

func newGuarded(o *opened, p *planned) guarded { return guarded{opened: o, planned: p} }

// An unfinishedRun is what the next pccrun needs for that.
type unfinishedRun struct {
	Session string
	Started time.Time
	Policy  profiles.Policy // what of it says which names are protected
	Record  *postrun.Record
}

// postRunRules are those of a policy.
func postRunRules(p *profiles.Policy, ask workspace.AskGit) postrun.Rules {
	rules := postrun.Rules{
		Hidden:    func(path string) bool { return p.Decide(path).Access < profiles.Read },
		Protected: survey.Protects(p, filesync.FoldKey), AskGit: ask,
	}
	for _, r := range p.Protect {
		for _, tail, more := strings.Cut(r.Pattern, "/"); more; _, tail, more = strings.Cut(tail, "/") {
			if !r.Review && !slices.Contains(rules.Tails, tail) {
				rules.Tails = append(rules.Tails, tail)
			}
		}
	}
	return rules
}

// recordUnfinished takes in what stands where the command may write, and writes it down.
func (g *guarded) recordUnfinished() error {
	p := g.policy
	if len(p.Protect) == 0 {
		return nil
	}
	var roots []string
	add := func(path string) {
		if p.Decide(path).Access == profiles.Write && !slices.ContainsFunc(roots, func(root string) bool { return survey.Below(path, root) }) {
			roots = append(roots, path)
		}
	}
	add(p.Workspace)
	for _, r := range p.Files {
		if info, err := os.Lstat(r.Path); r.Glob == "" && err == nil && info.IsDir() {
			add(r.Path)
		}
	}
	if own := g.layout.OwnGit; own != "" {
		roots = append(roots, own)
	}
	run := &unfinishedRun{Session: g.session.ID(), Started: time.Now(), Policy: profiles.Policy{
		Home: p.Home, Workspace: p.Workspace, Files: p.Files, Tighten: p.Tighten, Protect: p.Protect, Opened: p.Opened, Without: p.Without,
	}}
	var err error
	var text bytes.Buffer
	if run.Record, err = postrun.Take(roots, postRunRules(p, g.git().Ask)); err == nil {
		err = gob.NewEncoder(&text).Encode(run)
	}
	var unfinished *sessions.Unfinished
	if err == nil {
		unfinished, err = sessions.In(g.dirs.State).WriteUnfinished(run.Session, text.Bytes())
	}
	if err != nil && slices.Contains(p.AllowMissing, profiles.FSProtect) {
		return nil
	}
	if err != nil {
		return noRecord(err)
	}
	g.record, g.unfinished = run.Record, unfinished
	return nil
}

// check makes the post-run check, and reports what it found.
func (g *guarded) check(any) (list []events.Change) {
	if g.record == nil {
		return nil
	}
	found, err := g.record.Check(func() (*os.Root, error) { return g.session.Want(KeepChanges) })
	if err != nil {
		messages.Say("post-run check: " + messages.InWords(err))
		g.log.Emit(events.Warning{Text: messages.InWords(err)})
		g.unfinished, g.failed = nil, true // the record stays: the next pccrun tries again
	}
	for _, c := range found {
		g.log.Emit(events.Changed{Path: c.Path, Kind: string(c.Kind), What: c.What, Why: c.Why})
		list = append(list, events.Change{Path: messages.Within(g.policy.Workspace, c.Path), Kind: string(c.Kind)})
	}
	if !g.req.Quiet && len(found) > 0 {
		sayFindings(found, g.policy, g.policy.Workspace, g.session.ID())
	}
	return list
}

// readUnfinished reads a record; nil for one whose command never started.
func readUnfinished(text string) (*unfinishedRun, error) {
	in, run := strings.NewReader(text), new(unfinishedRun)
	err := gob.NewDecoder(in).Decode(run)
	switch rest := text[len(text)-in.Len():]; {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err == nil && rest == "":
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the unfinished-run record: %w", err)
	case run.Record == nil || !strings.HasPrefix(rest, unfinishedBy):
		return nil, sessions.ErrOtherVersion
	}
	return run, nil
}

// checkedBy says which paths a run checks that has this record.
func checkedBy(text string) (func(path string) bool, error) {
	run, err := readUnfinished(text)
	return func(path string) bool {
		return run != nil && slices.ContainsFunc(run.Record.Roots, func(root string) bool { return survey.Below(path, root) })
	}, err
}

// settleUnfinished ends what a killed run left running, and checks what it did.
func settleUnfinished(home sessions.Home, program Program, id, text string) error {
	run, err := readUnfinished(text)
	if err != nil || run == nil {
		return err
	}
	if run.Session != id {
		return errors.New("the unfinished-run record names another run")
	}
	defer messages.Slow("checking session " + id + ", which was killed")()
	if err := endAt(home, program, id); err != nil {
		return err
	}
	found, err := run.Record.Under(postRunRules(&run.Policy, AskGit(run.Policy.Workspace))).Check(func() (*os.Root, error) { return home.Inherit(id) })
	if err != nil {
		return err
	}
	return reportKilled(home, id, run.Policy.Workspace, run.Started, found)
}
