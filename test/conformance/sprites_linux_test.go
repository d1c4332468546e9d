package conformance_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/providers/sprites"
	"github.com/pccrun/pccrun/test/internal/faults"
	fake "github.com/pccrun/pccrun/test/internal/sprites"
)

// TestSpritesControl walks through the life of sprites. Their filter is set before anything is executed, whatever
// became of the answer to create.
func TestSpritesControl(t *testing.T) {
	t.Parallel()
	server, err := fake.Start()
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	s, ctx := sprites.NewService(server.Environ()), t.Context()
	const closed = `{"rules":[{"domain":"*","action":"deny"}]}`
	request := func(label string) *remote.Request {
		return &remote.Request{Labels: map[string]string{"pccrun.machine": "m", providers.LabelKey: label}, Policy: &profiles.Policy{}}
	}
	one, err := remote.Make(ctx, s, request("one"))
	require.NoError(t, err)
	require.Equal(t, "pccrun-m-one", one.ID)
	require.JSONEq(t, closed, string(server.Policy(one.ID)))
	again, err := remote.Make(ctx, s, request("one"))
	require.NoError(t, err, "it was made by a call whose answer was lost")
	require.Equal(t, one.ID, again.ID)

	lost := true
	server.Break(func(r *http.Request) *faults.Fault {
		if r.Method == http.MethodPost && lost {
			lost = false
			return &faults.Fault{Cut: -1, After: true}
		}
		return nil
	})
	_, err = remote.Make(ctx, s, request("two"))
	var unclear *remote.UnclearError
	require.ErrorAs(t, err, &unclear)
	require.Empty(t, server.Policy("pccrun-m-two"), "the control: its filter is not set yet")
	server.Pages = 1
	found, err := s.Find(ctx, map[string]string{"pccrun.machine": "m"})
	require.NoError(t, err)
	require.Len(t, found, 2, "pages")
	require.Equal(t, request("two").Labels, found[1].Labels)
	_, err = s.Resume(ctx, found[1].ID)
	require.NoError(t, err)
	require.JSONEq(t, closed, string(server.Policy("pccrun-m-two")))

	open := request("three")
	open.Policy.Network.Allow = []profiles.NetRule{{Text: "example.com:8080"}}
	_, err = remote.Make(ctx, s, open)
	require.NoError(t, err)
	require.Empty(t, server.Policy("pccrun-m-three"), "a rule that it cannot say")

	require.NoError(t, s.Park(ctx, one))
	var out bytes.Buffer
	code, err := s.Exec(ctx, one, &remote.Exec{Argv: []string{"/bin/sh", "-c", "cat; echo out; exit 9"}, In: strings.NewReader(strings.Repeat("typed\n", 30_000)), Out: &out})
	require.NoError(t, err)
	require.Equal(t, 9, code)
	require.Equal(t, strings.Repeat("typed\n", 30_000)+"out\n", out.String())
	for _, name := range server.Sandboxes("") {
		require.NoError(t, s.Destroy(ctx, name))
	}
	require.ErrorIs(t, s.Destroy(ctx, one.ID), remote.ErrGone)
}

// TestManagementSocket: who reaches the management socket of a sprite has its runtime execute what he likes. The command
// does not reach it, and nothing runs where nobody knows where it is.
//
//test:root
func TestManagementSocket(t *testing.T) {
	t.Parallel()
	p := placeOf("sprites")
	connect := func(socket string) []string {
		return []string{"python3", "-c", "import socket; s = socket.socket(socket.AF_UNIX); s.connect('" + socket + "'); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(s.recv(4))"}
	}
	server, err := fake.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	s := sprites.NewService(server.Environ())
	box, err := remote.Make(t.Context(), s, &remote.Request{Labels: map[string]string{providers.LabelKey: "control"}, Policy: &profiles.Policy{}})
	require.NoError(t, err)
	out, _, err := remote.Output(t.Context(), s, box, false, connect(server.Socket())...)
	require.NoError(t, err)
	require.Equal(t, "b'HTTP'\n", string(out), "the control")

	k := newTask(t, p)
	o := k.run(append([]string{"/bin/sh", "-c", `"$@" && echo reached; for f in /opt/api.sock /tmp/*/api.sock; do [ ! -e $f ] || python3 -c "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('reached')" $f; done; exit 4`, "sh"}, connect(server.Socket())...)...)
	require.NoError(t, o.err)
	require.Equal(t, 4, o.code)
	require.Empty(t, o.out, o.say)
	k.nothingLeft()

	k = newTask(t, p)
	k.open = func(environ []string, state, program string) providers.Provider {
		return sprites.New(providers.Host{Environ: environ, Git: plainGit, LinuxProgram: opens(program), StateDir: state})
	}
	o = k.run("true")
	require.Equal(t, 125, o.code)
	require.ErrorContains(t, o.err, "launch.integrity: missing: the provider's own daemon listens at none of its known ports or sockets")
	k.nothingLeft()
}
