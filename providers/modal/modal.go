// Package modal makes sandboxes of Modal's out of what the engine of package remote asks for, by Modal's own client.
//
// It promises that the key goes to the address of Modal's API alone, and that no word of the command or its environment
// is part of a request to create.
package modal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/remote"
)

// Name is what --provider calls it.
const Name = "modal"

// app is what pccrun's sandboxes belong to at Modal, and endKey the tag that says when one ends.
const (
	app    = "pccrun"
	endKey = "pccrun.ends"
)

// Service is Modal's API.
type Service struct {
	remote.Base
	client func() (*modal.Client, error)
	boxes  sync.Map // sandboxes by name: each has a connection to the machine that it is on
}

// New returns the provider, whether or not it can be used.
var New = remote.Of(NewService)

// NewService reads the variables that Modal's own client reads, and none of its files.
func NewService(environ []string) *Service {
	get := func(name string) string { return remote.Variable(environ, name) }
	id, secret := get("MODAL_TOKEN_ID"), get("MODAL_TOKEN_SECRET")
	s := &Service{}
	s.Base = remote.Base{
		API: remote.API{Provider: Name, Secrets: []string{id, secret}, Advice: advice},
		Facts: remote.Facts{
			Keeps: map[profiles.Guarantee]string{
				profiles.NetAllowlist: "a filter of host names", profiles.ProcIsolated: "gVisor or a virtual machine", profiles.ResTime: "24 hours",
			},
			Life: remote.Life{MaxLife: 24 * time.Hour}, Regions: []string{"us", "eu", "ap", "*"}, Images: "an image of a registry", Image: "buildpack-deps:bookworm",
			Size: profiles.Size{CPUs: 2, MemoryMB: 4096}, Step: profiles.Size{CPUs: 0.25, MemoryMB: 128}, Most: profiles.Size{CPUs: 32, MemoryMB: 128 << 10},
			Prices: remote.Prices{CPU: 0.0710, GiB: 0.0242, Region: 1.75, Read: "2026-11"}, // 1.5 for one as large as "us"
		},
	}
	remote.Begin(&s.Base, environ, "MODAL_SERVER_URL", "https://api.modal.com:443", "make a token at https://modal.com/settings/tokens, then: export MODAL_TOKEN_ID=ak-… MODAL_TOKEN_SECRET=as-…")
	s.client = sync.OnceValues(func() (*modal.Client, error) {
		if err := remote.SendAlike(environ, s.Address); err != nil {
			return nil, err
		}
		params := &modal.ClientParams{
			TokenID: id, TokenSecret: secret, Environment: get("MODAL_ENVIRONMENT"), MaxThrottleWait: new(2 * time.Minute), Logger: slog.New(slog.DiscardHandler),
			GRPCUnaryInterceptors: []grpc.UnaryClientInterceptor{once},
		}
		if err := configure(&params.Config, s.Address); err != nil {
			return nil, err
		}
		return modal.NewClientWithOptions(params)
	})
	return s
}

// configure makes what the client would read in the user's file, a type that has no name outside of it.
func configure[T any](config **T, address string) error {
	text, err := json.Marshal(map[string]any{app: map[string]any{"ServerURL": address, "Active": true}})
	if err != nil {
		return err
	}
	*config = new(T)
	return json.Unmarshal(text, *config)
}

// asked is what a sandbox is created by, beside its image. It uses no more than it asks for: what that costs is the most.
func (s *Service) asked(r *remote.Request) *modal.SandboxCreateParams {
	size, _ := s.Facts.Fit(r.Size)
	memory, filter := int(size.MemoryMB), remote.FilterOf(r)
	p := &modal.SandboxCreateParams{CPU: size.CPUs / 2, MemoryMiB: memory, MemoryLimitMiB: memory, Timeout: r.Lifetime.Truncate(time.Second), Tags: maps.Clone(r.Labels)}
	p.CPULimit = p.CPU // a core is two of what others call a CPU
	if r.Region != "" {
		p.Regions = []string{r.Region}
	}
	switch {
	case filter.Open != "":
	case len(filter.Hosts) == 0:
		p.BlockNetwork = true
	default:
		p.OutboundDomainAllowlist = &modal.Allowlist{Entries: filter.Hosts}
	}
	return p
}

func (s *Service) image(r *remote.Request) string { return cmp.Or(r.Image, s.Facts.Image) }

// Describe returns what Create would send, less what the zero value says.
func (s *Service) Describe(r *remote.Request) any {
	all := map[string]any{}
	text, _ := json.Marshal(s.asked(r))
	_ = json.Unmarshal(text, &all)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil || v == false || v == 0.0 || v == "" })
	all["Image"], all["Timeout"] = s.image(r), r.Lifetime.String()
	return all
}

// Create makes a sandbox, and first its image, where nobody has used that yet.
func (s *Service) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	p := s.asked(r)
	p.Tags[endKey] = strconv.FormatInt(time.Now().Add(p.Timeout).Unix(), 10)
	var made *modal.Sandbox
	err := s.call(ctx, &remote.Call{What: "create a sandbox", Once: true, Limit: 15 * time.Minute}, func(ctx context.Context, client *modal.Client) error {
		of, err := client.Apps.FromName(ctx, app, &modal.AppFromNameParams{CreateIfMissing: true})
		if err == nil {
			made, err = client.Sandboxes.Create(ctx, of, client.Images.FromRegistry(s.image(r), nil), p)
		}
		return err
	})
	if err != nil {
		return nil, remote.Unclear(err)
	}
	s.boxes.Store(made.SandboxID, made)
	box := told(made.SandboxID, p.Tags)
	box.CPUs, box.MemoryMB = 2*p.CPU, int64(p.MemoryMiB)
	return s.Checked(box)
}

// told is a sandbox that runs, as its tags tell of it.
func told(id string, tags map[string]string) *remote.Sandbox {
	box := &remote.Sandbox{ID: id, Labels: maps.Clone(tags), Running: true}
	if n, err := strconv.ParseInt(tags[endKey], 10, 64); err == nil {
		box.Ends = time.Unix(n, 0)
	}
	delete(box.Labels, endKey)
	return box
}

// Find lists sandboxes.
func (s *Service) Find(ctx context.Context, labels map[string]string) (list []remote.Sandbox, err error) {
	err = s.call(ctx, &remote.Call{What: "list the sandboxes"}, func(ctx context.Context, client *modal.Client) error {
		list = nil
		of, err := client.Apps.FromName(ctx, app, nil)
		if err != nil {
			return err
		}
		all, err := client.Sandboxes.List(ctx, &modal.SandboxListParams{AppID: of.AppID, Tags: labels})
		if err != nil {
			return err
		}
		for box, err := range all {
			var tags map[string]string
			if err == nil {
				tags, err = box.GetTags(ctx, nil)
			}
			switch {
			case err == nil:
				list = append(list, *told(box.SandboxID, tags))
			case statusOf(err) != notFound: // which it is that has ended meanwhile
				return err
			}
		}
		return nil
	})
	if gone(err) {
		return nil, nil // nobody has made the app yet
	}
	return list, err
}

// about makes calls about a sandbox. One that has ended is an [remote.ErrGone].
func (s *Service) about(ctx context.Context, id string, c *remote.Call, do func(context.Context, *modal.Sandbox) error) error {
	if err := remote.CheckID(Name, "sandbox", id); err != nil {
		return err
	}
	c.What += " sandbox " + id
	err := s.call(ctx, c, func(ctx context.Context, client *modal.Client) (err error) {
		box, known := s.boxes.Load(id)
		if !known {
			if box, err = client.Sandboxes.FromID(ctx, id, nil); err == nil {
				s.boxes.Store(id, box)
			}
		}
		if err == nil {
			err = do(ctx, box.(*modal.Sandbox))
		}
		if err != nil { // its machine may be another: the next call asks
			s.boxes.Delete(id)
		}
		return err
	})
	if gone(err) {
		return fmt.Errorf("%w: %w", remote.ErrGone, err)
	}
	return err
}

// Status returns a sandbox that runs: one that has ended is none.
func (s *Service) Status(ctx context.Context, id string) (*remote.Sandbox, error) {
	var tags map[string]string
	err := s.about(ctx, id, &remote.Call{What: "look at"}, func(ctx context.Context, m *modal.Sandbox) error {
		code, err := m.Poll(ctx, nil)
		if err == nil && code != nil {
			err = modal.ConflictError{Exception: fmt.Sprintf("it has ended (%d)", *code)}
		}
		if err == nil {
			tags, err = m.GetTags(ctx, nil)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return told(id, tags), nil
}

// Destroy ends a sandbox.
func (s *Service) Destroy(ctx context.Context, id string) error {
	return s.about(ctx, id, &remote.Call{What: "destroy"}, func(ctx context.Context, m *modal.Sandbox) error {
		_, err := m.Terminate(ctx, nil)
		return err
	})
}

// call makes calls by the client, and repeats them where the engine would.
func (s *Service) call(ctx context.Context, c *remote.Call, do func(context.Context, *modal.Client) error) error {
	return s.API.TryWithin(ctx, c, func(ctx context.Context) error {
		client, err := s.client()
		if err != nil {
			return err
		}
		return s.refused(c, do(ctx, client))
	})
}

// once keeps the client from repeating a request to create whose answer was lost: nobody says that Modal takes the second
// for the first.
func once(ctx context.Context, method string, in, out any, c *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
	err := call(ctx, method, in, out, c, o...)
	if said := status.Convert(err); err != nil && strings.Contains(method, "/SandboxCreate") && len(said.Details()) == 0 && statuses[said.Code()]%500 == 0 {
		return status.Error(codes.DataLoss, said.Message())
	}
	return err
}

// advice is what mends a refusal, by its status.
var advice = map[int]string{
	http.StatusUnauthorized:    "MODAL_TOKEN_ID and MODAL_TOKEN_SECRET are not accepted: https://modal.com/settings/tokens shows the tokens",
	http.StatusForbidden:       "the token may not do this: https://modal.com/settings shows what the account may",
	http.StatusTooManyRequests: "the account's limit is reached: https://modal.com/settings/usage shows it, and pccrun gc removes unused sandboxes",
}

const notFound = http.StatusNotFound

// statuses are those of HTTP that say what one of gRPC says, by which the engine decides. The others say that nobody knows
// what became of a call.
var statuses = map[codes.Code]int{
	codes.InvalidArgument: http.StatusBadRequest, codes.FailedPrecondition: http.StatusBadRequest, codes.OutOfRange: http.StatusBadRequest,
	codes.Unauthenticated: http.StatusUnauthorized, codes.PermissionDenied: http.StatusForbidden, codes.NotFound: notFound,
	codes.AlreadyExists: http.StatusConflict, codes.Aborted: http.StatusConflict, codes.ResourceExhausted: http.StatusTooManyRequests,
	codes.Unimplemented: http.StatusNotImplemented, codes.Internal: http.StatusInternalServerError, codes.Unknown: http.StatusInternalServerError,
}

// statusOf is what a status, or an error of the client's own, says; 0 where nobody knows.
func statusOf(err error) int {
	if said, is := status.FromError(err); is {
		return statuses[said.Code()]
	}
	switch {
	case is[modal.NotFoundError](err):
		return notFound
	case is[modal.ConflictError](err): // the sandbox has ended
		return http.StatusGone
	case is[modal.InvalidError](err), is[modal.RemoteError](err):
		return http.StatusBadRequest
	}
	return 0
}

func is[T error](err error) bool { return errors.As(err, new(T)) }

// gone reports whether an error says that there is no such thing, or none any more.
func gone(err error) bool { return remote.HasStatus(err, notFound, http.StatusGone) }

// refused is an error as the engine has it.
func (s *Service) refused(c *remote.Call, err error) error {
	said := status.Convert(err)
	answer, text := &http.Response{StatusCode: statusOf(err), Header: http.Header{}}, said.Message()
	for _, detail := range said.Details() {
		if p, is := detail.(*pb.RPCRetryPolicy); is {
			answer.StatusCode = http.StatusTooManyRequests
			answer.Header.Set("Retry-After", strconv.Itoa(int(p.GetRetryAfterSecs()+0.999)))
		}
	}
	if strings.Contains(text, "unexpected content-type") || strings.Contains(text, "unexpected HTTP status") {
		answer.StatusCode, text = http.StatusBadGateway, text+": is a proxy in between?"
	}
	if answer.StatusCode == 0 {
		return err
	}
	body, _ := json.Marshal(map[string]string{"message": text})
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return s.API.Refused(c, answer)
}
