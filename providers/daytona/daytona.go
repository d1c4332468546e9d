// Package daytona makes sandboxes of Daytona's (v0) out of what the engine of package remote
// asks for: its API, and the toolbox, the daemon that each sandbox has.
//
// It promises that the key is part of no address and no error, and that no word of the
// command or its environment is part of a request to create.
package daytona

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
)

// Name is what --provider calls it.
const Name = "daytona"

// Service is Daytona's API.
type Service struct {
	api      *remote.API
	key      string
	org      string // where the key is a token of a person's
	keyErr   error
	base     string
	target   string
	snapshot string
}

// New returns the provider, whether or not it can be used.
func New(host providers.Host) *remote.Provider { return remote.New(NewService(host.Environ), host) }

// NewService reads the variables that Daytona's own client reads.
func NewService(environ []string) *Service {
	get := func(name string) string { return remote.Variable(environ, name) }
	s := &Service{key: get("DAYTONA_API_KEY"), base: "https://app.daytona.io/api", target: get("DAYTONA_TARGET"), snapshot: get("DAYTONA_SNAPSHOT")}
	if s.key == "" {
		s.key, s.org = get("DAYTONA_JWT_TOKEN"), get("DAYTONA_ORGANIZATION_ID")
	}
	for _, name := range []string{"DAYTONA_SERVER_URL", "DAYTONA_API_URL"} {
		base := strings.TrimSuffix(get(name), "/")
		if base == "" {
			continue
		}
		s.base = base
		if err := remote.CheckBase(name, base); err != nil {
			s.keyErr = &providers.UnusableError{Provider: Name, Cause: err.Error()}
		}
	}
	if s.key == "" || get("DAYTONA_API_KEY") == "" && s.org == "" {
		s.keyErr = &providers.UnusableError{
			Provider: Name, Cause: "DAYTONA_API_KEY is not set",
			Advice: "make a key at https://app.daytona.io/dashboard/keys, then: export DAYTONA_API_KEY=…; or DAYTONA_JWT_TOKEN with DAYTONA_ORGANIZATION_ID",
		}
	}
	s.api = &remote.API{Provider: Name, Client: remote.NewClient(), Secrets: []string{s.key}, Advise: advise}
	return s
}

// Name is Daytona's.
func (s *Service) Name() string { return Name }

// Ready says what is wrong with the key or an address.
func (s *Service) Ready() error { return s.keyErr }

// Daemons is where the toolbox listens.
func (s *Service) Daemons() []uint16 { return []uint16{2280} }

// Keeps is what Daytona itself keeps of a policy.
func (s *Service) Keeps(*profiles.Policy) []profiles.Answer { return nil }

func advise(e *remote.APIError) string {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "DAYTONA_API_KEY is not accepted: https://app.daytona.io/dashboard/keys shows the keys"
	case http.StatusTooManyRequests:
		return "the account's limit is reached: pccrun gc ends sandboxes that nobody uses"
	case http.StatusPaymentRequired:
		return "https://app.daytona.io/dashboard/billing shows unpaid invoices"
	}
	return ""
}

// created is the body of a request to create.
type created struct {
	Snapshot    string            `json:"snapshot,omitempty"`
	Labels      map[string]string `json:"labels"`
	Target      string            `json:"target,omitempty"`
	Public      bool              `json:"public"`
	AutoStop    int               `json:"autoStopInterval"` // minutes without a word: it keeps its files then
	BlockAll    bool              `json:"networkBlockAll"`
	DomainAllow string            `json:"domainAllowList,omitempty"`
}

func (s *Service) request(r *remote.Request) *created {
	c := &created{Snapshot: s.snapshot, Labels: r.Labels, Target: s.target, AutoStop: max(1, int(r.Lifetime/time.Minute))}
	if filter := remote.FilterOf(&r.Policy.Network); filter.Open == "" {
		c.BlockAll, c.DomainAllow = len(filter.Hosts) == 0, strings.Join(filter.Hosts, ",")
	}
	return c
}

// Describe returns what Create would send.
func (s *Service) Describe(r *remote.Request) any { return s.request(r) }

// answered is a sandbox as the API tells of it.
type answered struct {
	ID      string            `json:"id"`
	State   string            `json:"state"`
	Reason  string            `json:"errorReason"`
	Labels  map[string]string `json:"labels"`
	Target  string            `json:"target"`
	CPU     float64           `json:"cpu"`
	Memory  float64           `json:"memory"` // GiB
	Created time.Time         `json:"createdAt"`
	Toolbox string            `json:"toolboxProxyUrl"`
}

// access is where the toolbox of one sandbox is.
type access struct{ base string }

func (s *Service) taken(a *answered) (*remote.Sandbox, error) {
	if err := remote.CheckID(Name, "sandbox", a.ID); err != nil {
		return nil, err
	}
	box := &remote.Sandbox{ID: a.ID, Region: a.Target, Labels: a.Labels, Running: a.State == "started", Created: a.Created, CPUs: a.CPU, MemoryMB: int64(a.Memory * 1024)}
	if a.Toolbox == "" {
		return box, nil // of a list
	}
	box.Access = &access{strings.TrimSuffix(a.Toolbox, "/") + "/" + a.ID}
	return box, remote.CheckBase("the sandbox's address", a.Toolbox)
}

func (s *Service) header() http.Header {
	h := http.Header{"Authorization": {"Bearer " + s.key}, "Accept": {"application/json"}, "X-Daytona-Source": {"pccrun"}, "X-Daytona-Sdk-Version": {"0.205.1"}}
	if s.org != "" {
		h.Set("X-Daytona-Organization-Id", s.org)
	}
	return h
}

// call calls the API.
func (s *Service) call(ctx context.Context, c *remote.Call, path string) error {
	c.URL, c.Header = s.base+path, s.header()
	_, err := s.api.Do(ctx, c)
	return remote.Gone(err)
}

func of(id string) string { return "/sandbox/" + url.PathEscape(id) }

// page is a part of a list.
type page struct {
	Items []answered `json:"items"`
	Next  string     `json:"nextCursor"`
}

// Ask asks for nothing that costs.
func (s *Service) Ask(ctx context.Context) error {
	return s.call(ctx, &remote.Call{What: "ask whether the key is right", Method: http.MethodGet, Out: new(page)}, "/sandbox?limit=1")
}

// Create makes a sandbox, and waits until it has started.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	var a answered
	if err := s.call(ctx, &remote.Call{What: "create a sandbox", Method: http.MethodPost, In: s.request(r), Out: &a, Once: true, Limit: 2 * time.Minute}, "/sandbox"); err != nil {
		return nil, remote.Unclear(err)
	}
	if _, err := s.taken(&a); err != nil {
		return nil, err
	}
	box, err := s.started(ctx, &a)
	if err != nil {
		_ = s.Destroy(context.WithoutCancel(ctx), a.ID)
	}
	return box, err
}

// started waits until a sandbox has started.
func (s *Service) started(ctx context.Context, a *answered) (*remote.Sandbox, error) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		switch a.State {
		case "started":
			return s.taken(a)
		case "error", "build_failed", "destroyed", "destroying":
			return nil, fmt.Errorf("%s: sandbox %s did not start: %s %s", Name, a.ID, a.State, strconv.Quote(a.Reason))
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(wait):
		}
		id := a.ID
		*a = answered{}
		if err := s.call(ctx, &remote.Call{What: "look at sandbox " + id, Method: http.MethodGet, Out: a}, of(id)); err != nil {
			return nil, err
		}
	}
}

// Find lists sandboxes, those that are stopped too.
func (s *Service) Find(ctx context.Context, labels map[string]string) ([]remote.Sandbox, error) {
	text, err := json.Marshal(labels)
	if err != nil {
		return nil, err
	}
	query := url.Values{"labels": {string(text)}, "limit": {"100"}}
	return remote.Gather(func(cursor string) ([]answered, string, error) {
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		var p page
		err := s.call(ctx, &remote.Call{What: "list the sandboxes", Method: http.MethodGet, Out: &p}, "/sandbox?"+query.Encode())
		return p.Items, p.Next, err
	}, s.taken)
}

// Status returns a sandbox as it is.
func (s *Service) Status(ctx context.Context, id string) (*remote.Sandbox, error) {
	var a answered
	if err := s.call(ctx, &remote.Call{What: "look at sandbox " + id, Method: http.MethodGet, Out: &a}, of(id)); err != nil {
		return nil, err
	}
	return s.taken(&a)
}

// Resume makes a sandbox ready, one that is stopped too.
func (s *Service) Resume(ctx context.Context, id string) (*remote.Sandbox, error) {
	var a answered
	if err := s.call(ctx, &remote.Call{What: "look at sandbox " + id, Method: http.MethodGet, Out: &a}, of(id)); err != nil {
		return nil, err
	}
	if a.State == "stopped" || a.State == "archived" {
		if err := s.call(ctx, &remote.Call{What: "start sandbox " + id, Method: http.MethodPost, Limit: 2 * time.Minute}, of(id)+"/start"); err != nil {
			return nil, err
		}
		a.State = "starting"
	}
	return s.started(ctx, &a)
}

// Extend is a word to the sandbox's clock, which counts from the last one.
func (s *Service) Extend(ctx context.Context, box *remote.Sandbox, _ time.Duration) error {
	return s.call(ctx, &remote.Call{What: "extend sandbox " + box.ID, Method: http.MethodPost}, of(box.ID)+"/last-activity")
}

// Keep sets how long the sandbox stands without a word, and what becomes of it then.
func (s *Service) Keep(ctx context.Context, box *remote.Sandbox, lifetime time.Duration, remove bool) error {
	removes := "/autodelete/-1"
	if remove {
		removes = "/autodelete/0" // as it stops
	}
	for _, timer := range []string{removes, "/autostop/" + strconv.Itoa(max(1, int(lifetime/time.Minute)))} {
		if err := s.call(ctx, &remote.Call{What: "keep sandbox " + box.ID, Method: http.MethodPost}, of(box.ID)+timer); err != nil {
			return err
		}
	}
	return s.Extend(ctx, box, lifetime)
}

// Park stops the sandbox. One that is stopped already is no error.
func (s *Service) Park(ctx context.Context, box *remote.Sandbox) error {
	err := s.call(ctx, &remote.Call{What: "stop sandbox " + box.ID, Method: http.MethodPost, Limit: 2 * time.Minute}, of(box.ID)+"/stop")
	if err == nil || errors.Is(err, remote.ErrGone) {
		return err
	}
	if now, e := s.Status(ctx, box.ID); e == nil && !now.Running {
		return nil
	}
	return err
}

// Destroy ends a sandbox.
func (s *Service) Destroy(ctx context.Context, id string) error {
	err := s.call(ctx, &remote.Call{What: "destroy sandbox " + id, Method: http.MethodDelete}, of(id))
	if errors.Is(err, remote.ErrGone) {
		return nil
	}
	return err
}

// Daytona's prices of an hour, in US dollars.
const (
	perCPU = 0.0504
	perGiB = 0.0162
)

// Price is what is billed while a sandbox runs.
func (s *Service) Price(box *remote.Sandbox) float64 {
	return box.Hourly(perCPU, perGiB)
}
