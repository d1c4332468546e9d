//go:build !launcher

package main

import (
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/test/escape"
)

// The scripts ask this program for what can stand where the cursor is: it knows the verbs, the
// flags and the values that are a closed list, and leaves the rest to the shell.

func completionVerb(args []string) int {
	scripts := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	if len(args) != 1 {
		return fail("completion: want a shell", "bash, zsh or fish")
	}
	if scripts[args[0]] == "" {
		return fail("completion: no script for "+quote(args[0]), "bash, zsh or fish")
	}
	printf("%s", scripts[args[0]])
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
	defs, table := runFlags(), verbs()
	if flag == "--session" {
		offer(prefix, sessionIDs(false)...)
		return 0
	}
	if i := slices.IndexFunc(defs, func(d flagDef) bool { return d.name == flag && d.kind == takesValue }); i >= 0 {
		list, path := values(defs[i])
		if offer(prefix, list...); path {
			offer("", ":files")
		}
		return 0
	}
	i := -1
	if len(before) > 0 {
		i = slices.IndexFunc(table, func(v verb) bool { return v.name == before[0] })
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
		list, path := arguments(table[i].name, len(before) == 1)
		if offer("", list...); path {
			offer("", ":files")
		}
	}
	return 0
}

// arguments are values for what a verb takes beside flags, first or later.
func arguments(name string, first bool) (words []string, path bool) {
	actions := map[string]string{"profile": "list show check allow schema", "why": "read write exec connect env",
		"home": "list login diff size reset export", "sync": "pack extract", "completion": "bash zsh fish"}
	switch {
	case name == "help":
		return verbNames(), false
	case first && actions[name] != "":
		return strings.Fields(actions[name]), false
	case name == "profile":
		return profiles.Builtin(), true
	case name == "kill" || first && name == "exec":
		return sessionIDs(true), false
	}
	if i := slices.IndexFunc(verbs(), func(v verb) bool { return v.name == name }); first && i >= 0 {
		if head, _, _ := strings.Cut(verbs()[i].help(), "\n"); strings.Contains(head, "SESSION") {
			words = sessionIDs(false)
		}
	}
	return words, strings.Contains(" why home sync diff apply review ", " "+name+" ")
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

// values returns what can stand after a flag, as far as it is a closed list,
// and whether a path can.
func values(d flagDef) (words []string, path bool) {
	switch d.name {
	case "--profile":
		return profiles.Builtin(), true
	case "--allow-missing":
		return profiles.GuaranteeNames(), false
	case "--without":
		return profiles.LayerNames(), false
	case "--provider":
		return providerNames(), false
	case "--use":
		return profiles.Services, false
	}
	for word := range strings.SplitSeq(d.arg, "|") { // what is not a placeholder is a word
		switch word {
		case "PATH", "FILE", "DIR":
			path = true
		case strings.ToLower(word):
			words = append(words, word)
		}
	}
	return words, path
}

// verbFlags returns the flags of a verb.
func verbFlags(v verb) []string {
	switch v.name {
	case "run":
		return flagNames(runFlags())
	case "escape": // its FLAGS are those of a run, of which it has a few
		return helpFlags(strings.ReplaceAll(escape.Usage, "[FLAGS]", ""))
	}
	return helpFlags(v.help())
}

func verbNames() []string {
	var names []string
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	return names
}

const bashCompletion = `# bash completion for pccrun
_pccrun_files() { # adds the files that cur is the beginning of
  local IFS=$'\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY+=($(compgen -f -- "$cur"))
}
_pccrun() {
  local cur=${COMP_WORDS[COMP_CWORD]} word rest
  COMPREPLY=()
  while IFS=$'\t' read -r word rest; do
    case $word in
      :files) _pccrun_files;;
      :command)
        if declare -F _command_offset >/dev/null; then
          _command_offset "$rest"
          return
        fi
        ((COMP_CWORD == rest)) && COMPREPLY=($(compgen -c -- "$cur"))
        _pccrun_files;;
      "${cur#=}"*) COMPREPLY+=("$word");;
    esac
  done < <(pccrun completion -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _pccrun pccrun
`

const zshCompletion = `#compdef pccrun
# zsh completion for pccrun
_pccrun() {
  local -a found
  local line
  for line in "${(@f)$(pccrun completion -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      '') ;;
      :files) _files;;
      :command*)
        line=${line#*$'\t'}
        shift $line words
        ((CURRENT -= line))
        _normal
        return;;
      *) found+=("${${line//:/\\:}/$'\t'/:}");;
    esac
  done
  (($#found)) && _describe argument found
}
if [[ $funcstack[1] == _pccrun ]]; then
  _pccrun "$@" # zsh has loaded this file from $fpath, to complete
elif (($+functions[compdef])); then
  compdef _pccrun pccrun # it was sourced
else
  print -u2 'pccrun: completion: zsh completes nothing before compinit'
  print -u2 'pccrun: hint: autoload -U compinit && compinit, and then this once more'
fi
`

const fishCompletion = `# fish completion for pccrun
function __pccrun_complete
    set -l words (commandline -opc)
    for line in (pccrun completion -- $words[2..-1] "$(commandline -ct)" 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path "$(commandline -ct)"
            case ':command*'
                set -e words[1..(string split \t -- $line)[2]]
                complete -C "$(string join ' ' -- (string escape -- $words) (commandline -ct))"
            case '*'
                echo $line
        end
    end
end
complete -c pccrun -f -a '(__pccrun_complete)'
`

// providerNames are what --provider takes.
func providerNames() []string {
	names := []string{providers.Auto}
	for _, k := range providers.Known() {
		names = append(names, k.Name)
	}
	return names
}
