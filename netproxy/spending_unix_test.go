//go:build unix

package netproxy

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// TestSpendingUnwritten holds that no further request goes out when what one has cost could not be written.
func TestSpendingUnwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spending")
	file, err := spending.Create(path, 1e6)
	require.NoError(t, err)
	defer file.Close()
	s := &Spending{Files: []*spending.File{file}}
	ask := func() (a wire.Answer) {
		a.Verdict = rules.Verdict{Action: rules.Allow, Host: "api.anthropic.com"}
		s.judge(t.Context(), &a, wire.Question{Method: "POST", Path: "/v1/messages"})
		return a
	}
	require.Equal(t, "anthropic", ask().Meter, "the control")
	closed, err := spending.Open(path)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	s.Files[0] = closed
	s.Count(wire.Spent{USD: 1})
	s.Files[0] = file
	a := ask()
	require.Equal(t, rules.Deny, a.Verdict.Action)
	require.Contains(t, a.Detail, "cannot be written")
	require.Empty(t, a.Meter)
}

// TestSpendingInFlight holds that no more requests are under way than what is left may last for: the others wait until an
// answer was counted, or their clients go.
func TestSpendingInFlight(t *testing.T) {
	file, err := spending.Create(filepath.Join(t.TempDir(), "spending"), 1e6)
	require.NoError(t, err)
	defer file.Close()
	s := &Spending{Files: []*spending.File{file}}
	ask := func(ctx context.Context, host string) (a wire.Answer) {
		a.Verdict = rules.Verdict{Action: rules.Allow, Host: host}
		s.judge(ctx, &a, wire.Question{Method: "POST", Path: "/v1/messages"})
		return a
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 4 { // a quarter of a dollar each
		require.Equal(t, "anthropic", ask(gone, "api.anthropic.com").Meter)
	}
	a := ask(gone, "gateway.example")
	require.Equal(t, 503, a.Status, "its client is gone, and it would have waited: what looks like an API's counts at any host")
	require.Empty(t, a.Meter)

	next := make(chan wire.Answer)
	go func() { next <- ask(t.Context(), "api.anthropic.com") }()
	s.Count(wire.Spent{USD: 300_000})
	s.Count(wire.Spent{}) // was not sent
	s.Count(wire.Spent{})
	require.Equal(t, "anthropic", (<-next).Meter, "one is under way, and 0.70 is left for two of 0.30 at most")
	require.Equal(t, 503, ask(gone, "api.anthropic.com").Status)
	s.Count(wire.Spent{USD: 700_000})
	require.Equal(t, 402, ask(t.Context(), "api.anthropic.com").Status)
	s.Lost()

	free, err := spending.Create(filepath.Join(t.TempDir(), "spending"), 0)
	require.NoError(t, err)
	defer free.Close()
	s = &Spending{Files: []*spending.File{free}}
	for range 1000 {
		require.Equal(t, "anthropic", ask(gone, "api.anthropic.com").Meter, "the control: without a limit")
	}
}
