// Package sprites makes sandboxes of Fly's Sprites out of what the engine of package remote asks for. Their API does all,
// what is executed in one included.
//
// It promises that the token is part of no address and no error, that no word of the command or its environment is
// part of a request to create, and that nothing is executed in a sprite before its filter of hosts is set. A program's
// arguments are part of an address: the engine's hold no secret.
package sprites

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/remote"
)

// Name is what --provider calls it.
const Name = "sprites"

// Service is the API of Sprites.
type Service struct {
	remote.Resource[answered]
	unset sync.Map // the filters of hosts that are not set yet, by the sprite's name
}

// apiSocket is the management socket of each sprite: whoever reaches it has the runtime execute what he likes.
const apiSocket = "/.sprite/api.sock"

// New returns the provider, whether or not it can be used.
var New = remote.Of(NewService)

// NewService reads the variables by which Sprites' documentation names its token.
func NewService(environ []string) *Service {
	get := func(name string) string { return remote.Variable(environ, name) }
	token := cmp.Or(get("SPRITES_TOKEN"), get("SPRITE_TOKEN"))
	s := &Service{}
	s.Path, s.Take = "/v1/sprites/{id}", s.taken
	s.Base = remote.Base{
		API: remote.API{Provider: Name, Secrets: []string{token}, Advice: advice},
		Key: http.Header{"Authorization": {"Bearer " + token}},
		Facts: remote.Facts{
			Keeps:   map[profiles.Guarantee]string{profiles.NetAllowlist: "a filter of host names, by its name server", profiles.ProcIsolated: "a virtual machine"},
			Sockets: []string{apiSocket},
			Size:    most, Sizes: []profiles.Size{most}, Prices: remote.Prices{CPU: 0.07, GiB: 0.04375, Read: "2026-11"},
		},
	}
	remote.Begin(&s.Base, environ, "SPRITES_API_URL", "https://api.sprites.dev", "make a token at https://sprites.dev/account, then: export SPRITES_TOKEN=…")
	return s
}

// advice is what mends a refusal, by its status.
var advice = map[int]string{
	http.StatusUnauthorized:    refusedToken,
	http.StatusForbidden:       refusedToken,
	http.StatusPaymentRequired: "https://sprites.dev/account shows the plan, and what is unpaid",
}

const refusedToken = "SPRITES_TOKEN is not accepted, or may not do this: https://sprites.dev/account shows the tokens"

// request is the body of a request to create, and what is set before anything is executed: a filter of hosts, of whose rules the
// more specific one counts; nil for none. The sprite's own address is not public.
func (s *Service) request(r *remote.Request) (body map[string]any, filter any) {
	if f := remote.FilterOf(r); f.Open == "" {
		rules := []map[string]string{{"domain": "*", "action": "deny"}} // without one it would filter nothing
		for _, host := range f.Hosts {
			rules = append(rules, map[string]string{"domain": host, "action": "allow"})
		}
		filter = map[string]any{"rules": rules}
	}
	return map[string]any{"name": remote.NameOf(r.Labels), "url_settings": map[string]string{"auth": "sprite"}}, filter
}

// Describe returns what Create would send.
func (s *Service) Describe(r *remote.Request) any {
	c, filter := s.request(r)
	c["network"] = filter
	return remote.Body(c)
}

// answered is a sprite as the API tells of it.
type answered struct {
	Name    string    `json:"name"`
	Status  string    `json:"status"` // "running", "warm" or "cold": it stops by itself where nothing is executed, and starts where something is
	Region  string    `json:"primary_region"`
	Created time.Time `json:"created_at"`
}

// most is the most that a sprite has.
var most = profiles.Size{CPUs: 8, MemoryMB: 4096}

func (s *Service) taken(a *answered, _ http.Header) (*remote.Sandbox, error) {
	return s.Checked(&remote.Sandbox{
		ID: a.Name, Region: a.Region, Labels: remote.LabelsOf(a.Name), Running: a.Status == "running", Created: a.Created, CPUs: most.CPUs, MemoryMB: most.MemoryMB,
		Address: s.Address + "/v1/sprites/" + url.PathEscape(a.Name), Header: s.Key,
	})
}

// Create makes a sprite. Resume sets its filter.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	c, filter := s.request(r)
	name := remote.NameOf(r.Labels)
	if filter != nil {
		s.unset.Store(name, filter)
	}
	return remote.MakeNamed(ctx, &s.Base, name, c, "/v1/sprites")
}

// Find lists sprites, those that are stopped too. Labels are in their names.
func (s *Service) Find(ctx context.Context, labels map[string]string) ([]remote.Sandbox, error) {
	query := url.Values{"prefix": {remote.NameOf(labels)}, "max_results": {"50"}}
	return s.Gather(query, "continuation_token", func(query url.Values) ([]answered, string, error) {
		var list struct {
			Sprites []answered `json:"sprites"`
			More    bool       `json:"has_more"`
			Next    string     `json:"next_continuation_token"`
		}
		_, err := s.Call(ctx, &remote.Call{What: "list the sandboxes", Out: &list, Query: query}, "/v1/sprites")
		if !list.More {
			list.Next = ""
		}
		return list.Sprites, list.Next, err
	})
}

// Resume makes a sprite ready: it starts by itself as something is executed.
func (s *Service) Resume(ctx context.Context, name string) (*remote.Sandbox, error) {
	if policy, is := s.unset.Load(name); is {
		if err := s.Post(ctx, name, "set the filter of", "/policy/network", policy); err != nil {
			return nil, err
		}
		s.unset.Delete(name)
	}
	return s.Status(ctx, name)
}

// Park ends what is executed in a sprite: it stops by itself then, and keeps its files.
func (s *Service) Park(ctx context.Context, box *remote.Sandbox) error {
	var list struct {
		Sessions []struct {
			ID string `json:"id"`
		} `json:"sessions"`
	}
	err := s.About(ctx, box.ID, &remote.Call{What: "look at", Out: &list}, s.Path+"/exec")
	for _, session := range list.Sessions {
		kill := &remote.Call{What: "stop", Method: http.MethodPost, Query: url.Values{"signal": {"KILL"}}}
		e := s.About(ctx, box.ID, kill, s.Path+"/exec/"+url.PathEscape(session.ID)+"/kill")
		if !remote.HasStatus(e, http.StatusGone, http.StatusNotFound) { // it has ended
			err = errors.Join(err, e)
		}
	}
	return err
}
