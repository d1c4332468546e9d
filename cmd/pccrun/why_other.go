//go:build !linux

package main

import "github.com/pccrun/pccrun/profiles"

// surveyed knows nothing that the table does not: there is no native launch here.
func surveyed(*profiles.Policy, *profiles.Host, string) (d profiles.Decision, differs, scratch bool) {
	return profiles.Decision{}, false, false
}

func surveyedEnv(*profiles.Policy, *profiles.Host, string) string { return "" }

func vacated(*profiles.Policy, string) string { return "" }
