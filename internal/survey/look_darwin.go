package survey

import "github.com/pccrun/pccrun/profiles"

// coveredFold is of Linux's file systems.
func coveredFold(string) bool { return false }

// Look reads from the host what a plan of this policy needs to know.
func Look(policy *profiles.Policy, o Options) (*Survey, error) { return LayoutOf(policy, o) }
