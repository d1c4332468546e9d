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
//
// # Why it looks like this
//
//   - A launch is a list of system calls, decided before the clone. A failure names the step and the errno.
//   - The child has no secret: the launcher's writable memory is withheld from the clone.
//   - Two filters share no code. A third asks the launcher, which then makes the call itself: a path in the
//     command's memory can change.
//   - A path is looked up once, after the clone, through no link. Another inode than the one that was decided on
//     ends the launch.
//   - Protection is by mount, Landlock second. Landlock's rights on reads cost a third of a `grep -r`, and are left
//     to `strict`.
//   - A new protected name is quarantined, not forbidden: what forbids a file would stay on the host if the launcher
//     were killed.
//   - Root is dropped: the launcher opens idmapped clones of what the plan lends, and becomes an identity that owns
//     nothing.
package namespaces
