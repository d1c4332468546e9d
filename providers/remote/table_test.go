package remote_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/daytona"
	"github.com/pccrun/pccrun/providers/e2b"
	"github.com/pccrun/pccrun/providers/remote"
)

// TestTable holds docs/providers.md to what the adapters say that their providers keep; PCCRUN_UPDATE=1
// writes it.
func TestTable(t *testing.T) {
	const page = "../../docs/providers.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), "<!-- clouds -->\n")
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, "<!-- end -->\n")
	require.True(t, ok)
	one, other := e2b.NewService(nil, e2b.Options{}).Itself(), daytona.NewService(nil).Itself()
	table := "| guarantee | e2b | daytona |\n|---|---|---|\n"
	for _, g := range profiles.Guarantees {
		if a, b := one[g.Guarantee], other[g.Guarantee]; a+b != "" {
			table += "| `" + string(g.Guarantee) + "` | " + a + " | " + b + " |\n"
		}
	}
	if want := before + "<!-- clouds -->\n" + table + "<!-- end -->\n" + after; want != string(text) {
		if os.Getenv("PCCRUN_UPDATE") != "" {
			require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
			return
		}
		require.Equal(t, want, string(text), "PCCRUN_UPDATE=1 go test -run TestTable writes it")
	}
}

// TestItself: what a provider itself keeps is a part of the answer, the filter only where it is set.
func TestItself(t *testing.T) {
	p := e2b.New(providers.Host{Environ: []string{"E2B_API_KEY=e2b_00"}}, e2b.Options{})
	for rule, is := range map[string]bool{"allow example.com": true, "allow example.com:8080": false} {
		policy := &profiles.Policy{Network: profiles.Network{Allow: []profiles.NetRule{{Text: rule}}}}
		plan, err := p.Plan(policy, nil, &remote.Facts{Provider: e2b.Name}, providers.Command{})
		require.NoError(t, err)
		for _, a := range plan.Answers() {
			also := is && a.Guarantee == profiles.NetAllowlist || a.Guarantee == profiles.ProcIsolated || a.Guarantee == profiles.ResTime
			require.Equal(t, also, strings.Contains(a.Mechanism, "e2b itself, by its documentation: "), "%s %s", rule, a.Mechanism)
		}
	}
}
