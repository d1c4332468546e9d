// Package profiles is the policy language: it reads profiles, flags and the
// settings of other tools, makes one [Policy] of them, and answers what that
// policy says of a path, a variable or a host.
//
// It promises:
//   - whatever it does not understand is a mistake, and every mistake is named
//     with file, line and key ([Error]);
//   - a file of the workspace that the user does not trust only tightens
//     ([Resolve]);
//   - the answers are the enforcement's own: [Policy.Decide], [Policy.Protected],
//     [Policy.DecideEnv] and [Network.Rules] are what a launch asks, and what
//     `pccrun why` prints;
//   - each rule of a policy knows where it was written ([Origin]).
//
// A policy is a value. It knows the user, his home and the workspace, and
// nothing else of the machine: which links, repositories and programs stand
// there is the survey's part. The language is described in docs/policy.md; its
// keys and flags are the tables in keys.go and flags.go.
package profiles
