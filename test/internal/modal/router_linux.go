package modal

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"

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

// An execution is a command that was started. Who goes away does not end it.
type execution struct {
	c     *exec.Cmd
	mu    sync.Mutex
	grown chan struct{} // closed when there is more of it
	out   [2][]byte     // that it printed: standard output, error
	state *pb.TaskExecWaitResponse

	input   io.WriteCloser
	pending []byte // of its input
	written uint64
	closed  bool
}

// change changes an execution, and tells who waits.
func (e *execution) change(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
	close(e.grown)
	e.grown = make(chan struct{})
}

// until waits until something is so.
func (e *execution) until(ctx context.Context, is func() bool) error {
	for {
		e.mu.Lock()
		done, grown := is(), e.grown
		e.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
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

// command is what executes a program in a sandbox.
func (r *router) command(b *box, argv []string) (*exec.Cmd, error) {
	if len(argv) == 2 && argv[0] == fileProgram {
		var in map[string]struct{ Path string }
		if err := json.Unmarshal([]byte(argv[1]), &in); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		for word, of := range in {
			argv = []string{"/bin/sh", "-c", fileScript, "sh", word, of.Path}
		}
	}
	m, err := r.s.Boot(b)
	if err != nil {
		return nil, err
	}
	c, home := exec.Command(argv[0], argv[1:]...), b.Home
	c.Dir, c.SysProcAttr = home, &syscall.SysProcAttr{Setpgid: true}
	if m != nil {
		home = machine.Home
		user := cmp.Or(r.s.User, &syscall.Credential{})
		c = m.Command(user.Uid, user.Gid, home, argv...)
	}
	c.Env = append(r.s.Env(home), "MODAL_SANDBOX_ID="+b.ID)
	return c, nil
}

func (r *router) TaskExecStart(_ context.Context, in *pb.TaskExecStartRequest) (*pb.TaskExecStartResponse, error) {
	b, e, err := r.find(in.GetTaskId(), in.GetExecId())
	if b == nil {
		return nil, err
	}
	if e != nil { // it is asked for again
		return &pb.TaskExecStartResponse{}, nil
	}
	e = &execution{grown: make(chan struct{})}
	var out, said io.ReadCloser
	if e.c, err = r.command(b, in.GetCommandArgs()); err == nil {
		if out, err = e.c.StdoutPipe(); err == nil {
			if said, err = e.c.StderrPipe(); err == nil {
				if e.input, err = e.c.StdinPipe(); err == nil {
					err = e.c.Start()
				}
			}
		}
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	b.Mu.Lock()
	b.Runs[in.GetExecId()] = e
	b.Mu.Unlock()
	go e.feed()
	go e.watch(out, said)
	return &pb.TaskExecStartResponse{}, nil
}

// watch keeps what is printed.
func (e *execution) watch(pipes ...io.Reader) {
	var all sync.WaitGroup
	for i, from := range pipes {
		all.Go(func() {
			b := make([]byte, 32<<10)
			for {
				n, err := from.Read(b)
				e.change(func() { e.out[i] = append(e.out[i], b[:n]...) })
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	_ = e.c.Wait()
	code := int32(e.c.ProcessState.ExitCode())
	state := pb.TaskExecWaitResponse_builder{Code: &code}
	if s := e.c.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		signal := int32(s.Signal())
		state = pb.TaskExecWaitResponse_builder{Signal: &signal}
	}
	e.change(func() { e.state = state.Build() })
}

// feed gives the command what came for it.
func (e *execution) feed() {
	for {
		var next []byte
		over := false
		_ = e.until(context.Background(), func() bool {
			next, e.pending = e.pending, nil
			over = e.closed || e.state != nil
			return len(next) > 0 || over
		})
		if _, err := e.input.Write(next); err != nil || over {
			_ = e.input.Close()
			return
		}
	}
}

// take takes input from an offset on: what came already is the same.
func (e *execution) take(offset uint64, data []byte, end bool) (err error) {
	e.change(func() {
		switch {
		case e.state != nil || e.closed && len(data) > 0:
			err = status.Error(codes.FailedPrecondition, "the command reads no more")
		case offset > e.written:
			err = status.Error(codes.OutOfRange, "there is a gap")
		default:
			data = data[min(uint64(len(data)), e.written-offset):]
			e.pending, e.written, e.closed = append(e.pending, data...), e.written+uint64(len(data)), e.closed || end
		}
	})
	return err
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

func (r *router) TaskExecStdioRead(in *pb.TaskExecStdioReadRequest, stream grpc.ServerStreamingServer[pb.TaskExecStdioReadResponse]) error {
	_, e, err := r.find(in.GetTaskId(), in.GetExecId())
	if err != nil {
		return err
	}
	i, at := 0, int(in.GetOffset())
	if in.GetFileDescriptor() == pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR {
		i = 1
	}
	for {
		var part []byte
		if err := e.until(stream.Context(), func() bool {
			part = e.out[i][min(at, len(e.out[i])):]
			return len(part) > 0 || e.state != nil
		}); err != nil {
			return err
		}
		if len(part) == 0 {
			return nil
		}
		part = part[:min(len(part), 32<<10)]
		if err := stream.Send(pb.TaskExecStdioReadResponse_builder{Data: part}.Build()); err != nil {
			return err
		}
		at += len(part)
	}
}

func (r *router) TaskExecWait(ctx context.Context, in *pb.TaskExecWaitRequest) (*pb.TaskExecWaitResponse, error) {
	_, e, err := r.find(in.GetTaskId(), in.GetExecId())
	if err == nil {
		err = e.until(ctx, func() bool { return e.state != nil })
	}
	if err != nil {
		return nil, err
	}
	return e.state, nil
}
