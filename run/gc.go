package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// ProviderOf makes the provider at which a session has something.
func (p *Program) ProviderOf(r *sessions.Resource) (providers.Provider, error) {
	kind, err := providers.KindOf(r.Provider)
	if err != nil {
		return nil, err
	}
	req := &profiles.Request{Host: profiles.ThisHost()}
	dirs, err := Dirs()
	if err != nil {
		return nil, err
	}
	return p.build(kind, req, providers.Host{Environ: req.Host.Environ, StateDir: dirs.State, Launcher: launcherFile(), Git: RunGit("")})
}

// Destroy ends what a session has at a provider that is not this machine, by the name and
// the label that its record has.
func Destroy(program Program, r *sessions.Resource) error {
	if program.Become != nil {
		return fmt.Errorf("provider %s: the sandbox of a killed run still exists: pccrun gc removes it", r.Provider)
	}
	place, err := program.ProviderOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), DestroyWithin)
	defer cancel()
	list := []sessions.Resource{*r}
	if label := r.Labels[providers.LabelKey]; label != "" {
		found, err := place.Find(ctx, label)
		if err != nil {
			return fmt.Errorf("provider %s: find what session %s left: %w", r.Provider, label, err)
		}
		list = found // what is not found is gone
		if key, is := place.(interface{ Account() string }); is && len(found) == 0 && r.Account != "" && r.Account != key.Account() {
			messages.Say(fmt.Sprintf("sandbox %s was not found with this key of %s, and the run had another one: if it still exists, pccrun gc destroys it once that key is set", r.ID, r.Provider))
		}
	}
	for _, one := range list {
		err = errors.Join(err, place.Destroy(ctx, one))
	}
	return err
}

// DestroyWithin bounds how long a provider may take to end what it has.
const DestroyWithin = time.Minute
