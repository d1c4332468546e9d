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
	e2bService, daytonaService := e2b.NewService(nil), daytona.NewService(nil)
	one, other := e2bService.Facts.Keeps, daytonaService.Facts.Keeps
	table := "| guarantee | e2b | daytona |\n|---|---|---|\n"
	for _, g := range profiles.Guarantees {
		if a, b := one[g.Guarantee], other[g.Guarantee]; a+b != "" {
			table += "| `" + string(g.Guarantee) + "` | " + a + " | " + b + " |\n"
		}
	}
	table += "\n| | e2b | daytona |\n|---|---|---|\n"
	for _, fact := range []struct {
		what string
		of   func(s remote.Service, f remote.Facts) string
	}{
		{"processor", func(_ remote.Service, f remote.Facts) string { return f.Arch }},
		{"stops and keeps its files", func(s remote.Service, _ remote.Facts) string { _, is := s.(remote.Sleeper); return word(is) }},
		{"its end can be moved (`--keep`)", func(s remote.Service, _ remote.Facts) string { _, is := s.(remote.Extender); return word(is) }},
		{"longest life", func(_ remote.Service, f remote.Facts) string {
			if f.MaxLife == 0 {
				return "any"
			}
			return f.MaxLife.String()
		}},
	} {
		table += "| " + fact.what + " | " + fact.of(e2bService, e2bService.Facts) + " | " + fact.of(daytonaService, daytonaService.Facts) + " |\n"
	}
	if want := before + "<!-- clouds -->\n" + table + "<!-- end -->\n" + after; want != string(text) {
		if os.Getenv("PCCRUN_UPDATE") != "" {
			require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
			return
		}
		require.Equal(t, want, string(text), "PCCRUN_UPDATE=1 go test -run TestTable writes it")
	}
}

func word(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// TestItself: what a provider itself keeps is a part of the answer, the filter only where it is set.
func TestItself(t *testing.T) {
	p := e2b.New(providers.Host{Environ: []string{"E2B_API_KEY=e2b_00"}})
	for rule, is := range map[string]bool{"allow example.com": true, "allow example.com:8080": false} {
		policy := &profiles.Policy{Network: profiles.Network{Allow: []profiles.NetRule{{Text: rule}}}}
		plan, err := p.Plan(policy, nil, &remote.Examined{Provider: e2b.Name}, providers.Command{})
		require.NoError(t, err)
		for _, a := range plan.Answers() {
			also := is && a.Guarantee == profiles.NetAllowlist || a.Guarantee == profiles.ProcIsolated || a.Guarantee == profiles.ResTime
			require.Equal(t, also, strings.Contains(a.Mechanism, "e2b itself, by its documentation: "), "%s %s", rule, a.Mechanism)
		}
	}
}
