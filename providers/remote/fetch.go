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
	Version  int                    `json:"v"`
	Copy     string                 `json:"copy"` // of the workspace, there
	Space    string                 `json:"workspace"`
	Files    []profiles.FileRule    `json:"files"`
	Tighten  []profiles.FileRule    `json:"tighten"`
	Protect  []profiles.ProtectRule `json:"protect"`
	Program  string                 `json:"program"` // the directory there that pccrun's is in
	Before   *listing               `json:"before"`  // what stood in the copy
	Manifest *filesync.Manifest     `json:"manifest"`
	Came     bool                   `json:"came,omitempty"` // what may come is here: the sandbox has the rest
}

const fetchableVersion = 2

// record writes down what a download goes by.
func (r *running) record() error {
	p := r.policy
	text, err := json.Marshal(&fetchable{fetchableVersion, r.copy, p.Workspace, p.Files, p.Tighten, p.Protect, r.program, r.before, &r.sent.Manifest, r.came})
	if err == nil {
		err = state.WriteFile(r.session, sessions.UnfetchedName, text, state.Fast)
	}
	return err
}

// recorded reads it.
func (r *running) recorded() error {
	text, err := r.session.ReadFile(sessions.UnfetchedName)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("nothing is to be downloaded: the command did not start, or all is here")
	}
	var f fetchable
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err == nil && (f.Version != fetchableVersion || f.Manifest == nil || f.Before == nil) {
		err = fmt.Errorf("version %d, want %d", f.Version, fetchableVersion)
	}
	if err == nil {
		err = f.Before.index()
	}
	if err != nil {
		return fmt.Errorf("read the session's %s: %w", sessions.UnfetchedName, err)
	}
	r.copy, r.program, r.before, r.sent, r.came = f.Copy, f.Program, f.Before, &filesync.Sent{Manifest: *f.Manifest}, f.Came
	r.policy = &profiles.Policy{Workspace: f.Space, Files: f.Files, Tighten: f.Tighten, Protect: f.Protect}
	return nil
}

// Fetch brings what the command of a run changed whose own download failed, or whose launcher was
// killed, as a change set in the session's directory, which is all that stdio has beside its
// Progress, and destroys the sandbox, unless something was left out.
func (p *Provider) Fetch(ctx context.Context, resource providers.Resource, stdio providers.Stdio, o providers.Observer) error {
	r, err := p.reach(ctx, resource, stdio, o)
	if errors.Is(err, ErrGone) {
		return errors.Join(fmt.Errorf("what the command changed is lost: %w", err), stdio.Changes.Remove(sessions.UnfetchedName))
	} else if err != nil {
		return err
	}
	stop := r.extend(ctx)
	err = r.fetch(ctx)
	stop()
	return r.leave(ctx, err)
}

// reach makes the sandbox of a recorded run ready.
func (p *Provider) reach(ctx context.Context, resource providers.Resource, stdio providers.Stdio, o providers.Observer) (*running, error) {
	if err := p.service.Ready(); err != nil {
		return nil, err
	}
	r := &running{plan: &plan{provider: p, request: Request{Labels: resource.Labels, Lifetime: p.patient.lifetime}}, io: stdio, session: stdio.Changes, observer: o}
	if err := r.recorded(); err != nil {
		return nil, err
	}
	id := resource.ID
	if id == "" {
		found, err := p.Find(ctx, resource.Labels[providers.LabelKey])
		if err != nil {
			return nil, err
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("%s: %d sandboxes bear the session's label, want one", p.Name(), len(found))
		}
		id = found[0].ID
	}
	var err error
	if r.box, err = p.ready(ctx, id); err != nil {
		return nil, err
	}
	r.box.Labels = resource.Labels
	return r, nil
}

// fetch downloads, and says where all is if that fails.
func (r *running) fetch(ctx context.Context) error {
	err := r.bring(ctx)
	var stayed *StayedError
	if err != nil && !errors.As(err, &stayed) {
		return &StayedError{Err: err}
	}
	return err
}
