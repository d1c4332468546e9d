//go:build linux || darwin

package profiles

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSizeOf(t *testing.T) {
	for text, want := range map[string]Size{
		"2cpu,4g": {2, 4096}, "4g,2cpu": {2, 4096}, "0.5cpu": {CPUs: 0.5}, "512m": {MemoryMB: 512}, "1.5g": {MemoryMB: 1536},
	} {
		got, err := SizeOf(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := SizeOf(got.String())
		require.NoError(t, err, got.String())
		require.Equal(t, got, again)
	}
	for _, text := range []string{"", "2", "2cpu,", "cpu", "2cpu,3cpu", "4g,4g", "-1cpu", "0cpu,4g", "large", "1e3cpu"} {
		_, err := SizeOf(text)
		require.ErrorContains(t, err, "want processors, memory or both", text)
	}
}

// TestPlace: what is chosen of a place, by whom, and what is none of its words.
func TestPlace(t *testing.T) {
	w := newWorld(t)
	w.write("~/.parallel-cc/sandbox.json", `{"providers": {
		"docker": {"image": "img:1", "memoryLimit": "3g", "cpuLimit": 2, "network": "none"}, "e2b": {"template": "tmpl", "defaultTimeout": 60},
		"daytona": {"target": "us", "autoStopInterval": 30}}}`)
	at := func(provider string, environ ...string) *Policy {
		return w.policy(func(r *Request) { r.Provider, r.Host.Environ = provider, append(r.Host.Environ, environ...) })
	}
	require.Zero(t, at("native").Place)
	docker := at("docker")
	require.Equal(t, "img:1", docker.Place.Image.Text)
	require.Equal(t, int64(3<<30), docker.Resources.Memory.Value)
	require.Equal(t, "mine", at("docker", "PARALLEL_CC_DOCKER_IMAGE=mine").Place.Image.Text)
	e2b := at("e2b")
	require.Equal(t, "tmpl", e2b.Place.Image.Text)
	require.Equal(t, time.Minute, e2b.Resources.Deadline())
	require.Equal(t, "own", at("e2b", "PARALLEL_CC_E2B_TEMPLATE=own").Place.Image.Text)
	daytona := at("daytona")
	require.Equal(t, "us", daytona.Place.Region.Text)
	require.Contains(t, daytona.Warnings[0], "autoStopInterval")
	require.Equal(t, "eu", at("daytona", "PARALLEL_CC_DAYTONA_TARGET=eu").Place.Region.Text)
	flag := w.policy(func(r *Request) { r.Provider, r.Target, r.Size = "daytona", "eu", "2cpu" })
	require.Equal(t, Choice{"eu", Origin{Source: "flag", Key: "--daytona-target"}}, flag.Place.Region)
	require.Zero(t, flag.For(&Elsewhere{Home: "/home/u", Workspace: "/home/u/w"}).Place)
	for text, want := range map[string]string{
		`{"place": {"image": "-x"}}`: `place.image: "-x": want a name`, `{"place": {"size": "big"}}`: "want processors, memory or both",
		`{"place": {"keep": "30s"}}`: "want minutes, from 1m to 24h", `{"place": {"region": "a b"}}`: "want a name", `{"place": {"zone": "x"}}`: "unknown key",
	} {
		_, err := w.profile(text)
		require.ErrorContains(t, err, want, text)
	}
}
