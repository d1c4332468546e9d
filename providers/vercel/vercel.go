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
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
)

// Name is what --provider calls it.
const Name = "vercel"

// Service is Vercel's API.
type Service struct {
	remote.Base
	team, project string
}

// keeps is what Vercel itself keeps.
var keeps = map[profiles.Guarantee]string{
	profiles.NetAllowlist: "a filter of host names",
	profiles.ProcIsolated: "a virtual machine (Firecracker)",
	profiles.ResTime:      "45 minutes or 5 hours, by plan",
}

// maxFile is the size of a file that is carried at once: nobody says what the API takes.
const maxFile = 16 << 20

// New returns the provider, whether or not it can be used.
func New(host providers.Host) *remote.Provider {
	s := NewService(host.Environ)
	return remote.New(s, s.Facts, host)
}

// NewService reads the variables that Vercel's own client and its documentation read.
func NewService(environ []string) *Service {
	get := func(name string) string { return remote.Variable(environ, name) }
	s := &Service{team: get("VERCEL_TEAM_ID"), project: get("VERCEL_PROJECT_ID")}
	token, named := get("VERCEL_TOKEN"), get("VERCEL_OIDC_TOKEN")
	if token == "" || s.team == "" || s.project == "" {
		token, s.team, s.project = named, "", ""
	}
	s.Base = remote.Base{
		API:     remote.API{Provider: Name, Client: remote.NewClient(environ), Secrets: []string{token}, Advise: advise},
		Address: cmp.Or(strings.TrimSuffix(get("VERCEL_API_URL"), "/"), "https://vercel.com/api"),
		Key:     http.Header{"Authorization": {"Bearer " + token}},
		Facts: remote.Facts{
			Elsewhere: true, Keeps: keeps, MaxFile: maxFile, MaxLife: 5 * time.Hour, Images: "an image of Vercel's own registry", Regions: []string{"iad1", "*"},
			Size: profiles.Size{CPUs: 2, MemoryMB: 4096}, Sizes: []profiles.Size{{CPUs: 1, MemoryMB: 2048}, {CPUs: 2, MemoryMB: 4096}, {CPUs: 4, MemoryMB: 8192}, {CPUs: 8, MemoryMB: 16384}},
			Prices: remote.Prices{CPU: 0.128, GiB: 0.0212, Read: "2026-11"},
		},
	}
	s.Facts.Arch = remote.Here(s.Address, "amd64")
	s.Needs(environ, "vercel link and vercel env pull write one into .env.local, then: export VERCEL_OIDC_TOKEN=…")
	if s.Wrong == nil && s.team == "" {
		if err := s.claim(token); err != nil {
			s.Unusable("VERCEL_OIDC_TOKEN: "+err.Error(), "vercel env pull writes another into .env.local")
		}
	}
	s.Check("VERCEL_API_URL", s.Address)
	return s
}

// claim takes team and project from a token that names them.
func (s *Service) claim(token string) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("want a token of three parts")
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var claims struct {
		Owner   string `json:"owner_id"`
		Project string `json:"project_id"`
	}
	if err == nil {
		err = json.Unmarshal(text, &claims)
	}
	if err != nil || claims.Owner == "" || claims.Project == "" {
		return errors.New("it names no team and project")
	}
	s.team, s.project = claims.Owner, claims.Project
	return nil
}

func advise(e *remote.APIError) string {
	switch e.Status {
	case http.StatusUnauthorized:
		return "VERCEL_OIDC_TOKEN, or VERCEL_TOKEN, is not accepted: vercel env pull writes another into .env.local; one holds for 12 hours"
	case http.StatusForbidden:
		return "the token may not do this in the team and project, or their limit is reached: https://vercel.com/dashboard shows both"
	case http.StatusTooManyRequests:
		return "the account's limit is reached: pccrun gc removes unused sandboxes"
	case http.StatusPaymentRequired:
		return "https://vercel.com/dashboard shows the plan, and what is unpaid"
	case http.StatusGone:
		return "the sandbox has stopped, and its files are kept"
	}
	return ""
}

// created is the body of a request to create.
type created struct {
	Project    string         `json:"projectId"`
	Name       string         `json:"name"`
	Timeout    int64          `json:"timeout"`    // milliseconds
	Persistent bool           `json:"persistent"` // as it stops it keeps its files
	Network    *network       `json:"networkPolicy,omitempty"`
	Image      string         `json:"image,omitempty"`
	Region     string         `json:"region,omitempty"`
	Resources  map[string]any `json:"resources,omitempty"`
}

type network struct {
	Mode  string   `json:"mode,omitempty"`
	Allow []string `json:"allow,omitempty"`
}

func (s *Service) request(r *remote.Request) *created {
	c := &created{Project: s.project, Name: remote.NameOf(r.Labels), Timeout: r.Lifetime.Milliseconds(), Persistent: true, Image: r.Image, Region: r.Region}
	switch filter := remote.FilterOf(r); {
	case filter.Open != "":
	case len(filter.Hosts) == 0:
		c.Network = &network{Mode: "deny-all"}
	default:
		c.Network = &network{Allow: filter.Hosts}
	}
	if r.Size.CPUs > 0 {
		c.Resources = map[string]any{"vcpus": r.Size.CPUs}
	}
	return c
}

// Describe returns what Create would send.
func (s *Service) Describe(r *remote.Request) any { return s.request(r) }

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

// running is the state of a sandbox that executes commands.
const running = "running"

// taken is a sandbox as an answer tells of it, by the clock of who answered: this machine's may be wrong.
func (s *Service) taken(a *answered, now time.Time) (*remote.Sandbox, error) {
	is := a.Sandbox.stated
	box := &remote.Sandbox{ID: a.Sandbox.Name, Labels: remote.LabelsOf(a.Sandbox.Name), Header: s.Key}
	if a.Session.ID != "" {
		if err := remote.CheckID(Name, "session", a.Session.ID); err != nil {
			return nil, err
		}
		is = a.Session.stated
		box.Address = s.Address + "/v2/sandboxes/sessions/" + a.Session.ID
		ends := time.UnixMilli(cmp.Or(a.Session.Started, a.Session.Created) + a.Session.Timeout)
		box.Ends = time.Now().Add(ends.Sub(now))
	}
	box.Running, box.Region, box.CPUs, box.MemoryMB, box.Created = is.Status == running, is.Region, is.CPUs, int64(is.Memory), time.UnixMilli(is.Created)
	return s.Checked(box)
}

// query is what a call bears beside its path.
func (s *Service) query(pairs ...string) string {
	q := url.Values{"teamId": {s.team}}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return "?" + q.Encode()
}

func of(name string) string { return "/v2/sandboxes/" + url.PathEscape(name) }

// Create makes a sandbox, and waits until it runs. One of its name that stands already was made by a call whose answer was lost.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	c := s.request(r)
	var a answered
	_, err := s.Call(ctx, &remote.Call{What: "create a sandbox", Method: http.MethodPost, In: c, Out: &a, Once: true, Limit: 2 * time.Minute}, "/v3/sandboxes"+s.query())
	if err != nil && !remote.HasStatus(err, http.StatusConflict) {
		return nil, remote.Unclear(err)
	}
	box, err := s.Resume(ctx, c.Name)
	if err != nil {
		_ = s.Destroy(context.WithoutCancel(ctx), c.Name)
	}
	return box, err
}

// Find lists sandboxes, those that are stopped too. Labels are in their names.
func (s *Service) Find(ctx context.Context, labels map[string]string) ([]remote.Sandbox, error) {
	return remote.Gather(func(cursor string) ([]answered, string, error) {
		pairs := []string{"project", s.project, "namePrefix", remote.NameOf(labels), "sortBy", "name", "limit", "50"}
		if cursor != "" {
			pairs = append(pairs, "cursor", cursor)
		}
		var page struct {
			Sandboxes []json.RawMessage `json:"sandboxes"`
			Pages     struct {
				Next string `json:"next"`
			} `json:"pagination"`
		}
		_, err := s.Call(ctx, &remote.Call{What: "list the sandboxes", Out: &page}, "/v2/sandboxes"+s.query(pairs...))
		list := make([]answered, len(page.Sandboxes))
		for i, text := range page.Sandboxes {
			err = errors.Join(err, json.Unmarshal(text, &list[i].Sandbox))
		}
		return list, page.Pages.Next, err
	}, func(a *answered) (*remote.Sandbox, error) { return s.taken(a, time.Now()) })
}

// look asks for a sandbox, and has one that is stopped go on where that is said.
func (s *Service) look(ctx context.Context, name, what string, resume bool) (*remote.Sandbox, string, error) {
	pairs := []string{"projectId", s.project}
	if resume {
		pairs = append(pairs, "resume", "true")
	}
	var a answered
	header, err := s.Call(ctx, &remote.Call{What: what + " sandbox " + name, Out: &a}, of(name)+s.query(pairs...))
	if remote.HasStatus(err, http.StatusNotFound) {
		err = fmt.Errorf("%w: %w", remote.ErrGone, err)
	}
	if err != nil {
		return nil, "", err
	}
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	box, err := s.taken(&a, now)
	return box, cmp.Or(a.Session.Status, a.Sandbox.Status), err
}

// Status returns a sandbox as it is.
func (s *Service) Status(ctx context.Context, name string) (*remote.Sandbox, error) {
	box, _, err := s.look(ctx, name, "look at", false)
	return box, err
}

// Resume makes a sandbox ready, one that is stopped too.
func (s *Service) Resume(ctx context.Context, name string) (box *remote.Sandbox, err error) {
	err = remote.Poll(ctx, 50*time.Millisecond, time.Second, func() (bool, error) {
		now, state, err := s.look(ctx, name, "start", true)
		switch {
		case remote.HasStatus(err, http.StatusUnprocessableEntity): // it is on its way to a stop
			return false, nil
		case err != nil:
			return false, err
		case state == "failed" || state == "aborted":
			return false, fmt.Errorf("%s: sandbox %s did not start: %s", Name, name, state)
		}
		box = now
		return now.Running, nil
	})
	if err != nil {
		return nil, err
	}
	return box, nil
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
	return s.Daemon(ctx, now, &remote.Call{What: "extend", Method: http.MethodPost, In: in}, "/extend-timeout"+s.query())
}

// Park stops the sandbox.
func (s *Service) Park(ctx context.Context, box *remote.Sandbox) error {
	return s.Daemon(ctx, box, &remote.Call{What: "stop", Method: http.MethodPost, Limit: 2 * time.Minute}, "/stop"+s.query())
}

// Destroy ends a sandbox, with the files that it kept.
func (s *Service) Destroy(ctx context.Context, name string) error {
	return s.About(ctx, name, &remote.Call{What: "destroy", Method: http.MethodDelete, Limit: 2 * time.Minute}, of(name)+s.query("projectId", s.project, "deleteOrphanSnapshots", "true"))
}
