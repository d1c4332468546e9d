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
	"strings"
	"sync"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
)

// Name is what --provider calls it.
const Name = "sprites"

// Service is the API of Sprites.
type Service struct {
	remote.Base
	unset sync.Map // the filters of hosts that are not set yet, by the sprite's name
}

// keeps is what Sprites themselves keep.
var keeps = map[profiles.Guarantee]string{
	profiles.NetAllowlist: "a filter of host names, by its name server",
	profiles.ProcIsolated: "a virtual machine",
}

// apiSocket is the management socket of each sprite: whoever reaches it has the runtime execute what he likes.
const apiSocket = "/.sprite/api.sock"

// New returns the provider, whether or not it can be used.
func New(host providers.Host) *remote.Provider {
	s := NewService(host.Environ)
	return remote.New(s, s.Facts, host)
}

// NewService reads the variables by which Sprites' documentation names its token.
func NewService(environ []string) *Service {
	get := func(name string) string { return remote.Variable(environ, name) }
	token := cmp.Or(get("SPRITES_TOKEN"), get("SPRITE_TOKEN"))
	s := &Service{}
	s.Base = remote.Base{
		API:     remote.API{Provider: Name, Client: remote.NewClient(environ), Secrets: []string{token}, Advise: advise},
		Address: cmp.Or(strings.TrimSuffix(get("SPRITES_API_URL"), "/"), "https://api.sprites.dev"),
		Key:     http.Header{"Authorization": {"Bearer " + token}},
		Facts: remote.Facts{
			Sockets: []string{apiSocket}, Keeps: keeps,
			Size: most, Sizes: []profiles.Size{most}, Prices: remote.Prices{CPU: 0.07, GiB: 0.04375, Read: "2026-11"},
		},
	}
	s.Facts.Arch = remote.Here(s.Address, "amd64")
	s.Needs(environ, "make a token at https://sprites.dev/account, then: export SPRITES_TOKEN=…")
	s.Check("SPRITES_API_URL", s.Address)
	return s
}

func advise(e *remote.APIError) string {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "SPRITES_TOKEN is not accepted, or may not do this: https://sprites.dev/account shows the tokens"
	case http.StatusTooManyRequests:
		return "the account's limit is reached: pccrun gc removes unused sandboxes"
	case http.StatusPaymentRequired:
		return "https://sprites.dev/account shows the plan, and what is unpaid"
	}
	return ""
}

// created is the body of a request to create, and what is set before anything is executed.
type created struct {
	Name    string         `json:"name"`
	URL     urlSettings    `json:"url_settings"`
	Network *networkPolicy `json:"-"`
}

type urlSettings struct {
	Auth string `json:"auth"` // "sprite": the sprite's own address is not public
}

// networkPolicy is a filter of hosts. Of two rules that match a name the more specific one counts. One without rules filters nothing.
type networkPolicy struct {
	Rules []networkRule `json:"rules"`
}

type networkRule struct {
	Domain string `json:"domain"`
	Action string `json:"action"`
}

func (s *Service) request(r *remote.Request) *created {
	c := &created{Name: remote.NameOf(r.Labels), URL: urlSettings{"sprite"}}
	if filter := remote.FilterOf(r); filter.Open == "" {
		c.Network = &networkPolicy{Rules: []networkRule{{"*", "deny"}}}
		for _, host := range filter.Hosts {
			c.Network.Rules = append(c.Network.Rules, networkRule{host, "allow"})
		}
	}
	return c
}

// Describe returns what Create would send.
func (s *Service) Describe(r *remote.Request) any {
	c := s.request(r)
	return struct {
		*created
		Network *networkPolicy `json:"network,omitempty"`
	}{c, c.Network}
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

func (s *Service) taken(a *answered) (*remote.Sandbox, error) {
	return s.Checked(&remote.Sandbox{
		ID: a.Name, Region: a.Region, Labels: remote.LabelsOf(a.Name), Running: a.Status == "running", Created: a.Created, CPUs: most.CPUs, MemoryMB: most.MemoryMB,
		Address: s.Address + of(a.Name), Header: s.Key,
	})
}

func of(name string) string { return "/v1/sprites/" + url.PathEscape(name) }

// Create makes a sprite, which is known by its name: one that stands already was made by a call whose answer was lost.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	c := s.request(r)
	if c.Network != nil {
		s.unset.Store(c.Name, c.Network)
	}
	var a answered
	_, err := s.Call(ctx, &remote.Call{What: "create a sandbox", Method: http.MethodPost, In: c, Out: &a, Once: true, Limit: 2 * time.Minute}, "/v1/sprites")
	if err != nil && !remote.HasStatus(err, http.StatusConflict) {
		return nil, remote.Unclear(err)
	}
	box, err := s.Resume(ctx, c.Name)
	if err != nil {
		_ = s.Destroy(context.WithoutCancel(ctx), c.Name)
	}
	return box, err
}

// Find lists sprites, those that are stopped too. Labels are in their names.
func (s *Service) Find(ctx context.Context, labels map[string]string) ([]remote.Sandbox, error) {
	query := url.Values{"prefix": {remote.NameOf(labels)}, "max_results": {"50"}}
	return remote.Gather(func(page string) ([]answered, string, error) {
		if page != "" {
			query.Set("continuation_token", page)
		}
		var list struct {
			Sprites []answered `json:"sprites"`
			More    bool       `json:"has_more"`
			Next    string     `json:"next_continuation_token"`
		}
		_, err := s.Call(ctx, &remote.Call{What: "list the sandboxes", Out: &list}, "/v1/sprites?"+query.Encode())
		if !list.More {
			list.Next = ""
		}
		return list.Sprites, list.Next, err
	}, s.taken)
}

// Status returns a sprite as it is.
func (s *Service) Status(ctx context.Context, name string) (*remote.Sandbox, error) {
	var a answered
	if err := s.About(ctx, name, &remote.Call{What: "look at", Out: &a}, of(name)); err != nil {
		return nil, err
	}
	return s.taken(&a)
}

// Resume makes a sprite ready: it starts by itself as something is executed.
func (s *Service) Resume(ctx context.Context, name string) (*remote.Sandbox, error) {
	if policy, is := s.unset.Load(name); is {
		if err := s.About(ctx, name, &remote.Call{What: "set the filter of", Method: http.MethodPost, In: policy}, of(name)+"/policy/network"); err != nil {
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
	err := s.About(ctx, box.ID, &remote.Call{What: "look at", Out: &list}, of(box.ID)+"/exec")
	for _, session := range list.Sessions {
		e := s.About(ctx, box.ID, &remote.Call{What: "stop", Method: http.MethodPost}, of(box.ID)+"/exec/"+url.PathEscape(session.ID)+"/kill?signal=KILL")
		if !remote.HasStatus(e, http.StatusGone, http.StatusNotFound) { // it has ended
			err = errors.Join(err, e)
		}
	}
	return err
}

// Destroy ends a sprite.
func (s *Service) Destroy(ctx context.Context, name string) error {
	return s.About(ctx, name, &remote.Call{What: "destroy", Method: http.MethodDelete}, of(name))
}
