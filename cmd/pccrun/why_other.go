//go:build !linux

package main

import "github.com/pccrun/pccrun/profiles"

// surveyed knows nothing that the table does not: there is no native launch here.
func surveyed(*profiles.Policy, *profiles.Host, string) (profiles.Decision, bool) {
	return profiles.Decision{}, false
}

func vacated(*profiles.Policy, string) string { return "" }
