//go:build unix

package docker

import (
	"context"
	"encoding/json"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/pccrun/pccrun/providers"
)

// Usage asks the engine what the container uses.
func (r *plan) Usage(ctx context.Context) (result providers.Result, err error) {
	run := r.provider.running.Load()
	answer, err := r.provider.client.ContainerStats(ctx, run.id, client.ContainerStatsOptions{})
	if err != nil {
		return result, r.refused("ask what the container uses", err)
	}
	defer answer.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		return result, r.refused("ask what the container uses", err)
	}
	return used(&s), nil
}

// used is what the engine has counted.
func used(s *container.StatsResponse) (result providers.Result) {
	result.User, result.System = time.Duration(s.CPUStats.CPUUsage.UsageInUsermode), time.Duration(s.CPUStats.CPUUsage.UsageInKernelmode)
	if total := time.Duration(s.CPUStats.CPUUsage.TotalUsage); total > result.User+result.System { // gVisor does not part them
		result.User = total - result.System
	}
	result.Memory, result.Processes = int64(s.MemoryStats.Usage), int64(s.PidsStats.Current)
	for _, e := range s.BlkioStats.IoServiceBytesRecursive {
		switch e.Op {
		case "read", "Read":
			result.Read += int64(e.Value)
		case "write", "Write":
			result.Written += int64(e.Value)
		}
	}
	result.IOBy = "docker"
	return result
}

var _ providers.Meter = (*plan)(nil)
