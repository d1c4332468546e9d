package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// TestHelpFlags holds what is completed against the helps.
func TestHelpFlags(t *testing.T) {
	want := map[string][]string{
		"diff": {"--git", "--stat", "--name-status", "--json", "--session"}, "apply": {"--force", "--json", "--session"}, "discard": {"--json", "--session"},
		"snapshot": {"--json", "--remove", "--session"}, "review": {"--json", "--quiet", "--accept", "--save"}, "ps": {"--all", "--here", "--json", "-a"},
		"logs": {"--denied", "--follow", "--tail", "--save", "--json", "--net", "--each", "--output", "-f", "-n"}, "kill": {"--no-download", "--signal", "--wait", "--force", "--json", "--all", "--keep-worktree"},
		"gc": {"--all", "--dry-run", "--json"}, "trust": {"--workspace", "--json", "--program", "--revoke", "--list"}, "sync": {"--dry-run", "--json", "--allow-secret", "--accept", "--trust", "--max-size", "--max-files"}, "doctor": {"--fix", "--yes", "--json", "--all"},
		"help": {"-v"}, "version": nil, "completion": nil,
	}
	for _, v := range verbs() {
		if flags, ok := want[v.name]; ok {
			require.Equal(t, flags, verbFlags(v), v.name)
		}
	}
	for name, own := range map[string][]string{"why": {"--session", "--json"}, "learn": {"--save", "--json", "-q"}, "spec": {"--bundle", "--terminal", "--dry-run", "--json", "--format", "--home"}} {
		i := slices.IndexFunc(verbs(), func(v verb) bool { return v.name == name })
		require.Subset(t, verbFlags(verbs()[i]), append(own, flagNames(policyFlags(&profiles.Request{}))...), name)
	}
}
