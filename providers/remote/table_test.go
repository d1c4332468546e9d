package remote_test

import (
	"cmp"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/cloudflare"
	"github.com/pccrun/pccrun/providers/daytona"
	"github.com/pccrun/pccrun/providers/e2b"
	"github.com/pccrun/pccrun/providers/modal"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/providers/sprites"
	"github.com/pccrun/pccrun/providers/vercel"
)

// places are the clouds that docs/clouds.md has rows for.
var places = []struct {
	service remote.Service
	facts   remote.Facts
}{
	{e2b.NewService(nil), e2b.NewService(nil).Facts},
	{daytona.NewService(nil), daytona.NewService(nil).Facts},
	{cloudflare.NewService(nil), cloudflare.NewService(nil).Facts},
	{modal.NewService(nil), modal.NewService(nil).Facts},
	{sprites.NewService(nil), sprites.NewService(nil).Facts},
	{vercel.NewService(nil), vercel.NewService(nil).Facts},
}

// TestTable holds docs/clouds.md to what the adapters say of their places; PCCRUN_UPDATE=1 writes it.
func TestTable(t *testing.T) {
	const page = "../../docs/clouds.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), "<!-- clouds -->\n")
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, "<!-- end -->\n")
	require.True(t, ok)
	table := "| place | made of | size, an hour | has | itself |\n|---|---|---|---|---|\n"
	for _, p := range places {
		f := p.facts
		var has []string
		if _, stops := p.service.(remote.Sleeper); stops {
			has = append(has, "stop")
		}
		if _, keeps := p.service.(remote.Extender); keeps && !f.Elsewhere {
			has = append(has, "`--keep`")
		}
		if _, ports := p.service.(remote.Previewer); ports {
			has = append(has, "`--publish`")
		}
		price := "unknown"
		if usd := f.Price(f.Size); usd > 0 {
			price = remote.Dollars(usd) + " (" + f.Prices.Read + ")"
		}
		var itself []string
		for _, g := range profiles.Guarantees {
			if by := f.Keeps[g.Guarantee]; by != "" {
				itself = append(itself, by)
			}
		}
		table += "| " + strings.Join([]string{
			"`" + p.service.Name() + "`", cmp.Or(f.Images, "always the same"), strings.TrimPrefix(f.Size.String()+" "+price, " "),
			cmp.Or(strings.Join(has, ", "), "none"), strings.Join(itself, "; "),
		}, " | ") + " |\n"
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
