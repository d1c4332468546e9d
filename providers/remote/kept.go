package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/filesync"
)

// kept is the record of a sandbox that stands for the next run, in the session's directory: whoever
// takes it away has the sandbox. It is trusted, for it lies here, and it is written only where the
// commands of all runs there were kept from pccrun's own files and from root ([plan.doubts]).
type kept struct {
	Version  int                `json:"v"`
	Key      string             `json:"key"` // see [plan.key]
	Resource providers.Resource `json:"resource"`
	At       at                 `json:"at"`
	Sent     []string           `json:"sent"` // the paths that went up
}

const keptVersion = 2

// key says what a sandbox is made from: one that stands is taken for a run of the same alone. A
// policy that shows less than another never meets what a command under the other left.
func (p *plan) key() (string, error) {
	program, err := p.provider.readProgram()
	if err != nil {
		return "", err
	}
	o := p.policy
	travels := o.For(&profiles.Elsewhere{Home: "/home", Workspace: "/home/copy", WorkDir: "/home/copy"})
	travels.PickedBy, travels.Source, travels.Layers = "", "", nil
	travels.Resources.Timeout = profiles.Limit{} // of the command alone
	r := p.request
	r.Labels = nil
	text, err := json.Marshal([]any{
		p.provider.Name(), p.provider.service.Describe(&r), r.Size, o.Workspace, o.Files, o.Tighten, o.Protect,
		o.Environment, travels, sumOf(program), p.command.Install,
	})
	return sumOf(text), err
}

// take takes the sandbox that an earlier run kept, and returns what stands in it; nil if there is none.
func (p *plan) take(ctx context.Context, l *place) (*filesync.Since, error) {
	if p.command.Keep == 0 {
		return nil, nil
	}
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	l.key = key
	var old kept
	text, err := sessions.In(l.p.host.StateDir).Take(func(text []byte) bool {
		old = kept{}
		return json.Unmarshal(text, &old) == nil && old.Version == keptVersion && old.Key == key
	})
	if text == nil || err != nil {
		return nil, err
	}
	err = errors.New("its time is over")
	if time.Now().Before(old.Resource.Until) {
		var since *filesync.Since
		if since, err = l.resume(ctx, &old); err == nil {
			return since, nil
		}
	}
	l.box, l.at, l.labels = nil, at{}, p.request.Labels
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.p.patient.script)
	defer cancel()
	if e := l.p.destroy(ending, old.Resource.ID); e != nil || ctx.Err() != nil {
		return nil, errors.Join(err, e)
	}
	l.observer.Created(providers.Resource{Provider: l.p.Name(), Labels: l.labels}) // what comes is found by them again
	l.warn("the kept sandbox %s is not used again, and a new one is made: %v", old.Resource.ID, err)
	return nil, nil
}

// resume makes a sandbox that stands ready, and asks what is in its copy.
func (l *place) resume(ctx context.Context, old *kept) (*filesync.Since, error) {
	found, err := l.p.here(ctx, old.Resource.Labels[providers.LabelKey])
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(found, func(s Sandbox) bool { return s.ID == old.Resource.ID }) {
		return nil, ErrGone
	}
	box, err := ready(ctx, l.p.service, old.Resource.ID)
	if err != nil {
		return nil, err
	}
	l.at, l.labels = old.At, old.Resource.Labels
	l.has(box)
	if err := l.p.extend(ctx, box, l.p.patient.lifetime, false); err != nil {
		return nil, err
	}
	there, err := l.list(ctx, "sums")
	if err != nil {
		return nil, err
	}
	return there.since(old.Sent), nil
}

// since is what stands, as a second upload compares it.
func (l *listing) since(sent []string) *filesync.Since {
	s := &filesync.Since{Items: make(map[string]filesync.Standing, len(l.of)), Sent: sent}
	for name, e := range l.of {
		s.Items[name] = filesync.Standing{Kind: e.Kind, Mode: e.Mode, Size: e.Size, Names: e.Names, Target: string(e.Target), Sum: e.Sum}
	}
	return s
}

// trusted are the guarantees that keep a command from all but the copy. What pccrun itself could not
// keep there of these leaves a sandbox that is not used again, whatever else is kept by its being a copy.
// Sockets are kept weakly everywhere: of those that somebody binds there later in a shown directory.
var trusted = append([]profiles.Guarantee{profiles.FSReadonly, profiles.FSSpecial, profiles.IPCUnix, profiles.ProcIsolated, profiles.ProcNoSurvivors}, ofDaemon...)

// doubtOf says which of them is not kept by pccrun there, "" for none.
func doubtOf(found []profiles.Answer) string {
	for _, g := range trusted {
		i := slices.IndexFunc(found, func(a profiles.Answer) bool { return a.Guarantee == g })
		if i < 0 || found[i].State != profiles.Kept && !(g == profiles.IPCUnix && found[i].State == profiles.Weak) {
			text := fmt.Sprintf("the command may have changed pccrun itself there: %s is not kept", g)
			if i >= 0 && found[i].Cause != "" {
				text += ": " + events.Clean(found[i].Cause)
			}
			return text
		}
	}
	return ""
}

// doubts says why the sandbox may not be used again, "" for nothing: what is trusted there afterwards
// is all but the copy, so its command was kept from all but the copy, and has ended.
func (p *plan) doubts(end *ended) string {
	for _, rule := range p.policy.Files {
		if rule.Access == profiles.Write && !p.within(rule.Path) {
			return "the policy lets the command write to " + rule.Path
		}
	}
	if !end.seen {
		return "the command was not seen to end"
	}
	return end.doubt
}

// keep has the sandbox stand for the next run, if the user wants that, or says why it does not.
func (p *plan) keep(ctx context.Context, l *place, end *ended) bool {
	if p.command.Keep == 0 || end.unwanted {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.p.patient.create)
	defer cancel()
	why := p.doubts(end)
	if why == "" {
		err := p.stand(ctx, l, end.by.Manifest)
		if err == nil {
			return true
		}
		why = err.Error()
	}
	l.warn("the sandbox is not kept: %s", why)
	return false
}

// stand has the sandbox stand, and says what that costs.
func (p *plan) stand(ctx context.Context, l *place, sent *filesync.Manifest) error {
	lifetime := p.command.Keep
	if err := l.p.extend(ctx, l.box, lifetime, true); err != nil {
		return err
	}
	now, err := l.p.service.Status(ctx, l.box.ID)
	if err != nil {
		return err
	}
	k := &kept{Version: keptVersion, Key: l.key, Resource: l.p.resource(l.box), At: l.at}
	k.Resource.Until, k.Resource.Hourly = time.Now().Add(lifetime), l.facts.Price(now.Size())
	if !now.Ends.IsZero() && now.Ends.Before(k.Resource.Until) {
		k.Resource.Until = now.Ends // the account allows no more
	}
	for _, item := range sent.Items {
		k.Sent = append(k.Sent, item.Path)
	}
	text, err := json.Marshal(k)
	if err == nil { // first: whoever takes the sandbox has it alone
		if err = l.session.Remove(sessions.UnfetchedName); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = state.WriteFile(l.session, sessions.KeptName, text, state.Fast)
	}
	if err != nil {
		return err
	}
	l.observer.Created(k.Resource)
	price := "a price that is not known"
	if hourly := k.Resource.Hourly; hourly > 0 {
		price = Dollars(hourly) + " an hour"
	}
	l.warn("kept: sandbox %s costs %s until %s; end it: pccrun kill %s", l.box.ID, price, k.Resource.Until.Local().Format("15:04"), filepath.Base(l.session.Name()))
	return nil
}
