package conformance_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/cloudflare"
	"github.com/pccrun/pccrun/providers/remote"
	fake "github.com/pccrun/pccrun/test/internal/cloudflare"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/npm"
)

func cloudflareWire() *wire {
	start := func(r *http.Request) bool { return r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/exec") }
	file := func(r *http.Request, method string) bool {
		return r.Method == method && strings.Contains(r.URL.Path, "/file/")
	}
	create := func(r *http.Request) bool { return file(r, "PUT") && strings.HasSuffix(r.URL.Path, "/.pccrun-made") }
	return &wire{
		create:   create,
		upload:   func(r *http.Request) bool { return file(r, "PUT") && !create(r) },
		download: func(r *http.Request) bool { return file(r, "GET") && strings.Contains(r.URL.Path, "-down/") },
		destroy:  func(r *http.Request) bool { return is(r, "DELETE", "/v1/sandbox/") },
		start:    start, line: func(r *http.Request) bool { return start(r) && carries(r) }, key: fake.Key,
	}
}

// TestCloudflareControl walks through the life of sandboxes at the counterpart of the bridge.
func TestCloudflareControl(t *testing.T) {
	t.Parallel()
	server, err := fake.Start()
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	walkBridge(t, server.Environ())
	server.Break(func(*http.Request) *faults.Fault {
		return &faults.Fault{Status: 400, Body: `{"error":"instance limit reached","code":"invalid_request"}`}
	})
	_, err = remote.Make(t.Context(), cloudflare.NewService(server.Environ()), &remote.Request{Policy: &profiles.Policy{}})
	require.ErrorContains(t, err, "instance limit reached")
}

// TestBridgeItself does the same at the bridge as Cloudflare publishes it, on a stand-in for its sandboxes.
func TestBridgeItself(t *testing.T) {
	t.Parallel()
	node := npm.Node(t)
	modules, err := npm.Fetch(t.Context(), "cloudflare-bridge-1", npm.CloudflareBridge)
	require.NoError(t, err)
	c := exec.Command(node, "../internal/cloudflare/testdata/bridge.mjs", modules, t.TempDir())
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "SANDBOX_API_KEY=" + fake.Key}
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	defer func() {
		in.Close() // its end
		require.NoError(t, c.Wait())
	}()
	port, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	walkBridge(t, []string{"SANDBOX_API_KEY=" + fake.Key, "CLOUDFLARE_SANDBOX_URL=http://127.0.0.1:" + strings.TrimSpace(port)})
}

// walkBridge walks through the life of a sandbox. The bridge starts a container for any name: nothing is executed in one that Create
// did not make, and none is left.
func walkBridge(t *testing.T, environ []string) {
	s, ctx := cloudflare.NewService(environ), t.Context()
	stand := func() (n int) {
		var pool struct{ Assigned int }
		_, err := s.Call(ctx, &remote.Call{What: "look", Out: &pool}, "/v1/pool/stats")
		require.NoError(t, err)
		return pool.Assigned
	}
	labels := func(label string) map[string]string {
		return map[string]string{"pccrun.machine": "m", providers.LabelKey: label}
	}
	request := &remote.Request{Labels: labels("one"), Policy: &profiles.Policy{}}
	found, err := s.Find(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, found)
	one, err := remote.Make(ctx, s, request)
	require.NoError(t, err)
	require.Regexp(t, "^[a-z2-7]+$", one.ID)
	require.Equal(t, labels("one"), one.Labels)
	again, err := remote.Make(ctx, s, request)
	require.NoError(t, err, "it was made by a call whose answer was lost")
	require.Equal(t, one.ID, again.ID)
	require.Equal(t, 1, stand())

	execute := func(script string, args ...string) (string, int) {
		var out bytes.Buffer
		code, err := s.Exec(ctx, one, &remote.Exec{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...), Out: &out, Err: &out})
		require.NoError(t, err)
		return out.String(), code
	}
	out, code := execute(`wc -c | tr -d ' '; printf '<%s>' "$@"; exit 9`, "", "a b", "$x 'y' \"z\" \\n ü\n`id`")
	require.Equal(t, 9, code)
	require.Equal(t, "0\n<><a b><$x 'y' \"z\" \\n ü\n`id`>", out)
	out, _ = execute("head -c 300000 /dev/zero | tr '\\0' x")
	require.Len(t, out, 300_000)
	_, code = execute("exit 212")
	require.Equal(t, 212, code, "a program may end so too")

	discard := func() (io.Writer, error) { return io.Discard, nil }
	for _, name := range []string{"/workspace/a b", "/workspace/dir/ü [&];+=", "/workspace/odd?#%25/100%?#"} {
		for _, text := range []string{"abc", "\x00\xff\n", ""} {
			open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
			require.NoError(t, s.PutFile(ctx, one, name, &remote.Archive{Size: int64(len(text)), Open: open}), name)
			var b bytes.Buffer
			require.NoError(t, s.GetFile(ctx, one, name, func() (io.Writer, error) { return &b, nil }), name)
			require.Equal(t, text, b.String(), name)
		}
	}
	out, _ = execute("find /workspace -name '.pccrun-file-*'")
	require.Empty(t, out)
	require.ErrorContains(t, s.GetFile(ctx, one, "/workspace/absent", discard), "404")
	require.ErrorContains(t, s.GetFile(ctx, one, "/etc/passwd", discard), "403", "the control: of no other directory")

	found, err = s.Find(ctx, map[string]string{"pccrun.machine": "m"})
	require.NoError(t, err)
	require.Len(t, found, 1)
	other := cloudflare.NewService(environ) // another process
	found, err = other.Find(ctx, labels("one"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, labels("one"), found[0].Labels)
	found, err = other.Find(ctx, labels("two"))
	require.NoError(t, err)
	require.Empty(t, found)
	require.Equal(t, 1, stand(), "the container by which it was looked for is gone")

	require.NoError(t, other.Destroy(ctx, one.ID))
	require.Equal(t, 0, stand())
	_, err = s.Exec(ctx, one, &remote.Exec{Argv: []string{"true"}, Out: io.Discard, Err: io.Discard})
	require.ErrorIs(t, err, remote.ErrGone)
	require.ErrorIs(t, s.GetFile(ctx, one, "/workspace/a b", discard), remote.ErrGone)
	_, err = s.Status(ctx, one.ID)
	require.ErrorIs(t, err, remote.ErrGone)
	require.Equal(t, 0, stand())
	require.NoError(t, s.Destroy(ctx, one.ID))
	found, err = other.Find(ctx, labels("one"))
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestOpenBridge: a bridge that has no key is one in whose sandboxes anybody executes what he likes.
func TestOpenBridge(t *testing.T) {
	t.Parallel()
	server, err := fake.Start()
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	_, err = cloudflare.NewService(server.Environ()).Find(t.Context(), nil)
	require.NoError(t, err, "the control")
	server.Open = true
	_, err = cloudflare.NewService(server.Environ()).Find(t.Context(), nil)
	require.ErrorContains(t, err, "has no key")
}
