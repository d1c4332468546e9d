package conformance_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/e2b"
	"github.com/pccrun/pccrun/providers/remote"
	fake "github.com/pccrun/pccrun/test/internal/e2b"
)

// TestE2BControl walks through the life of sandboxes. Nothing is executed in them.
func TestE2BControl(t *testing.T) {
	server, err := fake.Start(credential)
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	s, ctx := e2b.NewService(server.Environ()), t.Context()
	require.NoError(t, s.Ready())
	make := func(labels map[string]string) *remote.Sandbox {
		box, err := remote.Make(ctx, s, &remote.Request{Labels: labels, Lifetime: time.Minute, Policy: &profiles.Policy{}})
		require.NoError(t, err)
		return box
	}
	first := make(map[string]string{"a.b": "x&y=z", "run": "1 2%"})
	second := make(map[string]string{"a.b": "x&y=z", "run": "3"})

	server.Pages = 1
	found, err := s.Find(ctx, map[string]string{"a.b": "x&y=z"})
	require.NoError(t, err)
	require.Len(t, found, 2, "pages")
	found, err = s.Find(ctx, map[string]string{"a.b": "x&y=z", "run": "1 2%"})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, first.ID, found[0].ID)
	found, err = s.Find(ctx, map[string]string{"a.b": "x"})
	require.NoError(t, err)
	require.Empty(t, found)

	require.NoError(t, s.Extend(ctx, first, time.Hour, false))
	require.NoError(t, s.Extend(ctx, first, 2*time.Hour, true))
	require.NoError(t, s.PutFile(ctx, first, "dir/ü &?", &remote.Archive{Size: 3, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte("abc"))), nil
	}}))
	require.NoError(t, s.Park(ctx, first))
	require.ErrorContains(t, s.Park(ctx, first), "409", "it is paused already, as the engine finds out")
	state, err := s.Status(ctx, first.ID)
	require.NoError(t, err)
	require.False(t, state.Running)
	require.Equal(t, int64(512), state.MemoryMB)
	again, err := s.Resume(ctx, first.ID)
	require.NoError(t, err)
	require.True(t, again.Running)
	var b bytes.Buffer
	require.NoError(t, s.GetFile(ctx, again, "dir/ü &?", func() (io.Writer, error) { return &b, nil }))
	require.Equal(t, "abc", b.String())
	require.Error(t, s.GetFile(ctx, again, "absent", func() (io.Writer, error) { return &b, nil }))

	require.NoError(t, s.Destroy(ctx, first.ID))
	require.ErrorIs(t, s.Destroy(ctx, first.ID), remote.ErrGone)
	require.NoError(t, s.Destroy(ctx, second.ID))
	for _, err := range []error{s.Extend(ctx, first, time.Hour, false), s.Park(ctx, first)} {
		require.ErrorIs(t, err, remote.ErrGone)
	}
	_, err = s.Status(ctx, first.ID)
	require.ErrorIs(t, err, remote.ErrGone)
	_, err = s.Resume(ctx, first.ID)
	require.ErrorIs(t, err, remote.ErrGone)
	require.Empty(t, server.Sandboxes(""))

	other := e2b.NewService(append(server.Environ(), "E2B_TEMPLATE=absent"))
	_, err = remote.Make(ctx, other, &remote.Request{Policy: &profiles.Policy{}})
	require.EqualError(t, err, "e2b: create a sandbox: 404 Not Found: template 'absent' not found")
	wrong := e2b.NewService(append(server.Environ(), "E2B_API_KEY=e2b_ff"))
	_, err = wrong.Find(ctx, nil)
	require.ErrorContains(t, err, "401")
	require.NotContains(t, err.Error(), "e2b_ff")
	require.Contains(t, err.(*remote.APIError).Hint(), "E2B_API_KEY")
}
