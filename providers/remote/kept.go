package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
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
// commands of all runs there were kept from pccrun's own files and from root ([running.doubts]).
type kept struct {
	Version  int                `json:"v"`
	Key      string             `json:"key"` // see [running.key]
	Resource providers.Resource `json:"resource"`
	Program  string             `json:"program"` // the directory there that pccrun's program is in
	Own      string             `json:"own"`     // the one that it came to
	Sent     []string           `json:"sent"`    // the paths that went up
}

const keptVersion = 1

// key says what a sandbox was made from: one that stands is taken for a run of the same alone. A
// policy that shows less than another never meets what a command under the other left.
func (r *running) key(sum string) (string, error) {
	p := r.policy
	travels := p.For(&profiles.Elsewhere{Home: "/home", Workspace: "/home/copy", WorkDir: "/home/copy"})
	travels.PickedBy, travels.Source, travels.Layers = "", "", nil
	text, err := json.Marshal([]any{
		r.provider.Name(), r.provider.service.Describe(&Request{Lifetime: r.request.Lifetime, Policy: p, Ask: r.request.Ask}), p.Workspace, p.Files, p.Tighten, p.Protect,
		p.Environment, travels, sum,
	})
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:]), err
}

// take takes the sandbox that an earlier run kept, if there is one.
func (r *running) take(ctx context.Context) error {
	if r.command.Keep == 0 {
		return nil
	}
	_, sum, err := r.linuxProgram()
	if err != nil {
		return err
	}
	if r.kept.Key, err = r.key(sum); err != nil {
		return err
	}
	var old kept
	text, err := sessions.In(r.provider.host.StateDir).Take(func(text []byte) bool {
		old = kept{}
		return json.Unmarshal(text, &old) == nil && old.Version == keptVersion && old.Key == r.kept.Key
	})
	if text == nil || err != nil {
		return err
	}
	err, labels := errors.New("its time is over"), r.request.Labels
	if time.Now().Before(old.Resource.Until) {
		if err = r.resume(ctx, &old); err == nil {
			return nil
		}
	}
	r.box, r.old, r.request.Labels = nil, nil, labels
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.provider.patient.script)
	defer cancel()
	if e := r.provider.destroy(ending, old.Resource.ID); e != nil || ctx.Err() != nil {
		return errors.Join(err, e)
	}
	r.observer.Created(providers.Resource{Provider: r.provider.Name(), Labels: labels}) // what comes is found by them again
	r.warn("the kept sandbox %s is not used again, and a new one is made: %v", old.Resource.ID, err)
	return nil
}

// resume makes a sandbox that stands ready, and asks what is in its copy.
func (r *running) resume(ctx context.Context, old *kept) error {
	found, err := r.provider.Find(ctx, old.Resource.Labels[providers.LabelKey])
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(found, func(f providers.Resource) bool { return f.ID == old.Resource.ID }) {
		return ErrGone
	}
	if r.box, err = r.provider.ready(ctx, old.Resource.ID); err != nil {
		return err
	}
	r.old, r.box.Labels, r.request.Labels = old, old.Resource.Labels, old.Resource.Labels
	r.observer.Created(r.provider.resource(r.box))
	if err := r.provider.extend(ctx, r.box, r.provider.patient.lifetime, false); err != nil {
		return err
	}
	if err := r.prepare(ctx, path.Join(old.Program, "pccrun"), ""); err != nil {
		return err
	}
	there, err := r.list(ctx, old.Program, "sums")
	if err != nil {
		return err
	}
	r.since = there.since(old.Sent)
	return nil
}

// since is what stands, as a second upload compares it.
func (l *listing) since(sent []string) *filesync.Since {
	s := &filesync.Since{Items: make(map[string]filesync.Standing, len(l.of)), Sent: sent}
	for name, e := range l.of {
		s.Items[name] = filesync.Standing{Kind: e.kind(), Mode: e.Mode, Size: e.Size, Names: e.Names, Target: string(e.Target), Sum: e.Sum}
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
func (r *running) doubts() string {
	for _, rule := range r.policy.Files {
		if rule.Access == profiles.Write && !r.within(rule.Path) {
			return "the policy lets the command write to " + rule.Path
		}
	}
	if !r.ended {
		return "the command was not seen to end"
	}
	return r.doubt
}

// stays has the sandbox stand for the next run, if the user wants that, or says why it does not.
func (r *running) stays(ctx context.Context) bool {
	if r.command.Keep == 0 {
		return false
	}
	why := r.doubts()
	if why == "" {
		err := r.stand(ctx)
		if err == nil {
			return true
		}
		why = err.Error()
	}
	r.warn("the sandbox is not kept: %s", why)
	return false
}

// stand has the sandbox stand, and says what that costs.
func (r *running) stand(ctx context.Context) error {
	lifetime := r.command.Keep
	if err := r.provider.extend(ctx, r.box, lifetime, true); err != nil {
		return err
	}
	now, err := r.provider.service.Status(ctx, r.box.ID)
	if err != nil {
		return err
	}
	k := &r.kept
	k.Version, k.Resource, k.Program, k.Own = keptVersion, r.provider.resource(r.box), r.program, r.own
	k.Resource.Until, k.Resource.Hourly = time.Now().Add(lifetime), r.provider.facts.Price(now)
	if !now.Ends.IsZero() && now.Ends.Before(k.Resource.Until) {
		k.Resource.Until = now.Ends // the account allows no more
	}
	for _, item := range r.sent.Manifest.Items {
		k.Sent = append(k.Sent, item.Path)
	}
	text, err := json.Marshal(k)
	if err == nil {
		err = state.WriteFile(r.session, sessions.KeptName, text, state.Fast)
	}
	if err != nil {
		return err
	}
	r.observer.Created(k.Resource)
	price := "a price that is not known"
	if p := k.Resource.Hourly; p > 0 {
		price = "$" + strconv.FormatFloat(p, 'g', 3, 64) + " an hour"
	}
	r.warn("kept: sandbox %s costs %s until %s; end it: pccrun kill %s", r.box.ID, price, k.Resource.Until.Local().Format("15:04"), filepath.Base(r.session.Name()))
	return nil
}
