package docker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

func TestUsed(t *testing.T) {
	var s container.StatsResponse
	s.CPUStats.CPUUsage = container.CPUUsage{TotalUsage: 50, UsageInUsermode: 30, UsageInKernelmode: 20}
	s.MemoryStats.Usage, s.PidsStats.Current = 4096, 3
	s.BlkioStats.IoServiceBytesRecursive = []container.BlkioStatEntry{{Op: "read", Value: 1}, {Op: "Read", Value: 2}, {Op: "write", Value: 4}, {Op: "sync", Value: 8}}
	want := providers.Result{User: 30, System: 20, Memory: 4096, Processes: 3, Read: 3, Written: 4, IOBy: "docker"}
	require.Equal(t, want, used(&s))
	s.CPUStats.CPUUsage = container.CPUUsage{TotalUsage: 50} // as gVisor counts
	want.User, want.System = 50*time.Nanosecond, 0
	require.Equal(t, want, used(&s))
}

// What an engine answers, and what it does not.
func TestUsage(t *testing.T) {
	body, status := `{"cpu_stats": {"cpu_usage": {"usage_in_usermode": 30}}, "memory_stats": {"usage": 4096}}`, http.StatusOK
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.44")
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/containers/abc/stats") {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}))
	defer engine.Close()
	p, err := New(providers.Host{Environ: []string{"DOCKER_HOST=tcp://" + strings.TrimPrefix(engine.URL, "http://")}}, Options{})
	require.NoError(t, err)
	p.running.Store(&running{id: "abc"})
	r := &plan{provider: p, policy: resolve(t, profiles.Request{}), facts: facts()}
	got, err := r.Usage(t.Context())
	require.NoError(t, err)
	require.Equal(t, providers.Result{User: 30, Memory: 4096, IOBy: "docker"}, got)
	body = `{`
	_, err = r.Usage(t.Context())
	require.ErrorContains(t, err, "ask what the container uses")
	body, status = `{"message": "no such container"}`, http.StatusNotFound
	_, err = r.Usage(t.Context())
	require.ErrorContains(t, err, "ask what the container uses")
}
