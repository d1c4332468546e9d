// Package workspace finds, fast, what stands in a workspace at the start of a
// run and must not be changed or read: files that a host tool would execute
// later, repositories of git in every form, and what the globs of a policy
// match.
//
// [Scan] promises that
//   - everything that exists when it looks is found, at any depth: protected
//     names, repositories with their linked worktrees, submodules and bare
//     forms, the files that git's configuration names, other names (hard
//     links) of all these, and the symbolic links that lead to them;
//   - it never reads outside the workspace through a link that stands in it,
//     also while another process changes the tree: directories are opened
//     without following links, and each answer carries device and inode so
//     that the mount planner can compare what it finds at the same path;
//   - work that the content of the workspace controls is bounded: it finishes,
//     or it is refused with [ErrTooMuch] and the path that was too much.
//
// A [Guard] looks, during a run and after it, for what must not stay: what a host
// tool would execute is quarantined, and reported. What a run changed is the matter of
// package changes.
//
// [Scan] does not promise anything of names that do not exist yet, of hard links
// whose other name lies outside the workspace, or of scripts that a protected
// script calls. Which files are protected, and which are not, is written down
// in docs/protect.md.
package workspace
