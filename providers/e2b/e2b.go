// Package e2b makes sandboxes of E2B's out of what the engine of package remote asks for:
// its control plane, and envd, the daemon that each sandbox has.
//
// It promises that the key goes to the address of the control plane alone, and that no word
// of the command or its environment is part of a request to create.
package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
)

// Name is what --provider calls it.
const Name = "e2b"

// Options are what flags say of it.
type Options struct {
	Template string // "base" if it is ""
}

// Service is E2B's API.
type Service struct {
	api      *remote.API
	key      string
	keyErr   error
	control  string // the control plane
	sandbox  string // one address for all sandboxes, if the user names it
	domain   string
	template string
}

var keyShape = regexp.MustCompile(`^e2b_[0-9a-f]+$`)

// New returns the provider, whether or not it can be used.
func New(host providers.Host, o Options) *remote.Provider {
	return remote.New(NewService(host.Environ, o), host)
}

// NewService reads the variables that E2B's own client reads.
func NewService(environ []string, o Options) *Service {
	get := func(name string) string { return remote.Variable(environ, name) }
	s := &Service{key: get("E2B_API_KEY"), domain: get("E2B_DOMAIN"), control: strings.TrimSuffix(get("E2B_API_URL"), "/"), sandbox: strings.TrimSuffix(get("E2B_SANDBOX_URL"), "/"), template: o.Template}
	if s.domain == "" {
		s.domain = "e2b.app"
	}
	if s.control == "" {
		s.control = "https://api." + s.domain
	}
	if s.template == "" {
		s.template = "base"
	}
	unusable := func(cause, advice string) {
		if s.keyErr == nil {
			s.keyErr = &providers.UnusableError{Provider: Name, Cause: cause, Advice: advice}
		}
	}
	switch {
	case s.key == "":
		unusable("E2B_API_KEY is not set", "make a key at https://e2b.dev/dashboard?tab=keys, then: export E2B_API_KEY=e2b_…")
	case get("E2B_VALIDATE_API_KEY") != "false" && !keyShape.MatchString(s.key):
		unusable("E2B_API_KEY: want e2b_ and hexadecimal digits", "https://e2b.dev/dashboard?tab=keys shows it")
	}
	for _, base := range []struct{ name, address string }{{"E2B_API_URL", s.control}, {"E2B_SANDBOX_URL", s.sandbox}} {
		if base.address == "" {
			continue
		}
		if err := remote.CheckBase(base.name, base.address); err != nil {
			unusable(err.Error(), "")
		}
	}
	s.api = &remote.API{Provider: Name, Client: remote.NewClient(), Secrets: []string{s.key}, Advise: advise}
	return s
}

// Name is E2B's.
func (s *Service) Name() string { return Name }

// Ready says what is wrong with the key or an address.
func (s *Service) Ready() error { return s.keyErr }

// advise says what mends a refusal.
func advise(e *remote.APIError) string {
	switch {
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		return "E2B_API_KEY is not accepted: https://e2b.dev/dashboard?tab=keys shows the keys"
	case e.Status == http.StatusTooManyRequests:
		return "the account's limit is reached: pccrun gc removes unused sandboxes"
	case e.Status == http.StatusPaymentRequired:
		return "see the billing page at https://e2b.dev/dashboard"
	case e.Status == http.StatusServiceUnavailable:
		return "E2B has no capacity at the moment: try again in a minute"
	case e.Status == http.StatusNotFound && strings.Contains(e.Message, "template"):
		return "the dashboard lists the templates"
	case e.Status == http.StatusInsufficientStorage:
		return "the sandbox's disk is full: list files that need no upload in .pccrunignore"
	case e.Status == http.StatusBadGateway:
		return "the sandbox does not exist any more: it timed out or was ended"
	}
	return ""
}

// Keeps is what E2B itself keeps of a policy. It is a virtual machine, so that the answers
// of a copy elsewhere hold; its own filter of hosts is a second layer only.
func (s *Service) Keeps(*profiles.Policy) []profiles.Answer { return nil }

// created is the body of a request to create.
type created struct {
	Template  string            `json:"templateID"`
	Timeout   int               `json:"timeout"`
	Metadata  map[string]string `json:"metadata"`
	AutoPause bool              `json:"autoPause"` // at its end it keeps its files and costs nothing
	Internet  bool              `json:"allow_internet_access"`
	Network   *network          `json:"network,omitempty"`
}

type network struct {
	AllowOut []string `json:"allowOut"`
	DenyOut  []string `json:"denyOut"`
	Public   bool     `json:"allowPublicTraffic"`
}

// request makes the body.
func (s *Service) request(r *remote.Request) *created {
	c := &created{Template: s.template, Timeout: int(r.Lifetime / time.Second), Metadata: r.Labels, AutoPause: true}
	filter := remote.FilterOf(&r.Policy.Network)
	if c.Internet = filter.Open != "" || len(filter.Hosts) > 0; filter.Open == "" {
		c.Network = &network{AllowOut: append([]string{}, filter.Hosts...), DenyOut: []string{"0.0.0.0/0"}}
	}
	return c
}

// Describe returns what Create would send.
func (s *Service) Describe(r *remote.Request) any { return s.request(r) }

// answered is a sandbox as the control plane tells of it.
type answered struct {
	ID       string            `json:"sandboxID"`
	Domain   *string           `json:"domain"`
	Token    string            `json:"envdAccessToken"`
	Traffic  string            `json:"trafficAccessToken"`
	Version  string            `json:"envdVersion"`
	State    string            `json:"state"`
	Started  time.Time         `json:"startedAt"`
	Ends     time.Time         `json:"endAt"`
	CPUs     float64           `json:"cpuCount"`
	MemoryMB int64             `json:"memoryMB"`
	Metadata map[string]string `json:"metadata"`
}

// access is what envd of one sandbox is reached by.
type access struct{ base, id, token, traffic string }

func (s *Service) taken(a *answered) (*remote.Sandbox, error) {
	if err := remote.CheckID(Name, "sandbox", a.ID); err != nil {
		return nil, err
	}
	box := &remote.Sandbox{ID: a.ID, Labels: a.Metadata, Running: a.State != "paused", Created: a.Started, Ends: a.Ends, CPUs: a.CPUs, MemoryMB: a.MemoryMB}
	domain := s.domain
	if a.Domain != nil && *a.Domain != "" {
		domain = *a.Domain
	}
	at := &access{base: s.sandbox, id: a.ID, token: a.Token, traffic: a.Traffic}
	switch {
	case at.base != "":
	case slices.Contains([]string{"e2b.app", "e2b.dev", "e2b.pro"}, domain):
		at.base = "https://sandbox." + domain
	default:
		at.base = fmt.Sprintf("https://%d-%s.%s", envdPort, a.ID, domain)
	}
	box.Access = at
	return box, remote.CheckBase("the sandbox's address", at.base)
}

// call calls the control plane.
func (s *Service) call(ctx context.Context, c *remote.Call, path string) (http.Header, error) {
	c.URL = s.control + path
	c.Header = http.Header{"X-Api-Key": {s.key}, "Accept": {"application/json"}}
	return s.api.Do(ctx, c)
}

// Ask asks for nothing that costs.
func (s *Service) Ask(ctx context.Context) error {
	var list []answered
	_, err := s.call(ctx, &remote.Call{What: "check the key", Method: http.MethodGet, Out: &list}, "/v2/sandboxes?limit=1")
	return err
}

// Create makes a sandbox.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	var a answered
	_, err := s.call(ctx, &remote.Call{What: "create a sandbox", Method: http.MethodPost, In: s.request(r), Out: &a, Once: true, Limit: 2 * time.Minute}, "/v2/sandboxes")
	if err != nil {
		return nil, remote.Unclear(err)
	}
	a.Metadata = r.Labels
	return s.taken(&a)
}

// Find lists sandboxes, those that are paused too.
func (s *Service) Find(ctx context.Context, labels map[string]string) ([]remote.Sandbox, error) {
	// The value is a query itself, whose parts are encoded twice: so E2B's own client sends it.
	pairs := url.Values{}
	for key, value := range labels {
		pairs.Set(url.QueryEscape(key), url.QueryEscape(value))
	}
	query := url.Values{"metadata": {pairs.Encode()}, "state": {"running,paused"}, "limit": {"100"}}
	return remote.Gather(func(page string) ([]answered, string, error) {
		if page != "" {
			query.Set("nextToken", page)
		}
		var list []answered
		header, err := s.call(ctx, &remote.Call{What: "list the sandboxes", Method: http.MethodGet, Out: &list}, "/v2/sandboxes?"+query.Encode())
		return list, header.Get("X-Next-Token"), err
	}, s.taken)
}

// Status returns a sandbox as it is.
func (s *Service) Status(ctx context.Context, id string) (*remote.Sandbox, error) {
	var a answered
	if _, err := s.call(ctx, &remote.Call{What: "look at sandbox " + id, Method: http.MethodGet, Out: &a}, "/sandboxes/"+url.PathEscape(id)); err != nil {
		return nil, remote.Gone(err)
	}
	return s.taken(&a)
}

// Resume makes a sandbox ready, one that is paused too.
func (s *Service) Resume(ctx context.Context, id string) (*remote.Sandbox, error) {
	var a answered
	in := map[string]int{"timeout": 300}
	if _, err := s.call(ctx, &remote.Call{What: "connect to sandbox " + id, Method: http.MethodPost, In: in, Out: &a, Limit: 2 * time.Minute}, "/v2/sandboxes/"+url.PathEscape(id)+"/connect"); err != nil {
		return nil, remote.Gone(err)
	}
	return s.taken(&a)
}

// Extend sets the sandbox's end.
func (s *Service) Extend(ctx context.Context, box *remote.Sandbox, lifetime time.Duration) error {
	_, err := s.call(ctx, &remote.Call{What: "extend sandbox " + box.ID, Method: http.MethodPost, In: map[string]int{"timeout": int(lifetime / time.Second)}}, "/sandboxes/"+box.ID+"/timeout")
	return remote.Gone(err)
}

// Keep sets the sandbox's end. It is paused then, and costs nothing: what becomes of it was decided
// when it was made.
func (s *Service) Keep(ctx context.Context, box *remote.Sandbox, lifetime time.Duration, _ bool) error {
	return s.Extend(ctx, box, lifetime)
}

// Park pauses the sandbox. One that is paused already is no error.
func (s *Service) Park(ctx context.Context, box *remote.Sandbox) error {
	_, err := s.call(ctx, &remote.Call{What: "pause sandbox " + box.ID, Method: http.MethodPost, In: map[string]bool{"memory": false}, Limit: 2 * time.Minute}, "/sandboxes/"+box.ID+"/pause")
	var e *remote.APIError
	if errors.As(err, &e) && e.Status == http.StatusConflict {
		return nil
	}
	return remote.Gone(err)
}

// Destroy ends a sandbox.
func (s *Service) Destroy(ctx context.Context, id string) error {
	_, err := s.call(ctx, &remote.Call{What: "destroy sandbox " + id, Method: http.MethodDelete}, "/sandboxes/"+url.PathEscape(id))
	if errors.Is(remote.Gone(err), remote.ErrGone) {
		return nil
	}
	return err
}

// E2B's prices of an hour, in US dollars.
const (
	perCPU = 0.0504
	perGiB = 0.0162
)

// Price is what is billed while a sandbox runs.
func (s *Service) Price(box *remote.Sandbox) float64 {
	return box.Hourly(perCPU, perGiB)
}

// Daemons is where envd listens.
func (s *Service) Daemons() []uint16 { return []uint16{envdPort} }
