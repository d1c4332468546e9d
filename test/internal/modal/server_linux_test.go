package modal_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	client "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/modal"
)

// start starts a server, and Modal's own client as its user starts it.
func start(t *testing.T) (*modal.Server, *client.Client, context.Context) {
	s, err := modal.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	for _, v := range append(s.Environ(), "MODAL_CONFIG_PATH=/dev/null") {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	c, err := client.NewClientWithOptions(&client.ClientParams{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	t.Cleanup(cancel)
	return s, c, ctx
}

func create(t *testing.T, c *client.Client, ctx context.Context, tags map[string]string) (*client.App, *client.Sandbox) {
	app, err := c.Apps.FromName(ctx, "pccrun", &client.AppFromNameParams{CreateIfMissing: true})
	require.NoError(t, err)
	box, err := c.Sandboxes.Create(ctx, app, c.Images.FromRegistry("debian:12", nil), &client.SandboxCreateParams{CPU: 1, MemoryMiB: 512, BlockNetwork: true, Timeout: time.Hour, Tags: tags})
	require.NoError(t, err)
	return app, box
}

//test:root
func TestOwnClient(t *testing.T) {
	s, c, ctx := start(t)
	_, err := c.Apps.FromName(ctx, "pccrun", nil)
	require.ErrorAs(t, err, new(client.NotFoundError))
	app, box := create(t, c, ctx, map[string]string{"a.b": "x", "run": "1"})
	for range 2 {
		create(t, c, ctx, map[string]string{"a.b": "x"})
	}
	s.Pages = 1
	for run, want := range map[string]int{"": 3, "1": 1, "2": 0} {
		tags := map[string]string{"a.b": "x", "run": run}
		if run == "" {
			delete(tags, "run")
		}
		all, err := c.Sandboxes.List(ctx, &client.SandboxListParams{AppID: app.AppID, Tags: tags})
		require.NoError(t, err)
		n := 0
		for _, err := range all {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, want, n, run)
	}
	tags, err := box.GetTags(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a.b": "x", "run": "1"}, tags)

	p, err := box.Exec(ctx, []string{"/bin/sh", "-c", "cat; echo err >&2; exit 7"}, nil)
	require.NoError(t, err)
	large := strings.Repeat("héllo\n", 50_000)
	for _, part := range []string{large[:100_000], large[100_000:]} {
		_, err = io.WriteString(p.Stdin, part)
		require.NoError(t, err)
	}
	require.NoError(t, p.Stdin.Close())
	out, err := io.ReadAll(p.Stdout)
	require.NoError(t, err)
	require.Equal(t, large, string(out))
	said, err := io.ReadAll(p.Stderr)
	require.NoError(t, err)
	require.Equal(t, "err\n", string(said))
	code, err := p.Wait(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 7, code)
	p, err = box.Exec(ctx, []string{"/bin/sh", "-c", "kill -9 $$"}, nil)
	require.NoError(t, err)
	code, err = p.Wait(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 128+9, code)

	name := filepath.Join(s.Home(box.SandboxID), "dir/ü &'")
	if os.Getuid() == 0 {
		name = "/home/user/dir/ü &'"
	}
	text := bytes.Repeat([]byte{0, 255, '\n'}, 1<<20)
	require.NoError(t, box.Filesystem.WriteBytes(ctx, text, name, nil))
	back, err := box.Filesystem.ReadBytes(ctx, name, nil)
	require.NoError(t, err)
	require.True(t, bytes.Equal(text, back))
	_, err = box.Filesystem.ReadBytes(ctx, name+"absent", nil)
	require.ErrorAs(t, err, new(client.SandboxFilesystemNotFoundError))

	ended, err := box.Poll(ctx, nil)
	require.NoError(t, err)
	require.Nil(t, ended)
	_, err = box.Terminate(ctx, nil)
	require.NoError(t, err)
	ended, err = box.Poll(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 137, *ended)
	box, err = c.Sandboxes.FromID(ctx, box.SandboxID, nil)
	require.NoError(t, err)
	_, err = box.Exec(ctx, []string{"true"}, nil)
	require.ErrorAs(t, err, new(client.ConflictError))
	_, err = c.Sandboxes.Create(ctx, app, c.Images.FromRegistry("absent", nil), nil)
	require.ErrorAs(t, err, new(client.RemoteError))

	t.Setenv("MODAL_TOKEN_SECRET", "as-other")
	wrong, err := client.NewClientWithOptions(&client.ClientParams{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer wrong.Close()
	_, err = wrong.Apps.FromName(ctx, "pccrun", nil)
	require.Equal(t, codes.Unauthenticated, status.Code(err))
}

// TestOwnClientNotices is the control: a server that differs is found out.
func TestOwnClientNotices(t *testing.T) {
	s, c, ctx := start(t)
	s.Break(func(r *http.Request) *faults.Fault {
		if strings.HasSuffix(r.URL.Path, "/TaskExecWait") {
			return &faults.Fault{Status: 404, Body: `{"message":"no such exec"}`}
		}
		return nil
	})
	_, box := create(t, c, ctx, nil)
	p, err := box.Exec(ctx, []string{"true"}, nil)
	require.NoError(t, err)
	_, err = p.Wait(ctx, nil)
	require.ErrorContains(t, err, "no such exec")
}
