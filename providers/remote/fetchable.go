package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/filesync"
)

// fetchable is what a download goes by, in the session's directory from before the command starts
// until all is here: so whoever comes after a failure, or after a launcher that was killed, can fetch
// what the command changed. It holds no variable of the command's, and no secret.
type fetchable struct {
	Version  int                `json:"v"`
	At       at                 `json:"at"`
	Policy   *profiles.Policy   `json:"policy"` // of files alone
	Before   *listing           `json:"before"` // what stood in the copy
	Manifest *filesync.Manifest `json:"manifest"`
	Came     bool               `json:"came,omitempty"` // what may come is here: the sandbox has the rest
	Account  string             `json:"account,omitempty"`
}

const fetchableVersion = 3

// fetchable is what a download of this run goes by, but for what stands in the copy.
func (p *plan) fetchable(where at, sent *filesync.Sent) *fetchable {
	files := &profiles.Policy{Workspace: p.policy.Workspace, Files: p.policy.Files, Tighten: p.policy.Tighten, Protect: p.policy.Protect}
	return &fetchable{Version: fetchableVersion, At: where, Policy: files, Manifest: &sent.Manifest, Account: p.provider.Account()}
}

// begin records what stands in the copy: what differs later is the command's.
func (l *place) begin(ctx context.Context, by *fetchable) (err error) {
	if by.Before, err = l.list(ctx, ""); err == nil {
		err = l.record(by)
	}
	return err
}

// record writes down what a download goes by.
func (l *place) record(by *fetchable) error {
	text, err := json.Marshal(by)
	if err == nil {
		err = state.WriteFile(l.session, sessions.UnfetchedName, text, state.Fast)
	}
	return err
}

// recorded reads it.
func (l *place) recorded() (*fetchable, error) {
	text, err := l.session.ReadFile(sessions.UnfetchedName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("nothing is to be downloaded: the command did not start, or all is here")
	}
	var f fetchable
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	switch {
	case f.Version != 0 && f.Version != fetchableVersion: // whatever else it holds
		err = fmt.Errorf("another version of pccrun wrote it, and that one downloads the changes (version %d, want %d)", f.Version, fetchableVersion)
	case err == nil && (f.Version == 0 || f.Policy == nil || f.Manifest == nil || f.Before == nil):
		err = errors.New("it is incomplete")
	}
	if err == nil {
		err = f.Before.index()
	}
	if err != nil {
		return nil, fmt.Errorf("read the session's %s: %w", sessions.UnfetchedName, err)
	}
	return &f, nil
}

// Account is a name for the account of the key, which tells nobody whose it is; "" where the service has none.
func (p *Provider) Account() string {
	if s, has := p.service.(interface{ Account() string }); has {
		return s.Account()
	}
	return ""
}

// reach makes the sandbox of a recorded run ready.
func (p *Provider) reach(ctx context.Context, resource providers.Resource, stdio providers.Stdio, o providers.Observer) (*place, *fetchable, error) {
	if err := p.service.Ready(); err != nil {
		return nil, nil, err
	}
	l := p.newPlace(&Request{Labels: resource.Labels, Lifetime: p.patient.lifetime}, stdio, o)
	by, err := l.recorded()
	if err != nil {
		return nil, nil, err
	}
	id := resource.ID
	if id == "" {
		found, err := p.Find(ctx, resource.Labels[providers.LabelKey])
		if err != nil {
			return nil, nil, err
		}
		if len(found) != 1 {
			return nil, nil, fmt.Errorf("%s: %d sandboxes bear the session's label, want one", p.Name(), len(found))
		}
		id = found[0].ID
	}
	l.box, err = ready(ctx, p.service, id)
	if errors.Is(err, ErrGone) && by.Account != "" && by.Account != p.Account() {
		err = &providers.UnusableError{Provider: p.Name(), Cause: "sandbox " + id + " is not one of this key's, and the run had another key", Advice: "set the key that the run had"}
	}
	if err != nil {
		return nil, nil, err
	}
	l.at, l.box.Labels = by.At, resource.Labels
	return l, by, nil
}

// Fetch brings what the command of a run changed whose own download failed, or whose launcher was
// killed, as a change set in the session's directory, which is all that stdio has beside its
// Progress, and destroys the sandbox, unless something was left out.
func (p *Provider) Fetch(ctx context.Context, resource providers.Resource, stdio providers.Stdio, o providers.Observer) error {
	l, by, err := p.reach(ctx, resource, stdio, o)
	if errors.Is(err, ErrGone) {
		return errors.Join(fmt.Errorf("what the command changed is lost: %w", err), stdio.Changes.Remove(sessions.UnfetchedName))
	} else if err != nil {
		return err
	}
	stop := l.prolong(ctx)
	err = l.fetch(ctx, by)
	stop()
	return l.leave(ctx, err, false)
}
