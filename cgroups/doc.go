// Package cgroups bounds and counts what one sandbox uses: memory with swap,
// processors, processes.
//
// # What it promises
//
// [Survey] says which mechanisms this process has on this host, and
// [Host.Plan] picks one for each limit without touching anything: a [Plan] is
// a value that says for every limit whether it will be kept, kept weakly (with
// the gap in words) or missed (with the cause and what mends it), and lists
// the files that will be written. [Plan.Create] makes the control groups and
// nothing else; a [Group] is never half made. What is left to a launcher
// stands in the plan as numbers: [Plan.NProc] for RLIMIT_NPROC,
// [Plan.Supervise] for a [Supervisor], [Plan.Affinity] for a set of processors.
//
// The mechanisms, best first:
//
//   - cgroup v2 in a directory that this process may write: the sandbox is
//     cloned into its group ([Group.FD], CLONE_INTO_CGROUP, Linux 5.7);
//   - cgroup v2 in a transient scope of systemd, asked for over D-Bus;
//   - cgroup v1, one directory for each controller, attached by process id;
//   - RLIMIT_NPROC in the sandbox's user namespace, a supervisor that samples
//     the memory of the whole process tree, a processor set.
//
// # What it does not promise
//
// It does not decide whether a weak or missing limit is acceptable, and knows
// nothing of policies. It reads no path from the environment but the address
// of the user's own bus, and that only where the socket belongs to the user.
package cgroups
