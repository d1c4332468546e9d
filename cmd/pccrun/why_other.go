//go:build !linux

package main

import "github.com/pccrun/pccrun/profiles"

// surveyed knows nothing that the table does not: there is no native launch here.
func surveyed(*profiles.Policy, *profiles.Host, string) (d profiles.Decision, differs, scratch bool) {
	return profiles.Decision{}, false, false
}

func surveyedEnv(*profiles.Policy, *profiles.Host, string) (value, what string) { return "", "" }

func vacated(*profiles.Policy, string) string { return "" }

// program takes a name as it stands: nothing is looked for where nothing runs.
func program(_ *profiles.Policy, _ *profiles.Host, name string) (string, error) { return name, nil }

func unrunnable(err error) (what, hint string) { return err.Error(), "" }

// changedWith returns what a rule has to name for a path to change.
func changedWith(_ *profiles.Decision, path string) string { return path }
