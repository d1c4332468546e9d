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
	remote.Resource[answered]
	sandbox string // one address for all sandboxes, if the user names it
	domain  string
}

var keyShape = regexp.MustCompile(`^e2b_[0-9a-f]+$`)

// New returns the provider, whether or not it can be used.
var New = remote.Of(NewService)

// NewService reads the variables that E2B's own client reads.
func NewService(environ []string) *Service {
	get := func(name string) string { return remote.Variable(environ, name) }
	key := get("E2B_API_KEY")
	s := &Service{domain: cmp.Or(get("E2B_DOMAIN"), "e2b.app"), sandbox: strings.TrimSuffix(get("E2B_SANDBOX_URL"), "/")}
	s.Path, s.Take, s.Asks = "/sandboxes/{id}", s.taken, s.request
	s.Base = remote.Base{
		API: remote.API{Provider: Name, Secrets: []string{key}, Advice: advice, Advise: advise},
		Key: http.Header{"X-Api-Key": {key}, "Accept": {"application/json"}},
		Facts: remote.Facts{
			Keeps: map[profiles.Guarantee]string{
				profiles.NetAllowlist: "a filter of host names, at ports 80 and 443", profiles.ProcIsolated: "a virtual machine (Firecracker)", profiles.ResTime: "1 or 24 hours, by plan",
			},
			Daemons: []uint16{envdPort}, Life: remote.Life{MaxLife: 24 * time.Hour},
			Images: "a template", Image: cmp.Or(get("E2B_TEMPLATE"), "base"), SizedBy: "the template",
			Prices: remote.Prices{CPU: 0.0504, GiB: 0.0162, Read: "2026-11"},
		},
	}
	if s.Facts.Image == "base" {
		s.Facts.Size = profiles.Size{CPUs: 2, MemoryMB: 512}
	}
	remote.Begin(&s.Base, environ, "E2B_API_URL", "https://api."+s.domain, "make a key at https://e2b.dev/dashboard?tab=keys, then: export E2B_API_KEY=e2b_…")
	if get("E2B_VALIDATE_API_KEY") != "false" && !keyShape.MatchString(key) {
		s.Unusable("E2B_API_KEY: want e2b_ and hexadecimal digits", "https://e2b.dev/dashboard?tab=keys shows it")
	}
	s.Check("E2B_SANDBOX_URL", s.sandbox)
	return s
}

// advice is what mends a refusal, by its status.
var advice = map[int]string{
	http.StatusUnauthorized:        "E2B_API_KEY is not accepted: https://e2b.dev/dashboard?tab=keys shows the keys",
	http.StatusForbidden:           "the account may not do this, or its limit is reached: https://e2b.dev/dashboard shows both, and pccrun gc removes unused sandboxes",
	http.StatusPaymentRequired:     "see the billing page at https://e2b.dev/dashboard",
	http.StatusServiceUnavailable:  "E2B has no capacity at the moment: try again in a minute",
	http.StatusInsufficientStorage: "the sandbox's disk is full: list files that need no upload in .pccrunignore",
	http.StatusBadGateway:          "the sandbox does not exist any more: it timed out or was ended",
}

// ofTemplate reports whether an error says that there is no such template.
func ofTemplate(err error) bool {
	var e *remote.APIError
	return errors.As(err, &e) && e.Status == http.StatusNotFound && strings.Contains(e.Message, "template")
}

func advise(e *remote.APIError) string {
	if ofTemplate(e) {
		return "the dashboard lists the templates"
	}
	return ""
}

// request is the body of a request to create.
func (s *Service) request(r *remote.Request) map[string]any {
	filter, network := remote.FilterOf(r), map[string]any{"allowPublicTraffic": false} // else everybody reaches its ports who knows its name
	if filter.Open == "" {
		network["denyOut"] = []string{"0.0.0.0/0"}
		if len(filter.Hosts) > 0 {
			network["allowOut"] = filter.Hosts
		}
	}
	return map[string]any{
		"templateID": cmp.Or(r.Image, s.Facts.Image), "timeout": int(r.Lifetime / time.Second), "metadata": r.Labels, "network": network,
		"autoPause":             true, // at its end it keeps its files and costs nothing
		"allow_internet_access": filter.Open != "" || len(filter.Hosts) > 0,
	}
}

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

func (s *Service) taken(a *answered, _ http.Header) (*remote.Sandbox, error) {
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

// Create makes a sandbox, by the older call where a control plane of one's own does not have the newer one, which makes all secure.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	var a answered
	body := s.request(r)
	err := remote.MakeBy(ctx, &s.Base, body, &a, "/v2/sandboxes")
	if remote.HasStatus(err, http.StatusNotFound) && !ofTemplate(err) {
		body["secure"] = true
		err = remote.MakeBy(ctx, &s.Base, body, &a, "/sandboxes")
	}
	if err != nil {
		return nil, err
	}
	a.Metadata = r.Labels
	box, err := s.taken(&a, nil)
	if err == nil && older(a.Version, closes) {
		err = &providers.UnusableError{
			Provider: Name, Cause: fmt.Sprintf("template %s: its daemon envd is %s, and 0.5.2 is the oldest that works", body["templateID"], a.Version),
			Advice: "build the template again: it gets the current envd",
		}
	}
	return box, err
}

// Find lists sandboxes, those that are paused too.
func (s *Service) Find(ctx context.Context, labels map[string]string) ([]remote.Sandbox, error) {
	// The value is a query itself, whose parts are encoded twice: so E2B's own client sends it.
	pairs := url.Values{}
	for key, value := range labels {
		pairs.Set(url.QueryEscape(key), url.QueryEscape(value))
	}
	query := url.Values{"metadata": {pairs.Encode()}, "state": {"running,paused"}, "limit": {"100"}}
	return s.Gather(query, "nextToken", func(query url.Values) ([]answered, string, error) {
		var list []answered
		header, err := s.Call(ctx, &remote.Call{What: "list the sandboxes", Out: &list, Query: query}, "/v2/sandboxes")
		return list, header.Get("X-Next-Token"), err
	})
}

// Resume makes a sandbox ready, one that is paused too.
func (s *Service) Resume(ctx context.Context, id string) (box *remote.Sandbox, err error) {
	for _, version := range []string{"/v2", ""} { // a control plane of one's own may have the older call alone
		c := &remote.Call{What: "connect to", Method: http.MethodPost, In: map[string]int{"timeout": 300}, Limit: 2 * time.Minute}
		if box, err = s.One(ctx, id, c, version+s.Path+"/connect"); !errors.Is(err, remote.ErrGone) {
			break
		}
	}
	return box, err
}

// Extend sets the sandbox's end. It is paused then, and costs nothing: what becomes of it was decided
// when it was made.
func (s *Service) Extend(ctx context.Context, box *remote.Sandbox, lifetime time.Duration, _ bool) error {
	return s.Post(ctx, box.ID, "extend", "/timeout", map[string]int{"timeout": int(lifetime / time.Second)})
}

// Park pauses the sandbox.
func (s *Service) Park(ctx context.Context, box *remote.Sandbox) error {
	return s.Post(ctx, box.ID, "pause", "/pause", map[string]bool{"memory": false})
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
