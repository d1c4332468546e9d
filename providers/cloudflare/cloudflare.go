// Package cloudflare makes sandboxes of Cloudflare's out of what the engine of package remote asks for, by the bridge: a Worker
// that the user deploys in an account of his own. Cloudflare itself has no API that makes a sandbox for who is elsewhere.
//
// The bridge lists nothing, knows no labels, and starts a container for any name of which something is asked. So the name of
// a sandbox says its labels, and a file in it says that Create made it: where that is missing the container is another one,
// which is destroyed again.
//
// It promises that the key is part of no address and no error, that no word of the command or its environment is part of
// what Create sends, and that nothing is executed in a container that Create did not make.
package cloudflare

import (
	"context"
	"encoding/base32"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
)

// Name is what --provider calls it.
const Name = "cloudflare"

// Service is the API of a bridge.
type Service struct {
	remote.Base
	stand sync.Map // whether a sandbox stands that this process made or destroyed, by its name
	dirs  sync.Map // directories that are there, by the sandbox's name and path
}

// home is the directory of a sandbox in which the bridge reads and writes files, and madeName the file there that Create writes.
const (
	home     = "/workspace"
	madeName = home + "/.pccrun-made"
)

// maxFile is the size of a file that is carried at once. The bridge takes 32 MiB and hands them on in base64, by a call that
// may itself have no more than 32 MiB.
const maxFile = 16 << 20

// idle is after how long without a call a sandbox ends, unless its Worker says otherwise.
const idle = 10 * time.Minute

// New returns the provider, whether or not it can be used.
var New = remote.Of(NewService)

// NewService reads the variables that name a bridge and its key.
func NewService(environ []string) *Service {
	key := remote.Variable(environ, "SANDBOX_API_KEY")
	s := &Service{Base: remote.Base{
		API: remote.API{Provider: Name, Secrets: []string{key}, Advice: advice},
		Key: http.Header{"Authorization": {"Bearer " + key}},
		Facts: remote.Facts{
			Daemons: []uint16{3000}, Keeps: map[profiles.Guarantee]string{profiles.ProcIsolated: "a virtual machine"}, Home: home, MaxFile: maxFile, Life: remote.Life{Idle: idle}, SizedBy: "the Worker's wrangler.jsonc",
		},
	}}
	remote.Begin(&s.Base, environ, "CLOUDFLARE_SANDBOX_URL", "", "deploy the bridge as pccrun's docs/clouds.md says, then: export CLOUDFLARE_SANDBOX_URL=https://….workers.dev SANDBOX_API_KEY=…")
	return s
}

// advice is what mends an answer of a status.
var advice = map[int]string{
	http.StatusUnauthorized:       "SANDBOX_API_KEY is not the key of the bridge: npx wrangler secret put SANDBOX_API_KEY sets another",
	http.StatusNotFound:           `CLOUDFLARE_SANDBOX_URL has to be the address of a bridge: its path /health answers {"ok":true}`,
	http.StatusServiceUnavailable: "all containers of the Worker are used: max_instances of its wrangler.jsonc is how many there may be",
}

// letters are those of a sandbox's name.
var letters = base32.StdEncoding.WithPadding(base32.NoPadding)

// nameOf is the name of the sandbox that bears labels.
func nameOf(labels map[string]string) string {
	return strings.ToLower(letters.EncodeToString([]byte(remote.NameOf(labels))))
}

// labelsOf is what a name says; nil where it is none of pccrun's.
func labelsOf(name string) map[string]string {
	text, _ := letters.DecodeString(strings.ToUpper(name))
	return remote.LabelsOf(string(text))
}

// Describe returns what Create would send: it writes that into a sandbox.
func (s *Service) Describe(r *remote.Request) any {
	return map[string]string{"name": remote.NameOf(r.Labels)}
}

func (s *Service) sandbox(name string) (*remote.Sandbox, error) {
	return s.Checked(&remote.Sandbox{ID: name, Labels: labelsOf(name), Running: true, Address: s.Address + "/v1/sandbox/" + name, Header: s.Key})
}

// Create has a container be started, by the file that it writes into it. One whose name has a container already was made by a
// call whose answer was lost.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	box, err := s.sandbox(nameOf(r.Labels))
	if err != nil {
		return nil, err
	}
	s.stand.Store(box.ID, true)
	call := &remote.Call{What: "create a sandbox", Method: http.MethodPut, In: s.Describe(r), Out: &struct{}{}, Once: true, Limit: 3 * time.Minute}
	if err := s.Daemon(ctx, box, call, filePath(madeName)); err != nil {
		return nil, remote.Unclear(err)
	}
	return box, nil
}

// Find looks at the sandbox that bears a label, and without one at those that this process made: the bridge lists none.
func (s *Service) Find(ctx context.Context, labels map[string]string) (list []remote.Sandbox, err error) {
	var pool struct{ Assigned int } // containers that somebody has
	if _, err := s.Call(ctx, &remote.Call{What: "look at the bridge", Out: &pool}, "/v1/pool/stats"); err != nil {
		return nil, err
	}
	var names []string
	if labels[providers.LabelKey] == "" {
		if err := s.closed(ctx); err != nil {
			return nil, err
		}
		s.stand.Range(func(name, stands any) bool {
			if stands == true {
				names = append(names, name.(string))
			}
			return true
		})
	} else if pool.Assigned > 0 {
		names = []string{nameOf(labels)}
	}
	for _, name := range names {
		box, err := s.Status(ctx, name)
		switch {
		case err == nil:
			list = append(list, *box)
		case !errors.Is(err, remote.ErrGone):
			return nil, err
		}
	}
	return list, nil
}

// gone says that this process destroyed a sandbox: the bridge would start another of its name.
func (s *Service) gone(name string) error {
	if stands, known := s.stand.Load(name); known && stands == false {
		return remote.ErrGone
	}
	return nil
}

// late is [Service.gone] after a call, which may have started another container: that one is destroyed.
func (s *Service) late(ctx context.Context, name string) error {
	err := s.gone(name)
	if err != nil {
		_ = s.Destroy(context.WithoutCancel(ctx), name)
	}
	return err
}

// closed reports by an error that the bridge takes calls without a key: so it does where its Worker has none.
func (s *Service) closed(ctx context.Context) error {
	_, err := s.API.Do(ctx, &remote.Call{What: "look at the bridge without a key", URL: s.Address + "/v1/pool/stats"})
	switch {
	case err == nil:
		return &providers.UnusableError{
			Provider: Name, Cause: "the Worker at CLOUDFLARE_SANDBOX_URL has no key: anybody can execute what he likes in its sandboxes",
			Advice: "npx wrangler secret put SANDBOX_API_KEY, in the bridge's directory, sets one",
		}
	case remote.HasStatus(err, http.StatusUnauthorized):
		return nil
	}
	return err
}

// Status returns a sandbox as it is.
func (s *Service) Status(ctx context.Context, name string) (*remote.Sandbox, error) {
	if err := s.gone(name); err != nil {
		return nil, err
	}
	return s.look(ctx, name)
}

// look asks for a sandbox. The bridge starts another container where there is none any more, which is destroyed.
func (s *Service) look(ctx context.Context, name string) (*remote.Sandbox, error) {
	box, err := s.sandbox(name)
	if err != nil {
		return nil, err
	}
	err = s.Daemon(ctx, box, &remote.Call{What: "look at sandbox " + name}, filePath(madeName))
	var refused *remote.APIError
	if errors.As(err, &refused) && refused.Code == "workspace_read_not_found" {
		if err = s.Destroy(ctx, name); err == nil {
			err = remote.ErrGone
		}
	}
	if err != nil {
		return nil, err
	}
	return box, nil
}

// Destroy ends a sandbox. Of one that is gone already the bridge says the same.
func (s *Service) Destroy(ctx context.Context, name string) error {
	_, err := s.Call(ctx, &remote.Call{What: "destroy sandbox " + name, Method: http.MethodDelete}, "/v1/sandbox/"+url.PathEscape(name))
	if err == nil {
		s.stand.Store(name, false)
	}
	return err
}

// orGone is the error of a call, or [remote.ErrGone] where the sandbox is gone: what another container answers says nothing.
func (s *Service) orGone(ctx context.Context, box *remote.Sandbox, err error) error {
	if _, now := s.look(ctx, box.ID); errors.Is(now, remote.ErrGone) {
		return now
	}
	return err
}
