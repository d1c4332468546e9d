package conformance_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/protobuf/proto"

	"github.com/pccrun/pccrun/providers/inside"
	fakemodal "github.com/pccrun/pccrun/test/internal/modal"
)

// unary reads the message of a call that has one, and leaves it there.
func unary(r *http.Request, to proto.Message) bool {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return len(body) >= 5 && int(binary.BigEndian.Uint32(body[1:])) == len(body)-5 && proto.Unmarshal(body[5:], to) == nil
}

func modalWire() *wire {
	var mu sync.Mutex
	kinds := map[string]string{} // of what is executed, by name
	method := func(r *http.Request, name string) bool { return strings.HasSuffix(r.URL.Path, "/"+name) }
	start := func(r *http.Request) bool { return method(r, "TaskExecStart") }
	reads := func(r *http.Request, kind string) bool {
		mu.Lock()
		defer mu.Unlock()
		if in := (&pb.TaskExecStartRequest{}); start(r) && unary(r, in) {
			for _, word := range []string{inside.Attach, "WriteFile", "ReadFile"} {
				if strings.Contains(strings.Join(in.GetCommandArgs(), " "), word) {
					kinds[in.GetExecId()] = word
				}
			}
		}
		in := &pb.TaskExecStdioReadRequest{}
		return method(r, "TaskExecStdioRead") && unary(r, in) && in.GetFileDescriptor() == pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT && kinds[in.GetExecId()] == kind
	}
	return &wire{
		create:   func(r *http.Request) bool { return method(r, "SandboxCreateV2") },
		upload:   func(r *http.Request) bool { return method(r, "TaskExecStdinWrite") },
		download: func(r *http.Request) bool { return reads(r, "ReadFile") },
		destroy:  func(r *http.Request) bool { return method(r, "SandboxTerminateV2") },
		start:    start, line: func(r *http.Request) bool { return reads(r, inside.Attach) }, key: fakemodal.Key,
	}
}
