// Package vercel makes sandboxes of Vercel's out of what the engine of package remote asks for. Their API does all, what is
// executed in one included; a command gets no input there, so that the line goes over files.
//
// A sandbox is known by its name. While it runs it has a session, which is what commands and files are addressed to; it
// stops with its files kept, and begins another session as it goes on.
//
// It promises that the token is part of no address and no error, and that no word of the command or its environment is
// part of a request to create.
package vercel

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/remote"
)

// Name is what --provider calls it.
const Name = "vercel"

// Service is Vercel's API.
type Service struct {
	remote.Resource[answered]
	team, project string
}

// maxFile is the size of a file that is carried at once: nobody says what the API takes.
const maxFile = 16 << 20

// New returns the provider, whether or not it can be used.
var New = remote.Of(NewService)

// NewService reads the variables that Vercel's own client and its documentation read.
func NewService(environ []string) *Service {
	get := func(name string) string { return remote.Variable(environ, name) }
	s := &Service{team: get("VERCEL_TEAM_ID"), project: get("VERCEL_PROJECT_ID")}
	token, named := get("VERCEL_TOKEN"), get("VERCEL_OIDC_TOKEN")
	if token == "" || s.team == "" || s.project == "" {
		token, s.team, s.project = named, "", ""
	}
	s.Path, s.Take, s.Asks = "/v2/sandboxes/{id}", s.taken, s.request
	s.Base = remote.Base{
		API: remote.API{Provider: Name, Secrets: []string{token}, Advice: advice},
		Key: http.Header{"Authorization": {"Bearer " + token}},
		Facts: remote.Facts{
			Keeps: map[profiles.Guarantee]string{
				profiles.NetAllowlist: "a filter of host names", profiles.ProcIsolated: "a virtual machine (Firecracker)", profiles.ResTime: "45 minutes or 5 hours, by plan",
			},
			Elsewhere: true, MaxFile: maxFile, Life: remote.Life{MaxLife: 5 * time.Hour}, Images: "an image of Vercel's own registry", Regions: []string{"iad1", "*"},
			Size: profiles.Size{CPUs: 2, MemoryMB: 4096}, Sizes: []profiles.Size{{CPUs: 1, MemoryMB: 2048}, {CPUs: 2, MemoryMB: 4096}, {CPUs: 4, MemoryMB: 8192}, {CPUs: 8, MemoryMB: 16384}},
			Prices: remote.Prices{CPU: 0.128, GiB: 0.0212, Read: "2026-11"},
		},
	}
	remote.Begin(&s.Base, environ, "VERCEL_API_URL", "https://vercel.com/api", "vercel link and vercel env pull write one into .env.local, then: export VERCEL_OIDC_TOKEN=…")
	if s.Wrong == nil && s.team == "" {
		if err := s.claim(token); err != nil {
			s.Unusable("VERCEL_OIDC_TOKEN: "+err.Error(), anotherToken)
		}
	}
	s.Query, s.Owner = url.Values{"teamId": {s.team}}, s.team+" "+s.project
	return s
}

const anotherToken = "vercel env pull writes another into .env.local"

// claim takes team and project, and its end, from a token that names them.
func (s *Service) claim(token string) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("want a token of three parts")
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var claims struct {
		Owner   string `json:"owner_id"`
		Project string `json:"project_id"`
		Ends    int64  `json:"exp"`
	}
	if err == nil {
		err = json.Unmarshal(text, &claims)
	}
	if err != nil || claims.Owner == "" || claims.Project == "" {
		return errors.New("it names no team and project")
	}
	s.team, s.project = claims.Owner, claims.Project
	if claims.Ends != 0 { // Vercel's own client asks for another by the login of vercel, which pccrun does not read
		s.Facts.KeyEnds, s.Facts.KeyNew = time.Unix(claims.Ends, 0), anotherToken
	}
	if ends := s.Facts.KeyEnds; !ends.IsZero() && time.Since(ends) > 15*time.Minute { // more than a clock may be wrong by
		return fmt.Errorf("it held until %s", ends.Format(time.DateTime))
	}
	return nil
}

// advice is what mends a refusal, by its status.
var advice = map[int]string{
	http.StatusUnauthorized:    "VERCEL_OIDC_TOKEN, or VERCEL_TOKEN, is not accepted: " + anotherToken + "; one holds for 12 hours",
	http.StatusForbidden:       "the token may not do this in the team and project, or their limit is reached: https://vercel.com/dashboard shows both",
	http.StatusPaymentRequired: "https://vercel.com/dashboard shows the plan, and what is unpaid",
	http.StatusGone:            "the sandbox has stopped, and its files are kept",
}

// request is the body of a request to create. As the sandbox stops it keeps its files.
func (s *Service) request(r *remote.Request) map[string]any {
	c := map[string]any{"projectId": s.project, "name": remote.NameOf(r.Labels), "timeout": r.Lifetime.Milliseconds(), "persistent": true, "image": r.Image, "region": r.Region}
	switch filter := remote.FilterOf(r); {
	case filter.Open != "":
	case len(filter.Hosts) == 0:
		c["networkPolicy"] = map[string]any{"mode": "deny-all"}
	default:
		c["networkPolicy"] = map[string]any{"allow": filter.Hosts}
	}
	if r.Size.CPUs > 0 {
		c["resources"] = map[string]any{"vcpus": r.Size.CPUs}
	}
	return remote.Body(c)
}

// stated is what a sandbox and a session both say of themselves. Times are in milliseconds.
type stated struct {
	Status  string  `json:"status"`
	Region  string  `json:"region"`
	CPUs    float64 `json:"vcpus"`
	Memory  float64 `json:"memory"`
	Created int64   `json:"createdAt"`
}

// answered is a sandbox as the API tells of it; in a list it is told of without its session.
type answered struct {
	Sandbox struct {
		stated
		Name string `json:"name"`
	} `json:"sandbox"`
	Session struct {
		stated
		ID      string `json:"id"`
		Started int64  `json:"startedAt"`
		Timeout int64  `json:"timeout"`
	} `json:"session"`
}

// taken is a sandbox as an answer tells of it, by the clock of who answered: this machine's may be wrong.
func (s *Service) taken(a *answered, header http.Header) (*remote.Sandbox, error) {
	is := a.Sandbox.stated
	box := &remote.Sandbox{ID: a.Sandbox.Name, Labels: remote.LabelsOf(a.Sandbox.Name), Header: s.Key, Query: s.Query}
	if a.Session.ID != "" {
		if err := remote.CheckID(Name, "session", a.Session.ID); err != nil {
			return nil, err
		}
		is = a.Session.stated
		box.Address = s.Address + "/v2/sandboxes/sessions/" + a.Session.ID
		now, err := http.ParseTime(header.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		box.Ends = time.Now().Add(time.UnixMilli(cmp.Or(a.Session.Started, a.Session.Created) + a.Session.Timeout).Sub(now))
	}
	if is.Status == "failed" || is.Status == "aborted" {
		box.Failed = is.Status
	}
	box.Running, box.Region, box.CPUs, box.MemoryMB, box.Created = is.Status == "running", is.Region, is.CPUs, int64(is.Memory), time.UnixMilli(is.Created)
	return s.Checked(box)
}

// Create makes a sandbox, which starts.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	return remote.MakeNamed(ctx, &s.Base, remote.NameOf(r.Labels), s.request(r), "/v3/sandboxes")
}

// Find lists sandboxes, those that are stopped too. Labels are in their names.
func (s *Service) Find(ctx context.Context, labels map[string]string) ([]remote.Sandbox, error) {
	query := url.Values{"project": {s.project}, "namePrefix": {remote.NameOf(labels)}, "sortBy": {"name"}, "limit": {"50"}}
	return s.Gather(query, "cursor", func(query url.Values) ([]answered, string, error) {
		var page struct {
			Sandboxes []json.RawMessage `json:"sandboxes"`
			Pages     struct {
				Next string `json:"next"`
			} `json:"pagination"`
		}
		_, err := s.Call(ctx, &remote.Call{What: "list the sandboxes", Out: &page, Query: query}, "/v2/sandboxes")
		list := make([]answered, len(page.Sandboxes))
		for i, text := range page.Sandboxes {
			err = errors.Join(err, json.Unmarshal(text, &list[i].Sandbox))
		}
		return list, page.Pages.Next, err
	})
}

// Status returns a sandbox as it is.
func (s *Service) Status(ctx context.Context, name string) (*remote.Sandbox, error) {
	return s.look(ctx, name, "look at", nil)
}

// look asks for a sandbox.
func (s *Service) look(ctx context.Context, name, what string, more url.Values) (*remote.Sandbox, error) {
	query := url.Values{"projectId": {s.project}}
	maps.Copy(query, more)
	return s.One(ctx, name, &remote.Call{What: what, Query: query}, s.Path)
}

// Resume makes a sandbox ready, one that is stopped too.
func (s *Service) Resume(ctx context.Context, name string) (*remote.Sandbox, error) {
	return remote.UntilRuns(ctx, &s.Base, func() (*remote.Sandbox, error) {
		box, err := s.look(ctx, name, "start", url.Values{"resume": {"true"}})
		if remote.HasStatus(err, http.StatusUnprocessableEntity) { // it is on its way to a stop
			return &remote.Sandbox{}, nil
		}
		return box, err
	})
}

// Extend moves the sandbox's end, by as much as is missing.
func (s *Service) Extend(ctx context.Context, box *remote.Sandbox, lifetime time.Duration, _ bool) error {
	now, err := s.Status(ctx, box.ID)
	if err != nil {
		return err
	}
	missing := lifetime - time.Until(now.Ends)
	if missing <= 0 {
		return nil
	}
	in := map[string]int64{"duration": int64(math.Ceil(missing.Seconds())) * 1000}
	return s.Daemon(ctx, now, &remote.Call{What: "extend", Method: http.MethodPost, In: in}, "/extend-timeout")
}

// Park stops the sandbox.
func (s *Service) Park(ctx context.Context, box *remote.Sandbox) error {
	return s.Daemon(ctx, box, &remote.Call{What: "stop", Method: http.MethodPost, Limit: 2 * time.Minute}, "/stop")
}

// Destroy ends a sandbox, with the files that it kept.
func (s *Service) Destroy(ctx context.Context, name string) error {
	query := url.Values{"projectId": {s.project}, "deleteOrphanSnapshots": {"true"}}
	return s.About(ctx, name, &remote.Call{What: "destroy", Method: http.MethodDelete, Limit: 2 * time.Minute, Query: query}, s.Path)
}
