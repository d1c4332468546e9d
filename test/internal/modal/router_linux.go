package modal

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pccrun/pccrun/test/internal/machine"
)

// router is where the commands of a sandbox go.
type router struct {
	pb.UnimplementedTaskCommandRouterServer
	s *Server
}

// An execution is a command that was started, with what came for it to read. Who goes away does not end it.
type execution struct {
	*machine.Process
	mu      sync.Mutex
	grown   chan struct{} // closed when there is more to be read
	pending []byte
	written uint64
	closed  bool
}

func (r *router) find(task, id string) (*box, *execution, error) {
	b := r.s.Sandbox(strings.TrimPrefix(task, "ta-"))
	if b == nil {
		return nil, nil, status.Error(codes.NotFound, "task not found")
	}
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if e := b.Runs[id]; e != nil {
		return b, e, nil
	}
	return b, nil, status.Error(codes.NotFound, "exec not found")
}

// fileProgram is what Modal has in each sandbox, by which its client writes and reads files.
const fileProgram = "/__modal/.bin/modal-sandbox-fs-tools"

// fileScript is what it does here.
const fileScript = `fail() { echo '{"error_kind":"'$1'","message":"'$2'"}' >&2; exit 1; }
case $1 in
WriteFile) mkdir -p "${2%/*}" 2>/dev/null || fail NotDirectory "not a directory"; cat > "$2" || fail PermissionDenied "cannot write" ;;
ReadFile) [ -f "$2" ] || fail NotFound "no such file"; cat "$2" ;;
*) fail Unknown "what is that" ;;
esac
`

func (r *router) TaskExecStart(_ context.Context, in *pb.TaskExecStartRequest) (*pb.TaskExecStartResponse, error) {
	b, e, err := r.find(in.GetTaskId(), in.GetExecId())
	if b == nil {
		return nil, err
	}
	if e != nil { // it is asked for again
		return &pb.TaskExecStartResponse{}, nil
	}
	argv := in.GetCommandArgs()
	if len(argv) == 2 && argv[0] == fileProgram {
		var in map[string]struct{ Path string }
		if err := json.Unmarshal([]byte(argv[1]), &in); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		for word, of := range in {
			argv = []string{"/bin/sh", "-c", fileScript, "sh", word, of.Path}
		}
	}
	e = &execution{grown: make(chan struct{})}
	if e.Process, err = r.s.Execute(b, machine.Program{Argv: argv, Stdin: true}); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	b.Mu.Lock()
	b.Runs[in.GetExecId()] = e
	b.Mu.Unlock()
	go e.feed()
	return &pb.TaskExecStartResponse{}, nil
}

// feed gives the command what came for it.
func (e *execution) feed() {
	for {
		e.mu.Lock()
		next, over, grown := e.pending, e.closed, e.grown
		e.pending = nil
		e.mu.Unlock()
		_, err := e.In.Write(next)
		if err != nil || over || e.End() != nil {
			_ = e.In.Close()
			return
		}
		if len(next) == 0 {
			select {
			case <-grown:
			case <-e.Over():
			}
		}
	}
}

// take takes input from an offset on: what came already is the same.
func (e *execution) take(offset uint64, data []byte, end bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.End() != nil || e.closed && len(data) > 0:
		return status.Error(codes.FailedPrecondition, "the command reads no more")
	case offset > e.written:
		return status.Error(codes.OutOfRange, "there is a gap")
	}
	data = data[min(uint64(len(data)), e.written-offset):]
	e.pending, e.written, e.closed = append(e.pending, data...), e.written+uint64(len(data)), e.closed || end
	close(e.grown)
	e.grown = make(chan struct{})
	return nil
}

func (r *router) TaskExecStdinWrite(_ context.Context, in *pb.TaskExecStdinWriteRequest) (*pb.TaskExecStdinWriteResponse, error) {
	_, e, err := r.find(in.GetTaskId(), in.GetExecId())
	if err == nil {
		err = e.take(in.GetOffset(), in.GetData(), in.GetEof())
	}
	return &pb.TaskExecStdinWriteResponse{}, err
}

func (r *router) TaskExecStdinStatus(_ context.Context, in *pb.TaskExecStdinStatusRequest) (*pb.TaskExecStdinStatusResponse, error) {
	_, e, err := r.find(in.GetTaskId(), in.GetExecId())
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return pb.TaskExecStdinStatusResponse_builder{NumBytesWritten: e.written, Closed: e.closed}.Build(), nil
}

func (r *router) TaskExecStdinWriteStream(stream grpc.ClientStreamingServer[pb.TaskExecStdinWriteStreamRequest, pb.TaskExecStdinWriteStreamResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	_, e, err := r.find(start.GetTaskId(), start.GetExecId())
	for at := start.GetOffset(); err == nil; {
		var in *pb.TaskExecStdinWriteStreamRequest
		if in, err = stream.Recv(); err != nil {
			break
		}
		if err = e.take(at, in.GetData(), in.HasEnd()); err == nil && in.HasEnd() {
			return stream.SendAndClose(&pb.TaskExecStdinWriteStreamResponse{})
		}
		at += uint64(len(in.GetData()))
	}
	return err
}

func (r *router) TaskExecStdioRead(in *pb.TaskExecStdioReadRequest, answers grpc.ServerStreamingServer[pb.TaskExecStdioReadResponse]) error {
	_, e, err := r.find(in.GetTaskId(), in.GetExecId())
	if err != nil {
		return err
	}
	stream, at := 1, int(in.GetOffset())
	if in.GetFileDescriptor() == pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR {
		stream = 2
	}
	return e.Follow(answers.Context(), 0, func(pieces []machine.Piece) error {
		for _, p := range pieces {
			if end := p.At + len(p.Text); p.Stream == stream && end > at {
				if err := answers.Send(pb.TaskExecStdioReadResponse_builder{Data: p.Text[max(0, at-p.At):]}.Build()); err != nil {
					return err
				}
				at = end
			}
		}
		return nil
	})
}

func (r *router) TaskExecWait(ctx context.Context, in *pb.TaskExecWaitRequest) (*pb.TaskExecWaitResponse, error) {
	_, e, err := r.find(in.GetTaskId(), in.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case <-e.Over():
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if sig := int32(e.Signaled()); sig != 0 {
		return pb.TaskExecWaitResponse_builder{Signal: &sig}.Build(), nil
	}
	code := int32(*e.End())
	return pb.TaskExecWaitResponse_builder{Code: &code}.Build(), nil
}
