package run

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct{ flag, variable, name, by, err string }{
		{"", "", "native", "default", ""},
		{"docker", "e2b", "docker", "--provider", ""},
		{"", "e2b", "e2b", providerVariable, ""},
		{"auto", "e2b", "native", "--provider", ""},
		{"", "nowhere", "", providerVariable, "provider nowhere: no such provider, as PARALLEL_CC_SANDBOX_PROVIDER names it"},
		{"nowhere", "e2b", "", "--provider", "provider nowhere: no such provider"},
	} {
		req := &profiles.Request{Provider: c.flag}
		if c.variable != "" {
			req.Host.Environ = []string{providerVariable + "=" + c.variable}
		}
		got, err := choose(req)
		if c.err != "" {
			require.EqualError(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, [3]any{c.name, c.by, c.flag == "auto"}, [3]any{got.Name, got.by, got.auto})
	}
}

func TestChooseByFile(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, os.Mkdir(home+"/.parallel-cc", 0o755))
	file := home + "/.parallel-cc/sandbox.json"
	req := &profiles.Request{Host: profiles.Host{UID: os.Getuid(), Home: home}}
	choice := func(text string) (string, string, error) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		c, err := choose(req)
		return c.Name, c.by, err
	}
	name, by, err := choice(`{"defaultProvider": "e2b"}`)
	require.NoError(t, err)
	require.Equal(t, "e2b", name)
	require.Equal(t, file, by)
	_, _, err = choice(`{"defaultProvider": "nowhere"}`)
	require.EqualError(t, err, "provider nowhere: no such provider, as "+file+" names it")
	_, _, err = choice(`{"defaultProvider": `)
	require.ErrorContains(t, err, file+":1: ")
	name, _, err = choice(`{"providers": {}}`)
	require.NoError(t, err)
	require.Equal(t, providers.Native, name)
	req.Provider = "docker"
	name, _, err = choice(`{"defaultProvider": "e2b"}`)
	require.NoError(t, err)
	require.Equal(t, "docker", name, "a flag stands above")
}

func TestBuild(t *testing.T) {
	e2b, err := providers.KindOf("e2b")
	require.NoError(t, err)
	req := &profiles.Request{}
	_, err = new(Program).build(e2b, req, providers.Host{})
	require.EqualError(t, err, "provider e2b: not built yet, and not set up: it needs E2B_API_KEY")
	program := &Program{Provider: func(name string, _ *profiles.Request, _ providers.Host) (providers.Provider, error) {
		return struct{ providers.Provider }{}, nil
	}}
	_, err = program.build(e2b, req, providers.Host{})
	require.EqualError(t, err, "provider e2b: not set up: it needs E2B_API_KEY")
	req.Host.Environ = []string{"E2B_API_KEY=x"}
	_, err = program.build(e2b, req, providers.Host{})
	require.NoError(t, err, "control")
}
