package docker

import (
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/stretchr/testify/require"

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
