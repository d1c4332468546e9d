// Package task gives a coding agent work in a work tree of its own, and brings back a branch.
//
// A task is made of runs. Each phase is a run of this program as a child, with the same workspace and the same flags of
// the user: the checkout, what prepares it, the agent, the check, the commit, and the packing of the new commits. What a
// phase was refused, and what it left in quarantine, comes from its events.
//
// The stages hand values on:
//
//	Order -> Asked -> Placed -> Worked -> Checked -> Committed -> Fetched
//
// It promises:
//   - nothing that a task wrote is executed outside of a sandbox: no hook, no filter, no configuration, no program;
//   - of the user's repository one branch changes, from the commit that it is expected at to one that descends from the
//     task's base, and objects are added. Its work tree, its index and all other references stay;
//   - success is this package's verdict: the agent's last record says so, no tool was refused by the agent's own rules,
//     and the check has passed. The agent's exit status counts for nothing;
//   - however a task ends, its work stays in the work tree until the user removes it, and it can be continued.
package task
