package cgroups

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
)

// Attach moves a process into all the groups that it was not cloned into ([Plan.Born]). It is for
// a sandbox of one process that has not started its command: what is forked
// earlier stays outside. It costs some 5 ms for each v1 hierarchy, because the
// kernel waits until no processor is forking.
func (g *Group) Attach(pid int) error {
	for _, d := range g.dirs {
		if d.v2 && !g.sheds {
			continue
		}
		if _, err := retry(func() (int, error) { return unix.Write(d.procs, strconv.AppendInt(nil, int64(pid), 10)) }); err != nil {
			err = fmt.Errorf("attach process %d to %s: %w", pid, d.path, err)
			if errors.Is(err, unix.EINVAL) && realTime(pid) {
				// With CONFIG_RT_GROUP_SCHED the kernel takes such a process in only where cpu.rt_runtime_us is
				// not 0 (Documentation/scheduler/sched-rt-group.rst).
				return hint.Errorf("start it by chrt --other 0, or without --cpus",
					"%w: pccrun runs with a real-time scheduling policy, which the control group does not allow", err)
			}
			return err
		}
	}
	return nil
}

// realTime reports whether a process has one of the policies SCHED_FIFO,
// SCHED_RR and SCHED_DEADLINE.
func realTime(pid int) bool {
	attr, err := unix.SchedGetAttr(pid, 0)
	return err == nil && (attr.Policy == unix.SCHED_FIFO || attr.Policy == unix.SCHED_RR || attr.Policy == unix.SCHED_DEADLINE)
}
