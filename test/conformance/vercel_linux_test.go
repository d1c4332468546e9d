package conformance_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/providers/vercel"
	fake "github.com/pccrun/pccrun/test/internal/vercel"
)

// TestVercelControl walks through the life of sandboxes, whose ends are by the clock of the API: this machine's is ten
// minutes off in either direction.
func TestVercelControl(t *testing.T) {
	t.Parallel()
	server, err := fake.Start(credential)
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	s, ctx := vercel.NewService(server.Environ()), t.Context()
	request := func(label string) *remote.Request {
		return &remote.Request{Labels: map[string]string{"pccrun.machine": "m", providers.LabelKey: label}, Policy: &profiles.Policy{}, Lifetime: 5 * time.Minute}
	}
	for name, ahead := range map[string]time.Duration{"one": -10 * time.Minute, "two": 10 * time.Minute} {
		server.Clock = ahead
		box, err := remote.Make(ctx, s, request(name))
		require.NoError(t, err)
		require.True(t, box.Running)
		require.JSONEq(t, `{"mode":"deny-all"}`, string(server.Policy(box.ID)))
		again, err := remote.Make(ctx, s, request(name))
		require.NoError(t, err, "it was made by a call whose answer was lost")
		require.Equal(t, box.ID, again.ID)
		before := server.Ends(box.ID)
		require.NoError(t, s.Extend(ctx, box, time.Minute, false))
		require.Equal(t, before, server.Ends(box.ID), "it ends no sooner")
		require.NoError(t, s.Extend(ctx, box, time.Hour, false))
		require.WithinDuration(t, time.Now().Add(time.Hour), server.Ends(box.ID), 2*time.Minute)
		require.WithinDuration(t, time.Now().Add(time.Hour), must(s.Status(ctx, box.ID)).Ends, 2*time.Minute)

		require.NoError(t, s.PutFile(ctx, box, server.HomeThere(server.Sandbox(box.ID))+"/dir/ü &?", &remote.Archive{Size: 3, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader([]byte("abc"))), nil }}))
		require.NoError(t, s.Park(ctx, box))
		require.ErrorContains(t, s.Park(ctx, box), "410", "it is stopped already, as the engine finds out")
		require.False(t, must(s.Status(ctx, box.ID)).Running)
		box, err = s.Resume(ctx, box.ID)
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, s.GetFile(ctx, box, server.HomeThere(server.Sandbox(box.ID))+"/dir/ü &?", func() (io.Writer, error) { return &b, nil }))
		require.Equal(t, "abc", b.String())
	}
	server.Pages = 1
	found, err := s.Find(ctx, map[string]string{"pccrun.machine": "m"})
	require.NoError(t, err)
	require.Len(t, found, 2, "pages")
	require.Equal(t, request("two").Labels, found[1].Labels)
	for _, box := range found {
		require.NoError(t, s.Destroy(ctx, box.ID))
		require.ErrorIs(t, s.Destroy(ctx, box.ID), remote.ErrGone)
	}
}

func must(box *remote.Sandbox, err error) *remote.Sandbox {
	if err != nil {
		panic(err)
	}
	return box
}

// TestEndOfItsTime: a sandbox whose plan gives it no more time stops with its files, which a later process fetches.
//
//test:root
func TestEndOfItsTime(t *testing.T) {
	t.Parallel()
	if credential == nil { // where nobody is root a stopped sandbox of the fake ends not all of its processes
		t.Skip("needs root")
	}
	k := newTask(t, placeOf("vercel"))
	o := k.meanwhile("echo x > ready; sleep 600", func(io.Writer) { k.pause(k.stand("running")[0]) })
	require.ErrorContains(t, o.err, "the connection was lost")
	require.Equal(t, []string{"A ready"}, k.changed())
	k.nothingLeft()
}

// TestUnknownDaemon: where nobody says where the provider's own daemon listens, what it could break is weak.
func TestUnknownDaemon(t *testing.T) {
	t.Parallel()
	k := newTask(t, placeOf("vercel"))
	k.request.Strict = true
	o := k.run("true")
	require.Equal(t, 125, o.code)
	require.Regexp(t, "launch.integrity: only weakly kept, by [^\n]*nobody says where the provider's own daemon listens", o.err.Error())
	k.nothingLeft()
	newTask(t, placeOf("vercel")).sh("true") // the control
}
