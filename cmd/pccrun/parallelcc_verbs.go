//go:build !launcher

package main

import (
	"slices"
	"strings"
)

// notHere is the error for a word of parallel-cc's, a verb or a flag with its value or without, that pccrun has not: it has the
// reason, and what there is.
func notHere(word string) error {
	name, _, _ := strings.Cut(word, "=")
	for _, not := range [...]struct{ words, why, hint string }{
		{"mcp", "no agent inside asks pccrun for anything", "pccrun ps --json, task list --json and task show NAME --json have the state"},
		{"install", "pccrun changes neither your shell nor an agent's settings", "alias claude='pccrun -- claude'"},
		{"register heartbeat release", "a session begins and ends with its run", "pccrun ps lists them, pccrun kill ends one"},
		{"cleanup", "a session begins and ends with its run", "pccrun gc removes what they left, pccrun task clean the tasks that are merged"},
		{"claims conflicts suggestions", "nobody claims files: each task has a work tree of its own", "git merge-tree main task/NAME says what a merge would be"},
		{"merge watch", "pccrun watches no branch", "git branch --merged"},
		{"budget", "what is spent is counted for each run and task", "--budget and --total-budget limit it; pccrun stats and pccrun task show say it"},
		{"config", "settings stand in a file", "~/.config/pccrun/config.jsonc: docs/tasks.md"},
		{"templates --template --use-template", "pccrun has no templates of projects", "begin in a repository"},
		{"--task", "many tasks stand in a file", "--task-file FILE, a line each; - is standard input"},
		{"--apm-resume", "nothing records which phases are done", "--session NAME --prompt TEXT goes on with a task"},
		{"--on-failure", "nothing that a task wrote is executed outside, and without success your branches are as before", "pccrun sandbox run … || COMMAND executes one on this machine"},
		{"--git-live --target-branch", "pccrun pushes nothing", "git push origin task/NAME, once you have seen it"},
		{"--ssh-key --confirm-ssh-key", "no key goes inside", "--use ssh-agent signs with it"},
		{"--npm-token --npm-registry", "no token goes inside", "--allow @npm, and --inject NPM_TOKEN=HOST"},
		{"--auth-method", "an agent has the login that it has here", ""},
	} {
		if slices.Contains(strings.Fields(not.words), name) {
			return misuse(name+": "+not.why, not.hint)
		}
	}
	return nil
}
