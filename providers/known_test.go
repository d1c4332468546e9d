package providers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers"
)

func TestKindOf(t *testing.T) {
	for _, k := range providers.Known() {
		same, err := providers.KindOf(k.Name)
		require.NoError(t, err)
		require.Equal(t, k, same)
	}
	_, err := providers.KindOf("dokcer")
	require.EqualError(t, err, "provider dokcer: no such provider")
	require.Contains(t, err.(*providers.UnusableError).Hint(), "did you mean docker? it is one of auto, native,")
	for _, lacks := range providers.Lacking() {
		_, err := providers.KindOf(lacks.Provider)
		require.EqualError(t, err, "provider "+lacks.Provider+": "+lacks.Cause)
		require.Regexp(t, "^it is one of .*e2b", err.(*providers.UnusableError).Hint())
	}
}

func TestKeys(t *testing.T) {
	set := map[string]string{}
	getenv := func(name string) string { return set[name] }
	k, err := providers.KindOf("vercel")
	require.NoError(t, err)
	require.Equal(t, "VERCEL_OIDC_TOKEN, or VERCEL_TOKEN and VERCEL_TEAM_ID and VERCEL_PROJECT_ID", k.MissingKeys(getenv))
	require.ErrorContains(t, k.NotBuilt(getenv), "provider vercel: not built yet, and not set up: it needs VERCEL_OIDC_TOKEN, or")
	set["VERCEL_TOKEN"], set["VERCEL_TEAM_ID"] = "x", "x"
	require.Equal(t, "VERCEL_OIDC_TOKEN, or VERCEL_PROJECT_ID", k.MissingKeys(getenv))
	set["VERCEL_OIDC_TOKEN"] = "x"
	require.Empty(t, k.MissingKeys(getenv))
	require.EqualError(t, k.NotBuilt(getenv), "provider vercel: not built yet")
}
