// Package groups reads the control groups of a sandbox by containerd's library, which knows cgroup v1 and v2:
// an oracle, of other hands than package cgroups, for what that has counted and limited.
package groups

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// A Reading is what the groups of one sandbox say; 0 of what none of them has.
type Reading struct {
	MemoryPeak, MemoryLimit uint64 // bytes, swap included where the kernel counts it
	Pids, PidsLimit         uint64 // processes and threads
	CPU                     uint64 // nanoseconds
	Throttled               uint64 // periods of time in which it was to wait for a processor
	Processes               []int  // below the last of the groups
}

const root = "/sys/fs/cgroup"

// Read reads groups, each of its own hierarchy, by their directories.
func Read(dirs ...string) (r Reading, err error) {
	for _, dir := range dirs {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			return r, err
		}
		read := r.version1
		if fs.Type == unix.CGROUP2_SUPER_MAGIC {
			read = r.version2
		}
		if err = read(dir); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *Reading) version1(dir string) error {
	rest, ok := strings.CutPrefix(dir, root+"/")
	controllers, group, found := strings.Cut(rest, "/")
	if !ok || !found {
		return errors.New(dir + ": lies in no hierarchy below " + root)
	}
	name := cgroup1.Name(strings.Split(controllers, ",")[0])
	c, err := cgroup1.Load(func(of cgroup1.Name) (string, error) {
		if strings.Contains(","+controllers+",", ","+string(of)+",") {
			return "/" + group, nil
		}
		return "", cgroup1.ErrControllerNotActive
	}, func(c *cgroup1.InitConfig) error {
		c.InitCheck = cgroup1.AllowAny
		return nil
	})
	if err != nil {
		return err
	}
	m, err := c.Stat(cgroup1.IgnoreNotExist)
	if err != nil {
		return err
	}
	if m := m.Memory; m != nil && m.Usage != nil {
		r.MemoryPeak, r.MemoryLimit = max(m.Usage.Max, m.Swap.GetMax()), m.Usage.Limit
	}
	if m.Pids != nil {
		r.Pids, r.PidsLimit = m.Pids.Current, m.Pids.Limit
	}
	r.CPU += m.CPU.GetUsage().GetTotal()
	r.Throttled += m.CPU.GetThrottling().GetThrottledPeriods()
	processes, err := c.Processes(name, true)
	r.Processes = nil
	for _, p := range processes {
		r.Processes = append(r.Processes, p.Pid)
	}
	return err
}

func (r *Reading) version2(dir string) error {
	mount := dir // the top of its hierarchy
	for fs := (unix.Statfs_t{}); unix.Statfs(filepath.Dir(mount), &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC; {
		mount = filepath.Dir(mount)
	}
	c, err := cgroup2.Load("/"+strings.TrimPrefix(dir, mount+"/"), cgroup2.WithMountpoint(mount))
	if err != nil {
		return err
	}
	m, err := c.Stat()
	if err != nil {
		return err
	}
	r.MemoryPeak, r.MemoryLimit = m.Memory.GetMaxUsage(), m.Memory.GetUsageLimit()
	r.Pids, r.PidsLimit = m.Pids.GetCurrent(), m.Pids.GetLimit()
	r.CPU = m.CPU.GetUsageUsec() * 1000
	r.Throttled = m.CPU.GetNrThrottled()
	processes, err := c.Procs(true)
	r.Processes = nil
	for _, pid := range processes {
		r.Processes = append(r.Processes, int(pid))
	}
	return err
}
