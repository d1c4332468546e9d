// Package namespaces is the native Linux sandbox: it plans a run as a
// printable value, and carries the plan out with namespaces, mounts, Landlock
// and a seccomp filter, unprivileged.
//
//	Examine(policy, survey)  ─▶ Facts                what the kernel says of itself and of the caller
//	Build(policy, survey, facts, command) ─▶ Plan    pure, printable
//	Plan.Run(stdio) ─▶ Result      clone, set up, execve, reap
//
// Inside and outside are kept apart: what runs in the child between clone and
// execve is package inside, a table of system calls and its interpreter; this
// package writes the table, clones the child, and directs it over one socket.
//
// The promise: the command starts only if every step of the plan was carried
// out; whatever a step finds different from the survey ends the launch; and
// when this process dies, however it dies, nothing that it started lives on.
package namespaces
