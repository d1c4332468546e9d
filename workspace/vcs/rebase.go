package vcs

import (
	"slices"
	"strings"
)

// A rebase that was begun and not ended is a list of commands that `git rebase
// --continue` goes on with, and some of them execute something. So does `git
// cherry-pick --continue`, or revert, with a strategy that is none of git's own. `git am
// --continue`, and a rebase by patches, give `git apply` the options that they began
// with, one of which writes a file wherever it says (--build-fake-ancestor). And where a
// merge has put changes aside, the next `git commit` puts back what a file names as such,
// be there a merge or none.

// RebaseState are the files of such a rebase, series of picks or patches that name
// programs or files, in the directory of git.
var RebaseState = [...]string{"rebase-merge/git-rebase-todo", "rebase-merge/strategy", "sequencer/opts", "rebase-apply/apply-opt", "MERGE_AUTOSTASH"}

// MaxOriginal bounds a file that is looked into, or kept to be shown.
const MaxOriginal = 256 << 10

// WhyRebase is what is said of one that does.
const WhyRebase = "git executes what it names when it goes on (--continue), or writes there"

// WhyAutostash is what is said of what the next commit puts into the working tree.
const WhyAutostash = "git commit, and merge --abort, put what it names into the working tree, as git stash apply does"

// WhyState is what is said of one of these files.
func WhyState(name string) string {
	if strings.HasSuffix(name, "MERGE_AUTOSTASH") {
		return WhyAutostash
	}
	return WhyRebase
}

// pickCommands are the commands of a todo list that run no program of the
// list's choice: git help rebase, 2.51, and todo_command_info in sequencer.c.
const pickCommands = "pick p revert edit e reword r fixup f squash s label l reset t merge m update-ref u break b drop d noop"

// strategies are the ways of merging that git has itself. Another is a program
// named git-merge-NAME, or an alias.
const strategies = "ort recursive resolve octopus ours subtree"

// isOneOf says whether a word is in a list, which is a text: each launch would pay for
// one that has to be made.
func isOneOf(word, list string) bool {
	for w := range strings.FieldsSeq(list) {
		if w == word {
			return true
		}
	}
	return false
}

// RebaseExecutes reports whether a file of a rebase may execute something. What is not
// known to be harmless may.
func RebaseExecutes(name string, b []byte) bool {
	switch {
	case strings.HasSuffix(name, "MERGE_AUTOSTASH"):
		return true
	case strings.HasSuffix(name, "/strategy"):
		return !isOneOf(strings.TrimSpace(string(b)), strategies)
	case strings.HasSuffix(name, "/apply-opt"):
		return slices.ContainsFunc(strings.Fields(string(b)), func(word string) bool { return !applyOption(word) })
	case strings.HasSuffix(name, "/opts"):
		all, err := ParseConfig(b)
		return err != nil || slices.ContainsFunc(all, func(s Setting) bool {
			return s.Name() == "options.strategy" && !isOneOf(s.Value, strategies)
		})
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		words := strings.Fields(line)
		// Every command begins with a letter; what does not is a comment (core.commentChar), or git stops at it.
		if len(words) > 0 && isAlpha(words[0][0]) && !isOneOf(words[0], pickCommands) {
			return true
		}
	}
	return false
}

// applyOption reports whether a word, quoted as git quotes it, is an option of `git
// apply` that neither writes elsewhere nor takes the next word with it.
func applyOption(word string) bool {
	option, open := strings.CutPrefix(word, "'")
	option, closed := strings.CutSuffix(option, "'")
	if !open || !closed || strings.ContainsAny(option, `'\`) {
		return false
	}
	switch name, _, value := strings.Cut(option, "="); name {
	case "--whitespace", "--directory", "--include", "--exclude":
		return value
	case "--ignore-space-change", "--ignore-whitespace", "--reject":
		return true
	}
	return len(option) > 2 && (option[:2] == "-C" || option[:2] == "-p") && strings.Trim(option[2:], "0123456789") == ""
}
