// Package daytona makes sandboxes of Daytona's (v0) out of what the engine of package remote
// asks for: its API, and the toolbox, the daemon that each sandbox has.
//
// It promises that the key is part of no address and no error, and that no word of the
// command or its environment is part of a request to create.
package daytona

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
)

// Name is what --provider calls it.
const Name = "daytona"

// keeps is what Daytona itself keeps.
var keeps = map[profiles.Guarantee]string{
	profiles.NetAllowlist: "a filter of host names",
	profiles.ProcIsolated: "a container or virtual machine, by the snapshot's class",
}

// Service is Daytona's API.
type Service struct {
	remote.Base
}

// New returns the provider, whether or not it can be used.
func New(host providers.Host) *remote.Provider {
	s := NewService(host.Environ)
	return remote.New(s, s.Facts, host)
}

// NewService reads the variables that Daytona's own client reads.
func NewService(environ []string) *Service {
	get := func(name string) string { return remote.Variable(environ, name) }
	key, org := get("DAYTONA_API_KEY"), ""
	if key == "" { // else it is a token of a person's
		key, org = get("DAYTONA_JWT_TOKEN"), get("DAYTONA_ORGANIZATION_ID")
	}
	address := cmp.Or(get("DAYTONA_API_URL"), get("DAYTONA_SERVER_URL"), "https://app.daytona.io/api")
	s := &Service{}
	s.Base = remote.Base{
		API:     remote.API{Provider: Name, Client: remote.NewClient(environ), Secrets: []string{key}, Advise: advise},
		Address: strings.TrimSuffix(address, "/"),
		Key:     http.Header{"Authorization": {"Bearer " + key}, "Accept": {"application/json"}, "X-Daytona-Source": {"pccrun"}, "X-Daytona-Sdk-Version": {"0.205.1"}},
		Facts: remote.Facts{
			Daemons: []uint16{2280, 22220, 22222}, Keeps: keeps, Region: get("DAYTONA_TARGET"), Regions: []string{"us", "eu", "*"},
			Images: "a snapshot, or an image with its tag", Image: get("DAYTONA_SNAPSHOT"), Sizing: func(image string) bool { return !ofImage(image) },
			Step: profiles.Size{CPUs: 1, MemoryMB: 1024}, Most: profiles.Size{CPUs: 4, MemoryMB: 8192},
			Prices: remote.Prices{CPU: 0.0504, GiB: 0.0162, Read: "2026-05"},
		},
	}
	if s.Facts.Image == "" {
		s.Facts.Size = profiles.Size{CPUs: 1, MemoryMB: 1024}
	}
	if org != "" {
		s.Key.Set("X-Daytona-Organization-Id", org)
	}
	s.Facts.Arch = remote.Here(s.Address, "amd64") // as its snapshots have to be
	s.Needs(environ, "make a key at https://app.daytona.io/dashboard/keys, then: export DAYTONA_API_KEY=…")
	s.Check("DAYTONA_SERVER_URL", get("DAYTONA_SERVER_URL"))
	s.Check("DAYTONA_API_URL", get("DAYTONA_API_URL"))
	return s
}

// limited is how a refusal by 400 says that a limit of the account is the reason.
var limited = regexp.MustCompile(`(?i)\b(quota|limit)\b.* exceeded`)

func advise(e *remote.APIError) string {
	switch {
	case e.Status == http.StatusUnauthorized:
		return "DAYTONA_API_KEY is not accepted: https://app.daytona.io/dashboard/keys shows the keys"
	case e.Status == http.StatusForbidden:
		return "the account, or the key by its permissions, may not do this: https://app.daytona.io/dashboard/keys shows them"
	case e.Status == http.StatusTooManyRequests, e.Status == http.StatusBadRequest && limited.MatchString(e.Message):
		return "the account's limit is reached: pccrun gc ends sandboxes that nobody uses"
	case e.Status == http.StatusPaymentRequired:
		return "https://app.daytona.io/dashboard/billing shows unpaid invoices"
	}
	return ""
}

// created is the body of a request to create.
type created struct {
	Snapshot    string            `json:"snapshot,omitempty"`
	Build       *build            `json:"buildInfo,omitempty"`
	CPU         int               `json:"cpu,omitempty"`
	Memory      int               `json:"memory,omitempty"` // GiB
	Labels      map[string]string `json:"labels"`
	Target      string            `json:"target,omitempty"`
	Public      bool              `json:"public"`
	AutoStop    int               `json:"autoStopInterval"` // minutes without a word: it keeps its files then
	BlockAll    bool              `json:"networkBlockAll"`
	DomainAllow string            `json:"domainAllowList,omitempty"`
}

// build is what a sandbox is made of that comes of no snapshot.
type build struct {
	Dockerfile string `json:"dockerfileContent"`
}

// ofImage reports whether a name is an image's, of a registry: it has its tag or its sum. Any other is a snapshot's.
func ofImage(name string) bool { return strings.ContainsAny(name, ":@") }

// request makes the body. Only what is made of an image has the size that a request asks for; else the snapshot's, which is
// changed afterwards ([Service.Create]).
func (s *Service) request(r *remote.Request) *created {
	c := &created{Snapshot: cmp.Or(r.Image, s.Facts.Image), Labels: r.Labels, Target: cmp.Or(r.Region, s.Facts.Region), AutoStop: max(1, int(r.Lifetime/time.Minute))}
	if ofImage(r.Image) {
		c.Snapshot, c.Build = "", &build{"FROM " + r.Image + "\n"}
		c.CPU, c.Memory = int(r.Size.CPUs), int(r.Size.MemoryMB/1024)
	}
	if filter := remote.FilterOf(r); filter.Open == "" {
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

func (s *Service) taken(a *answered) (*remote.Sandbox, error) {
	box := &remote.Sandbox{
		ID: a.ID, Region: a.Target, Labels: a.Labels, Running: a.State == "started", Created: a.Created, CPUs: a.CPU, MemoryMB: int64(a.Memory * 1024), Header: s.Key,
	}
	if a.Toolbox != "" { // there is none in a list
		box.Address = strings.TrimSuffix(a.Toolbox, "/") + "/" + a.ID
	}
	return s.Checked(box)
}

func of(id string) string { return "/sandbox/" + url.PathEscape(id) }

// Create makes a sandbox, and waits until it has started.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	var a answered
	if _, err := s.Call(ctx, &remote.Call{What: "create a sandbox", Method: http.MethodPost, In: s.request(r), Out: &a, Once: true, Limit: 2 * time.Minute}, "/sandbox"); err != nil {
		return nil, remote.Unclear(err)
	}
	if _, err := s.taken(&a); err != nil {
		return nil, err
	}
	box, err := s.started(ctx, &a)
	if err == nil && !box.Size().Holds(r.Size) {
		box, err = s.resize(ctx, box, r.Size)
	}
	if err != nil {
		_ = s.Destroy(context.WithoutCancel(ctx), a.ID)
	}
	return box, err
}

// resize makes a sandbox as large as one that is asked for, and waits until it is.
func (s *Service) resize(ctx context.Context, box *remote.Sandbox, want profiles.Size) (*remote.Sandbox, error) {
	size := map[string]int{"cpu": int(max(want.CPUs, box.CPUs)), "memory": int(max(want.MemoryMB, box.MemoryMB) / 1024)}
	if err := s.About(ctx, box.ID, &remote.Call{What: "resize", Method: http.MethodPost, In: size, Limit: 2 * time.Minute}, of(box.ID)+"/resize"); err != nil {
		return nil, err
	}
	return s.Resume(ctx, box.ID)
}

// started waits until a sandbox has started.
func (s *Service) started(ctx context.Context, a *answered) (*remote.Sandbox, error) {
	id, looked := a.ID, true
	err := remote.Poll(ctx, 50*time.Millisecond, time.Second, func() (bool, error) {
		if !looked {
			*a = answered{}
			if err := s.About(ctx, id, &remote.Call{What: "look at", Out: a}, of(id)); err != nil {
				return false, err
			}
		}
		looked = false
		switch a.State {
		case "error", "build_failed", "destroyed", "destroying":
			return false, fmt.Errorf("%s: sandbox %s did not start: %s %s", Name, id, a.State, strconv.Quote(a.Reason))
		}
		return a.State == "started", nil
	})
	if err != nil {
		a.ID = id
		return nil, err
	}
	return s.taken(a)
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
		var page struct {
			Items []answered `json:"items"`
			Next  string     `json:"nextCursor"`
		}
		_, err := s.Call(ctx, &remote.Call{What: "list the sandboxes", Out: &page}, "/sandbox?"+query.Encode())
		return page.Items, page.Next, err
	}, s.taken)
}

// Status returns a sandbox as it is.
func (s *Service) Status(ctx context.Context, id string) (*remote.Sandbox, error) {
	var a answered
	if err := s.About(ctx, id, &remote.Call{What: "look at", Out: &a}, of(id)); err != nil {
		return nil, err
	}
	return s.taken(&a)
}

// Resume makes a sandbox ready, one that is stopped too.
func (s *Service) Resume(ctx context.Context, id string) (*remote.Sandbox, error) {
	var a answered
	if err := s.About(ctx, id, &remote.Call{What: "look at", Out: &a}, of(id)); err != nil {
		return nil, err
	}
	if a.State == "stopped" || a.State == "archived" {
		if err := s.post(ctx, id, "start", "/start"); err != nil {
			return nil, err
		}
		a.State = "starting"
	}
	return s.started(ctx, &a)
}

// post has the API do something with a sandbox.
func (s *Service) post(ctx context.Context, id, what, path string) error {
	return s.About(ctx, id, &remote.Call{What: what, Method: http.MethodPost, Limit: 2 * time.Minute}, of(id)+path)
}

// Extend sets how long the sandbox stands without a word, and what becomes of it then. Its clock counts from the last
// word, which is this one.
func (s *Service) Extend(ctx context.Context, box *remote.Sandbox, lifetime time.Duration, remove bool) error {
	removes := "/autodelete/-1"
	if remove {
		removes = "/autodelete/0" // as it stops
	}
	for _, call := range []string{removes, "/autostop/" + strconv.Itoa(max(1, int(lifetime/time.Minute))), "/last-activity"} {
		if err := s.post(ctx, box.ID, "extend", call); err != nil {
			return err
		}
	}
	return nil
}

// Park stops the sandbox.
func (s *Service) Park(ctx context.Context, box *remote.Sandbox) error {
	return s.post(ctx, box.ID, "stop", "/stop")
}

// Destroy ends a sandbox.
func (s *Service) Destroy(ctx context.Context, id string) error {
	return s.About(ctx, id, &remote.Call{What: "destroy", Method: http.MethodDelete}, of(id))
}

// Preview asks where a port is. Sandboxes are private: a request bears the token of the answer.
func (s *Service) Preview(ctx context.Context, box *remote.Sandbox, port uint16) (*remote.Preview, error) {
	var at struct {
		URL   string `json:"url"`
		Token string `json:"token"`
	}
	if err := s.About(ctx, box.ID, &remote.Call{What: "ask for the address of a port of", Out: &at}, fmt.Sprintf("%s/ports/%d/preview-url", of(box.ID), port)); err != nil {
		return nil, err
	}
	return &remote.Preview{URL: at.URL, Header: http.Header{"X-Daytona-Preview-Token": {at.Token}, "X-Daytona-Skip-Preview-Warning": {"true"}}}, nil
}
