// Package modal is a small server that behaves as Modal does, for tests: its API, and the router of commands of each
// sandbox, behind one address, on the server stubs that Modal publishes. Modal's own client passes its calls unchanged (the
// package's test). Where the test is root a sandbox is a machine of its own (package machine) whose user is root; else what
// it executes is executed on this machine, in a directory of its own.
package modal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/machine"
)

// The token that the server takes.
const (
	Key    = "ak-00112233445566778899aabb"
	Secret = "as-00112233445566778899aabb"
)

// Server is one.
type Server struct {
	*machine.Cloud[running]
	Pages int // how many sandboxes a page of a list has; 0 for 100

	grpc *grpc.Server
	app  bool
	made map[string]bool // the names of all sandboxes, those too that have ended
}

// box is a sandbox.
type box = machine.Sandbox[running]

// running is what a sandbox executes, by name.
type running map[string]*execution

// Start starts a server.
func Start() (*Server, error) {
	s := &Server{made: map[string]bool{}}
	s.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(100<<20), grpc.UnaryInterceptor(func(ctx context.Context, in any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if err := s.admit(ctx, info.FullMethod); err != nil {
			return nil, err
		}
		return handle(ctx, in)
	}), grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if err := s.admit(stream.Context(), info.FullMethod); err != nil {
			return err
		}
		return handle(srv, stream)
	}))
	pb.RegisterModalClientServer(s.grpc, &control{s: s})
	pb.RegisterTaskCommandRouterServer(s.grpc, &router{s: s})
	var err error
	s.Cloud, err = machine.StartCloud(machine.CloudOptions[running]{
		Name: "modal", Machines: os.Getuid() == 0, Route: s.grpc.ServeHTTP,
	})
	return s, err
}

// Environ are the variables by which Modal's own client, and pccrun, find the server.
func (s *Server) Environ() []string {
	return []string{"MODAL_TOKEN_ID=" + Key, "MODAL_TOKEN_SECRET=" + Secret, "MODAL_SERVER_URL=" + s.URL}
}

// token is one that ends, as Modal's do: nobody looks at its signature.
func (s *Server) token(of string, life time.Duration) string {
	text, _ := json.Marshal(map[string]any{"sub": of, "exp": time.Now().Add(s.Clock + life).Unix()})
	code := base64.RawURLEncoding.EncodeToString
	return code([]byte(`{"alg":"none"}`)) + "." + code(text) + "." + code([]byte("none"))
}

// holder is whom a token that has not ended is of, "" if it is none.
func (s *Server) holder(token string) string {
	parts := strings.Split(token, ".")
	var said struct {
		Sub string
		Exp int64
	}
	if len(parts) == 3 {
		text, _ := base64.RawURLEncoding.DecodeString(parts[1])
		_ = json.Unmarshal(text, &said)
	}
	if said.Exp < time.Now().Add(s.Clock).Unix() {
		return ""
	}
	return said.Sub
}

// admit holds a call's token against what its method wants.
func (s *Server) admit(ctx context.Context, method string) error {
	all, _ := metadata.FromIncomingContext(ctx)
	get := func(name string) string { // the client asks for a token by a call that has the headers of another
		return strings.Join(all.Get(name)[:min(1, len(all.Get(name)))], "")
	}
	router := strings.HasPrefix(method, "/modal.task_command_router.")
	switch {
	case router && get("x-modal-token-secret") != "":
		return status.Error(codes.Internal, "the token of the account was sent to a sandbox")
	case router && s.Sandbox(s.holder(strings.TrimPrefix(get("authorization"), "Bearer "))) == nil:
		return status.Error(codes.Unauthenticated, "invalid token")
	case router:
		return nil
	case get("x-modal-token-id") != Key || get("x-modal-token-secret") != Secret:
		return status.Error(codes.Unauthenticated, "Token ID "+get("x-modal-token-id")+" with "+get("x-modal-token-secret")+" is not valid") // a careless server
	case !strings.HasSuffix(method, "/AuthTokenGet") && s.holder(get("x-modal-auth-token")) != "account":
		return status.Error(codes.Unauthenticated, "no auth token")
	}
	return nil
}

// control is Modal's API.
type control struct {
	pb.UnimplementedModalClientServer
	s *Server
}

func (c *control) AuthTokenGet(context.Context, *pb.AuthTokenGetRequest) (*pb.AuthTokenGetResponse, error) {
	return pb.AuthTokenGetResponse_builder{Token: c.s.token("account", 5*time.Minute)}.Build(), nil
}

func (c *control) EnvironmentGetOrCreate(context.Context, *pb.EnvironmentGetOrCreateRequest) (*pb.EnvironmentGetOrCreateResponse, error) {
	return pb.EnvironmentGetOrCreateResponse_builder{EnvironmentId: "en-1", Metadata: pb.EnvironmentMetadata_builder{
		Name: "main", Settings: pb.EnvironmentSettings_builder{ImageBuilderVersion: "2025.06"}.Build(),
	}.Build()}.Build(), nil
}

func (c *control) AppGetOrCreate(_ context.Context, in *pb.AppGetOrCreateRequest) (answer *pb.AppGetOrCreateResponse, err error) {
	c.s.Set(func() {
		c.s.app = c.s.app || in.GetObjectCreationType() == pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING
		if !c.s.app || in.GetAppName() != "pccrun" {
			err = status.Error(codes.NotFound, "App not found")
		}
	})
	return pb.AppGetOrCreateResponse_builder{AppId: "ap-1"}.Build(), err
}

func (c *control) ImageGetOrCreate(_ context.Context, in *pb.ImageGetOrCreateRequest) (*pb.ImageGetOrCreateResponse, error) {
	result := pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build()
	if lines := in.GetImage().GetDockerfileCommands(); len(lines) != 1 || strings.HasSuffix(lines[0], "absent") {
		result = pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_FAILURE, Exception: "manifest unknown"}.Build()
	}
	return pb.ImageGetOrCreateResponse_builder{ImageId: "im-1", Result: result}.Build(), nil
}

func (c *control) SandboxCreateV2(ctx context.Context, in *pb.SandboxCreateV2Request) (*pb.SandboxCreateV2Response, error) {
	text, err := protojson.Marshal(in)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	b, err := c.s.Create(r, &map[string]any{}, func(int) string { return "sb-" + strings.ToLower(rand.Text()) })
	if err != nil {
		return nil, err
	}
	b.State, b.Labels, b.Runs = "running", map[string]string{}, running{}
	for _, tag := range in.GetTags() {
		b.Labels[tag.GetTagName()] = tag.GetTagValue()
	}
	c.s.Set(func() { c.s.made[b.ID] = true })
	c.s.Show(b)
	return pb.SandboxCreateV2Response_builder{SandboxId: b.ID, TaskId: "ta-" + b.ID, CommandRouterAccess: pb.CommandRouterAccess_builder{
		Jwt: c.s.token(b.ID, 5*time.Minute), Url: c.s.routerURL(),
	}.Build()}.Build(), nil
}

func (s *Server) routerURL() string { return strings.Replace(s.URL, "http:", "https:", 1) }

// find is a sandbox; ended where there is none any more.
func (s *Server) find(id string) (b *box, ended bool, err error) {
	b = s.Sandbox(id)
	s.Set(func() { ended = b == nil && s.made[id] })
	if b == nil && !ended {
		err = status.Error(codes.NotFound, "Sandbox "+id+" not found")
	}
	return b, ended, err
}

// over is how a sandbox ended.
func over() *pb.GenericResult {
	return pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_TERMINATED, Exception: "the Sandbox was terminated"}.Build()
}

func (c *control) SandboxGetTaskIdV2(_ context.Context, in *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) {
	_, ended, err := c.s.find(in.GetSandboxId())
	if ended {
		return pb.SandboxGetTaskIdResponse_builder{TaskResult: over()}.Build(), nil
	}
	id := "ta-" + in.GetSandboxId()
	return pb.SandboxGetTaskIdResponse_builder{TaskId: &id}.Build(), err
}

func (c *control) SandboxGetCommandRouterAccess(_ context.Context, in *pb.SandboxGetCommandRouterAccessRequest) (*pb.SandboxGetCommandRouterAccessResponse, error) {
	b, _, err := c.s.find(in.GetSandboxId())
	if b == nil {
		return nil, cmp.Or(err, status.Error(codes.NotFound, "the Sandbox has ended"))
	}
	return pb.SandboxGetCommandRouterAccessResponse_builder{Jwt: c.s.token(b.ID, 5*time.Minute), Url: c.s.routerURL()}.Build(), nil
}

func (c *control) SandboxWaitV2(_ context.Context, in *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	_, ended, err := c.s.find(in.GetSandboxId())
	answer := pb.SandboxWaitResponse_builder{}
	if ended {
		answer.Result = over()
	}
	return answer.Build(), err
}

func (c *control) SandboxTerminateV2(_ context.Context, in *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	b, _, err := c.s.find(in.GetSandboxId())
	if b == nil {
		return nil, cmp.Or(err, status.Error(codes.NotFound, "the Sandbox has ended"))
	}
	c.s.Remove(b.ID)
	return &pb.SandboxTerminateResponse{}, nil
}

func tagsOf(b *box) (list []*pb.SandboxTag) {
	for name, value := range b.Labels {
		list = append(list, pb.SandboxTag_builder{TagName: name, TagValue: value}.Build())
	}
	return list
}

func (c *control) SandboxTagsGetV2(_ context.Context, in *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	b, _, err := c.s.find(in.GetSandboxId())
	if b == nil {
		return nil, cmp.Or(err, status.Error(codes.NotFound, "the Sandbox has ended"))
	}
	return pb.SandboxTagsGetResponse_builder{Tags: tagsOf(b)}.Build(), nil
}

// SandboxListV2 lists those that run, the newest first.
func (c *control) SandboxListV2(_ context.Context, in *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	var list []*pb.SandboxInfo
	want := map[string]string{}
	for _, tag := range in.GetTags() {
		want[tag.GetTagName()] = tag.GetTagValue()
	}
	for _, b := range c.s.Bearing(want) {
		created := float64(b.Started.UnixNano()) / 1e9
		if before := in.GetBeforeTimestamp(); before == 0 || created < before {
			list = append(list, pb.SandboxInfo_builder{Id: b.ID, CreatedAt: created, AppId: in.GetAppId(), Tags: tagsOf(b)}.Build())
		}
	}
	slices.SortFunc(list, func(a, b *pb.SandboxInfo) int { return cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()) })
	list, _ = machine.Page(list, 0, cmp.Or(c.s.Pages, 100))
	return pb.SandboxListResponse_builder{Sandboxes: list}.Build(), nil
}

// Break has a function decide what becomes of each call, which says no as HTTP does.
func (s *Server) Break(fault func(r *http.Request) *faults.Fault) {
	s.Cloud.Break(func(r *http.Request) *faults.Fault {
		if fault == nil {
			return nil
		}
		return refused(fault(r))
	})
}

// refused makes of an answer that says no what gRPC makes of it, with Modal's wish for a pause.
func refused(f *faults.Fault) *faults.Fault {
	if f == nil || f.Status < 400 {
		return f
	}
	code := map[int]codes.Code{400: codes.InvalidArgument, 403: codes.PermissionDenied, 404: codes.FailedPrecondition, 429: codes.ResourceExhausted}[f.Status]
	if code == 0 {
		code = codes.Internal
	}
	var body struct{ Message string }
	_ = json.Unmarshal([]byte(f.Body), &body)
	said := status.New(code, body.Message)
	if after := f.Header.Get("Retry-After"); after != "" {
		var seconds float32
		_, _ = fmt.Sscan(after, &seconds)
		said, _ = said.WithDetails(pb.RPCRetryPolicy_builder{RetryAfterSecs: seconds}.Build())
	}
	details, _ := proto.Marshal(said.Proto())
	g := *f
	g.Status, g.Body = http.StatusOK, ""
	g.Header = http.Header{
		"Content-Type": {"application/grpc"}, "Grpc-Status": {fmt.Sprint(int(code))}, "Grpc-Message": {body.Message},
		"Grpc-Status-Details-Bin": {base64.StdEncoding.EncodeToString(details)},
	}
	return &g
}
