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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/remote"
)

// Name is what --provider calls it.
const Name = "daytona"

// Service is Daytona's API.
type Service struct {
	remote.Resource[answered]
}

// New returns the provider, whether or not it can be used.
var New = remote.Of(NewService)

// NewService reads the variables that Daytona's own client reads.
func NewService(environ []string) *Service {
	get := func(name string) string { return remote.Variable(environ, name) }
	key, org := get("DAYTONA_API_KEY"), ""
	if key == "" { // else it is a token of a person's
		key, org = get("DAYTONA_JWT_TOKEN"), get("DAYTONA_ORGANIZATION_ID")
	}
	s := &Service{}
	s.Path, s.Take, s.Asks = "/sandbox/{id}", s.taken, s.request
	s.Base = remote.Base{
		API: remote.API{Provider: Name, Secrets: []string{key}, Advice: advice},
		Key: http.Header{"Authorization": {"Bearer " + key}, "Accept": {"application/json"}, "X-Daytona-Source": {"pccrun"}, "X-Daytona-Sdk-Version": {"0.205.1"}},
		Facts: remote.Facts{
			Keeps: map[profiles.Guarantee]string{
				profiles.NetAllowlist: "a filter of host names", profiles.ProcIsolated: "a container or virtual machine, by the snapshot's class",
			},
			Daemons: []uint16{2280, 22220, 22222}, Region: get("DAYTONA_TARGET"), Regions: []string{"us", "eu", "*"},
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
	remote.Begin(&s.Base, environ, "DAYTONA_API_URL", cmp.Or(get("DAYTONA_SERVER_URL"), "https://app.daytona.io/api"), "make a key at https://app.daytona.io/dashboard/keys, then: export DAYTONA_API_KEY=…")
	s.Check("DAYTONA_SERVER_URL", get("DAYTONA_SERVER_URL"))
	return s
}

// advice is what mends a refusal, by its status.
var advice = map[int]string{
	http.StatusUnauthorized:    "DAYTONA_API_KEY is not accepted: https://app.daytona.io/dashboard/keys shows the keys",
	http.StatusForbidden:       "the account, or the key by its permissions, may not do this: https://app.daytona.io/dashboard/keys shows them",
	http.StatusPaymentRequired: "https://app.daytona.io/dashboard/billing shows unpaid invoices",
}

// ofImage reports whether a name is an image's, of a registry: it has its tag or its sum. Any other is a snapshot's.
func ofImage(name string) bool { return strings.ContainsAny(name, ":@") }

// request is the body of a request to create. Only what is made of an image has the size that it asks for; else the snapshot's,
// which is changed afterwards ([Service.Resume]).
func (s *Service) request(r *remote.Request) map[string]any {
	c := map[string]any{
		"labels": r.Labels, "target": cmp.Or(r.Region, s.Facts.Region), "public": false,
		"autoStopInterval": max(1, int(r.Lifetime/time.Minute)), // minutes without a word: it keeps its files then
	}
	if ofImage(r.Image) {
		c["buildInfo"], c["cpu"], c["memory"] = map[string]string{"dockerfileContent": "FROM " + r.Image + "\n"}, int(r.Size.CPUs), int(r.Size.MemoryMB/1024)
	} else {
		c["snapshot"] = cmp.Or(r.Image, s.Facts.Image)
	}
	filter := remote.FilterOf(r)
	if c["networkBlockAll"] = filter.Open == "" && len(filter.Hosts) == 0; filter.Open == "" {
		c["domainAllowList"] = strings.Join(filter.Hosts, ",")
	}
	return remote.Body(c)
}

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

func (s *Service) taken(a *answered, _ http.Header) (*remote.Sandbox, error) {
	box := &remote.Sandbox{
		ID: a.ID, Region: a.Target, Labels: a.Labels, Running: a.State == "started", State: a.State, Created: a.Created, CPUs: a.CPU, MemoryMB: int64(a.Memory * 1024), Header: s.Key,
	}
	if slices.Contains([]string{"error", "build_failed", "destroyed", "destroying"}, a.State) {
		box.Failed = a.State + " " + strconv.Quote(a.Reason)
	}
	if a.Toolbox != "" { // there is none in a list
		box.Address = strings.TrimSuffix(a.Toolbox, "/") + "/" + a.ID
	}
	return s.Checked(box)
}

// Create makes a sandbox. One that is to be larger than its snapshot is so as it has started.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	var a answered
	if err := remote.MakeBy(ctx, &s.Base, s.request(r), &a, "/sandbox"); err != nil {
		return nil, err
	}
	box, err := s.taken(&a, nil)
	if err != nil || box.Size().Holds(r.Size) {
		return box, err
	}
	size := map[string]int{"cpu": int(max(r.Size.CPUs, box.CPUs)), "memory": int(max(r.Size.MemoryMB, box.MemoryMB) / 1024)}
	if _, err = s.Resume(ctx, box.ID); err == nil {
		err = s.Post(ctx, box.ID, "resize", "/resize", size)
	}
	box.Running = false // until it has that size
	return box, err
}

// Find lists sandboxes, those that are stopped too.
func (s *Service) Find(ctx context.Context, labels map[string]string) ([]remote.Sandbox, error) {
	text, err := json.Marshal(labels)
	if err != nil {
		return nil, err
	}
	query := url.Values{"labels": {string(text)}, "limit": {"100"}}
	return s.Gather(query, "cursor", func(query url.Values) ([]answered, string, error) {
		var page struct {
			Items []answered `json:"items"`
			Next  string     `json:"nextCursor"`
		}
		_, err := s.Call(ctx, &remote.Call{What: "list the sandboxes", Out: &page, Query: query}, "/sandbox")
		return page.Items, page.Next, err
	})
}

// Resume makes a sandbox ready, one that is stopped too.
func (s *Service) Resume(ctx context.Context, id string) (*remote.Sandbox, error) {
	box, err := s.Status(ctx, id)
	if err == nil && (box.State == "stopped" || box.State == "archived") {
		err = s.Post(ctx, id, "start", "/start", nil)
	}
	if err != nil || box.Running {
		return box, err
	}
	return remote.UntilRuns(ctx, &s.Base, func() (*remote.Sandbox, error) { return s.Status(ctx, id) })
}

// Extend sets how long the sandbox stands without a word, and what becomes of it then. Its clock counts from the last
// word, which is this one.
func (s *Service) Extend(ctx context.Context, box *remote.Sandbox, lifetime time.Duration, remove bool) error {
	removes := "/autodelete/-1"
	if remove {
		removes = "/autodelete/0" // as it stops
	}
	for _, call := range []string{removes, "/autostop/" + strconv.Itoa(max(1, int(lifetime/time.Minute))), "/last-activity"} {
		if err := s.Post(ctx, box.ID, "extend", call, nil); err != nil {
			return err
		}
	}
	return nil
}

// Park stops the sandbox.
func (s *Service) Park(ctx context.Context, box *remote.Sandbox) error {
	return s.Post(ctx, box.ID, "stop", "/stop", nil)
}

// Preview asks where a port is. Sandboxes are private: a request bears the token of the answer.
func (s *Service) Preview(ctx context.Context, box *remote.Sandbox, port uint16) (*remote.Preview, error) {
	var at struct {
		URL   string `json:"url"`
		Token string `json:"token"`
	}
	if err := s.About(ctx, box.ID, &remote.Call{What: "ask for the address of a port of", Out: &at}, fmt.Sprintf("/sandbox/{id}/ports/%d/preview-url", port)); err != nil {
		return nil, err
	}
	return &remote.Preview{URL: at.URL, Header: http.Header{"X-Daytona-Preview-Token": {at.Token}, "X-Daytona-Skip-Preview-Warning": {"true"}}}, nil
}
