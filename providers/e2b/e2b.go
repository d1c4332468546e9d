// Package e2b makes sandboxes of E2B's out of what the engine of package remote asks for:
// its control plane, and envd, the daemon that each sandbox has.
//
// It promises that the key goes to the address of the control plane alone, and that no word
// of the command or its environment is part of a request to create.
package e2b

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
)

// Name is what --provider calls it.
const Name = "e2b"

// Service is E2B's API.
type Service struct {
	remote.Base
	sandbox string // one address for all sandboxes, if the user names it
	domain  string
}

// keeps is what E2B itself keeps.
var keeps = map[profiles.Guarantee]string{
	profiles.NetAllowlist: "a filter of host names, at ports 80 and 443",
	profiles.ProcIsolated: "a virtual machine (Firecracker)",
	profiles.ResTime:      "1 or 24 hours, by plan",
}

var keyShape = regexp.MustCompile(`^e2b_[0-9a-f]+$`)

// New returns the provider, whether or not it can be used.
func New(host providers.Host) *remote.Provider {
	s := NewService(host.Environ)
	return remote.New(s, s.Facts, host)
}

// NewService reads the variables that E2B's own client reads.
func NewService(environ []string) *Service {
	get := func(name string) string { return remote.Variable(environ, name) }
	key := get("E2B_API_KEY")
	s := &Service{domain: cmp.Or(get("E2B_DOMAIN"), "e2b.app"), sandbox: strings.TrimSuffix(get("E2B_SANDBOX_URL"), "/")}
	s.Base = remote.Base{
		API:     remote.API{Provider: Name, Client: remote.NewClient(environ), Secrets: []string{key}, Advise: advise},
		Address: cmp.Or(strings.TrimSuffix(get("E2B_API_URL"), "/"), "https://api."+s.domain),
		Key:     http.Header{"X-Api-Key": {key}, "Accept": {"application/json"}},
		Facts: remote.Facts{
			Daemons: []uint16{envdPort}, Keeps: keeps, MaxLife: 24 * time.Hour,
			Images: "a template", Image: cmp.Or(get("E2B_TEMPLATE"), "base"), SizedBy: "the template",
			Prices: remote.Prices{CPU: 0.0504, GiB: 0.0162, Read: "2026-11"},
		},
	}
	if s.Facts.Image == "base" {
		s.Facts.Size = profiles.Size{CPUs: 2, MemoryMB: 512}
	}
	s.Facts.Arch = remote.Here(s.Address, "amd64")
	s.Needs(environ, "make a key at https://e2b.dev/dashboard?tab=keys, then: export E2B_API_KEY=e2b_…")
	if get("E2B_VALIDATE_API_KEY") != "false" && !keyShape.MatchString(key) {
		s.Unusable("E2B_API_KEY: want e2b_ and hexadecimal digits", "https://e2b.dev/dashboard?tab=keys shows it")
	}
	s.Check("E2B_API_URL", s.Address)
	s.Check("E2B_SANDBOX_URL", s.sandbox)
	return s
}

// advice is what mends a refusal, by its status.
var advice = map[int]string{
	http.StatusUnauthorized:        "E2B_API_KEY is not accepted: https://e2b.dev/dashboard?tab=keys shows the keys",
	http.StatusForbidden:           "the account may not do this, or its limit is reached: https://e2b.dev/dashboard shows both, and pccrun gc removes unused sandboxes",
	http.StatusTooManyRequests:     "the account's limit is reached: pccrun gc removes unused sandboxes",
	http.StatusPaymentRequired:     "see the billing page at https://e2b.dev/dashboard",
	http.StatusServiceUnavailable:  "E2B has no capacity at the moment: try again in a minute",
	http.StatusInsufficientStorage: "the sandbox's disk is full: list files that need no upload in .pccrunignore",
	http.StatusBadGateway:          "the sandbox does not exist any more: it timed out or was ended",
}

func advise(e *remote.APIError) string {
	if e.Status == http.StatusNotFound && strings.Contains(e.Message, "template") {
		return "the dashboard lists the templates"
	}
	return advice[e.Status]
}

// created is the body of a request to create.
type created struct {
	Template  string            `json:"templateID"`
	Timeout   int               `json:"timeout"`
	Metadata  map[string]string `json:"metadata"`
	AutoPause bool              `json:"autoPause"` // at its end it keeps its files and costs nothing
	Internet  bool              `json:"allow_internet_access"`
	Secure    bool              `json:"secure,omitempty"`
	Network   *network          `json:"network"`
}

type network struct {
	AllowOut []string `json:"allowOut,omitempty"`
	DenyOut  []string `json:"denyOut,omitempty"`
	Public   bool     `json:"allowPublicTraffic"` // else everybody reaches its ports who knows its name
}

// request makes the body.
func (s *Service) request(r *remote.Request) *created {
	c := &created{Template: cmp.Or(r.Image, s.Facts.Image), Timeout: int(r.Lifetime / time.Second), Metadata: r.Labels, AutoPause: true, Network: &network{}}
	filter := remote.FilterOf(r)
	if c.Internet = filter.Open != "" || len(filter.Hosts) > 0; filter.Open == "" {
		c.Network.AllowOut, c.Network.DenyOut = filter.Hosts, []string{"0.0.0.0/0"}
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

func (s *Service) taken(a *answered) (*remote.Sandbox, error) {
	box := &remote.Sandbox{
		ID: a.ID, Labels: a.Metadata, Running: a.State != "paused", Created: a.Started, Ends: a.Ends, CPUs: a.CPUs, MemoryMB: a.MemoryMB,
		Address: s.sandbox, Version: a.Version, Header: http.Header{"E2b-Sandbox-Id": {a.ID}, "E2b-Sandbox-Port": {strconv.Itoa(envdPort)}, "Authorization": as(user)},
	}
	domain := s.domain
	if a.Domain != nil && *a.Domain != "" {
		domain = *a.Domain
	}
	box.Domain = domain
	switch {
	case box.Address != "":
	case slices.Contains([]string{"e2b.app", "e2b.dev", "e2b.pro"}, domain):
		box.Address = "https://sandbox." + domain
	default:
		box.Address = fmt.Sprintf("https://%d-%s.%s", envdPort, a.ID, domain)
	}
	if a.Token != "" {
		box.Header.Set("X-Access-Token", a.Token)
	}
	if a.Traffic != "" {
		box.Header.Set("E2b-Traffic-Access-Token", a.Traffic)
	}
	return s.Checked(box)
}

// Create makes a sandbox.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	var a answered
	body := s.request(r)
	create := func(path string) error {
		_, err := s.Call(ctx, &remote.Call{What: "create a sandbox", Method: http.MethodPost, In: body, Out: &a, Once: true, Limit: 2 * time.Minute}, path)
		return err
	}
	err := create("/v2/sandboxes")
	var refused *remote.APIError
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound && !strings.Contains(refused.Message, "template") {
		body.Secure = true // as all are that the newer call makes: a control plane of one's own may not have it
		err = create("/sandboxes")
	}
	if err != nil {
		return nil, remote.Unclear(err)
	}
	a.Metadata = r.Labels
	if older(a.Version, closes) {
		_ = s.Destroy(context.WithoutCancel(ctx), a.ID)
		return nil, &providers.UnusableError{
			Provider: Name, Cause: fmt.Sprintf("template %s: its daemon envd is %s, and 0.5.2 is the oldest that works", body.Template, a.Version),
			Advice: "build the template again: it gets the current envd",
		}
	}
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
		header, err := s.Call(ctx, &remote.Call{What: "list the sandboxes", Out: &list}, "/v2/sandboxes?"+query.Encode())
		return list, header.Get("X-Next-Token"), err
	}, s.taken)
}

// one calls about a sandbox, and reads what it is.
func (s *Service) one(ctx context.Context, id string, c *remote.Call, path string) (*remote.Sandbox, error) {
	var a answered
	c.Out = &a
	if err := s.About(ctx, id, c, path); err != nil {
		return nil, err
	}
	return s.taken(&a)
}

func of(id string) string { return "/sandboxes/" + url.PathEscape(id) }

// Status returns a sandbox as it is.
func (s *Service) Status(ctx context.Context, id string) (*remote.Sandbox, error) {
	return s.one(ctx, id, &remote.Call{What: "look at"}, of(id))
}

// Resume makes a sandbox ready, one that is paused too.
func (s *Service) Resume(ctx context.Context, id string) (*remote.Sandbox, error) {
	connect := func(version string) (*remote.Sandbox, error) {
		return s.one(ctx, id, &remote.Call{What: "connect to", Method: http.MethodPost, In: map[string]int{"timeout": 300}, Limit: 2 * time.Minute}, version+of(id)+"/connect")
	}
	box, err := connect("/v2")
	if errors.Is(err, remote.ErrGone) { // or the control plane does not have that call
		return connect("")
	}
	return box, err
}

// Extend sets the sandbox's end. It is paused then, and costs nothing: what becomes of it was decided
// when it was made.
func (s *Service) Extend(ctx context.Context, box *remote.Sandbox, lifetime time.Duration, _ bool) error {
	return s.About(ctx, box.ID, &remote.Call{What: "extend", Method: http.MethodPost, In: map[string]int{"timeout": int(lifetime / time.Second)}}, of(box.ID)+"/timeout")
}

// Park pauses the sandbox.
func (s *Service) Park(ctx context.Context, box *remote.Sandbox) error {
	return s.About(ctx, box.ID, &remote.Call{What: "pause", Method: http.MethodPost, In: map[string]bool{"memory": false}, Limit: 2 * time.Minute}, of(box.ID)+"/pause")
}

// Destroy ends a sandbox.
func (s *Service) Destroy(ctx context.Context, id string) error {
	return s.About(ctx, id, &remote.Call{What: "destroy", Method: http.MethodDelete}, of(id))
}

// Preview says where a port is: each has a name of its own below the sandbox's domain. Where the sandbox was made without
// traffic of everybody's it bears a token.
func (s *Service) Preview(_ context.Context, box *remote.Sandbox, port uint16) (*remote.Preview, error) {
	p := &remote.Preview{URL: fmt.Sprintf("https://%d-%s.%s", port, box.ID, cmp.Or(box.Domain, s.domain)), Header: http.Header{}}
	if s.sandbox != "" { // one address for all, which looks at headers
		p.URL, p.Header = s.sandbox, http.Header{"E2b-Sandbox-Id": {box.ID}, "E2b-Sandbox-Port": {strconv.Itoa(int(port))}}
	}
	if token := box.Header.Get("E2b-Traffic-Access-Token"); token != "" {
		p.Header.Set("E2b-Traffic-Access-Token", token)
	}
	return p, nil
}
