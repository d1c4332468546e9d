//go:build !launcher

package main

import (
	"cmp"
	"embed"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
)

// The scripts ask this program for what can stand where the cursor is: it knows the verbs, the
// flags and the values that are a closed list, and leaves the rest to the shell.

//go:embed completion
var completionScripts embed.FS

func completionVerb(args []string) int {
	if len(args) != 1 {
		return fail("completion: want a shell", "bash, zsh or fish")
	}
	script, err := completionScripts.ReadFile("completion/pccrun." + args[0])
	if err != nil {
		return fail("completion: no script for "+quote(args[0]), "bash, zsh or fish")
	}
	printf("%s", script)
	return 0
}

// complete prints what can be the last word of a command line, one a line, with what it does behind
// a tab. ":files" stands for files, and ":command" for a command that begins at a word, counted from
// pccrun itself as 0: the shell completes both.
func complete(words []string) int {
	before, cur := words[:max(len(words)-1, 0)], ""
	if len(words) > 0 {
		cur = words[len(words)-1]
	}
	offer := func(prefix string, list ...string) {
		for _, word := range list {
			printf("%s%s\n", prefix, word)
		}
	}
	if i := slices.Index(before, "--"); i >= 0 {
		printf(":command\t%d\n", i+2)
		return 0
	}
	last := func(n int) string { return slices.Concat([]string{"", ""}, before)[len(before)+2-n] }
	flag, prefix := last(1), ""
	switch name, _, joined := strings.Cut(cur, "="); {
	case flag == "=": // bash breaks --flag=VALUE into three words
		flag = last(2)
	case joined && name != "":
		flag, prefix = name, name+"="
	}
	defs, table := runFlags(&profiles.Request{}), verbs()
	if flag == "--session" {
		offer(prefix, sessionIDs(false)...)
		return 0
	}
	if i := slices.IndexFunc(defs, func(d flagDef) bool { return d.name == flag && !d.isSwitch() }); i >= 0 {
		list, path := values(cmp.Or(listed[flag], defs[i].arg))
		if offer(prefix, list...); path {
			offer("", ":files")
		}
		return 0
	}
	i := -1
	if len(before) > 0 {
		i = slices.IndexFunc(table, func(v verb) bool { return v.name == current(before)[0] })
	}
	switch {
	case strings.HasPrefix(cur, "-") && i > 0:
		offer("", verbFlags(table[i])...)
	case strings.HasPrefix(cur, "-"):
		for _, d := range defs {
			printf("%s\t%s\n", d.name, d.line)
		}
		offer("", "--")
	case len(before) == 0:
		for _, v := range table {
			if v.line != "" {
				printf("%s\t%s\n", v.name, v.line)
			}
		}
	case i > 0:
		first, others, _ := strings.Cut(table[i].args, " ")
		if len(before) > 1 {
			first = others
		}
		list, path := values(first)
		if offer("", list...); path {
			offer("", ":files")
		}
	}
	return 0
}

// sessionIDs returns the ids of sessions, the newest first, with what became of each and its command; of those alone that
// can be ended, if live is true.
func sessionIDs(live bool) (words []string) {
	home, err := run.Sessions()
	if err != nil {
		return nil
	}
	list, _ := home.List()
	for _, e := range list {
		if !live || e.State == sessions.Running || e.State == sessions.Crashed || e.Standing {
			words = append(words, e.ID+"\t"+string(e.State)+" "+commandLine(e.Argv))
		}
	}
	return words
}

// values returns what can stand for one of some words, as far as it is a closed list, and whether a path can. A word in
// capitals is a placeholder.
func values(choice string) (words []string, path bool) {
	for word := range strings.SplitSeq(choice, "|") {
		switch word {
		case "":
		case "PATH", "FILE", "DIR":
			path = true
		case "PROFILE":
			words, path = profiles.Builtin(), true
		case "GUARANTEE":
			words = profiles.GuaranteeNames()
		case "LAYER":
			words = profiles.LayerNames()
		case "PROVIDER":
			words = append(words, providers.Auto)
			for _, k := range providers.Known() {
				words = append(words, k.Name)
			}
		case "SERVICE":
			words = profiles.Services
		case "SESSION", "RUNNING":
			words = sessionIDs(word == "RUNNING")
		case "VERB":
			for _, v := range verbs() {
				words = append(words, v.name)
			}
		case strings.ToLower(word):
			words = append(words, word)
		}
	}
	return words, path
}

// listed are the flags whose value is of a list that their placeholder does not name.
var listed = map[string]string{"--profile": "PROFILE", "--allow-missing": "GUARANTEE", "--without": "LAYER", "--provider": "PROVIDER", "--use": "SERVICE"}

// verbFlags returns the flags of a verb.
func verbFlags(v verb) []string {
	switch v.name {
	case "run":
		return flagNames(runFlags(&profiles.Request{}))
	case "escape": // its FLAGS are those of a run, of which it has a few
		return helpFlags(strings.ReplaceAll(v.help(), "[FLAGS]", ""))
	}
	return helpFlags(v.help())
}
