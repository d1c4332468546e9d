//go:build unix

package netproxy

import (
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
		s.judge(&a, wire.Question{Method: "POST", Path: "/v1/messages"})
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
