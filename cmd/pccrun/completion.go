package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// The scripts complete verbs, flags and the values that are a closed list, and
// leave the rest to the shell: after -- the command's name, then what the shell
// completes for that command. They are made from the tables that the parser uses.

func completionVerb(args []string) int {
	if len(args) != 1 {
		return fail("completion: want a shell", "bash, zsh or fish")
	}
	switch args[0] {
	case "bash":
		printf("%s", bashCompletion())
	case "zsh":
		printf("%s", zshCompletion())
	case "fish":
		printf("%s", fishCompletion())
	default:
		return fail("completion: no script for "+quote(args[0]), "bash, zsh or fish")
	}
	return 0
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
	case "--report":
		return []string{"attempts", "none"}, false
	case "--syscalls":
		return []string{"default"}, true
	}
	return nil, strings.HasPrefix(d.arg, "PATH") || strings.HasPrefix(d.arg, "FILE") || d.arg == "DIR"
}

func flagNames(defs []flagDef) []string {
	var names []string
	for _, d := range defs {
		names = append(names, d.name)
	}
	return names
}

// escapeFlags are the flags of escape, whose help is not linked into a launcher.
const escapeFlags = "--list --explain --profile --provider --allow-missing --without --wrap --wrap-ready --only --id --severity --long --layers " +
	"--json --junit --sarif --tap --markdown --report --all --fail-on --baseline --parallel"

// verbFlags returns the flags of a verb.
func verbFlags(v verb) []string {
	switch v.name {
	case "run":
		return flagNames(runFlags())
	case "escape":
		return strings.Fields(escapeFlags)
	}
	return helpFlags(v.help())
}

// helpFlags returns the flags that a help describes: in its first lines, and at
// the beginning of a line of its list. Where it says FLAGS those are meant that
// say what the policy is.
func helpFlags(help string) []string {
	var names []string
	add := func(words []string) {
		for _, w := range words {
			w = strings.TrimSuffix(w, ",")
			if strings.HasPrefix(w, "-") && w != "--" && strings.Trim(w, "abcdefghijklmnopqrstuvwxyz-") == "" && !slices.Contains(names, w) {
				names = append(names, w)
			}
		}
	}
	head, list, _ := strings.Cut(help, "\n\n")
	add(strings.FieldsFunc(head, func(r rune) bool { return strings.ContainsRune(" []|\n", r) }))
	for line := range strings.Lines(list) {
		if line, ok := strings.CutPrefix(line, "  -"); ok {
			flags, _, _ := strings.Cut("-"+line, "  ")
			add(strings.Fields(flags))
		}
	}
	if strings.Contains(head, "FLAGS") {
		add(flagNames(policyFlags()))
	}
	return names
}

func verbNames() []string {
	var names []string
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	return names
}

func bashCompletion() string {
	var cases strings.Builder
	for _, d := range runFlags() {
		words, path := values(d)
		if d.kind == alone {
			continue
		}
		fmt.Fprintf(&cases, "    %s) COMPREPLY=($(compgen -W %q -- \"$cur\"));", d.name, strings.Join(words, " "))
		if path {
			cases.WriteString(" _pccrun_files;")
		}
		cases.WriteString(" return;;\n")
	}
	var flags strings.Builder
	for _, v := range verbs() {
		fmt.Fprintf(&flags, "      %s) COMPREPLY=($(compgen -W %q -- \"$cur\"));;\n", v.name, strings.Join(verbFlags(v), " "))
	}
	return fmt.Sprintf(`# bash completion for pccrun
_pccrun_files() { # adds the files that cur is the beginning of
  local IFS=$'\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY+=($(compgen -f -- "$cur"))
}
_pccrun() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      if declare -F _command_offset >/dev/null; then
        _command_offset $((i + 1))
        return
      fi
      ((COMP_CWORD == i + 1)) && COMPREPLY=($(compgen -c -- "$cur"))
      _pccrun_files
      return
    fi
  done
  # bash breaks --flag=VALUE into three words
  if [[ $cur == '=' ]]; then
    cur=
  elif [[ $prev == '=' ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  case $prev in
%s  esac
  if [[ $cur == -* ]]; then
    case ${COMP_WORDS[1]} in
%s      *) COMPREPLY=($(compgen -W %q -- "$cur"));;
    esac
  elif ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W %q -- "$cur"))
  else
    case ${COMP_WORDS[1]} in
      profile) if ((COMP_CWORD == 2)); then COMPREPLY=($(compgen -W "list show check schema" -- "$cur")); else COMPREPLY=($(compgen -W %q -- "$cur")); _pccrun_files; fi;;
      why) if ((COMP_CWORD == 2)); then COMPREPLY=($(compgen -W "read write exec connect env" -- "$cur")); else _pccrun_files; fi;;
      help) COMPREPLY=($(compgen -W %q -- "$cur"));;
      completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$cur"));;
      home) if ((COMP_CWORD == 2)); then COMPREPLY=($(compgen -W "list size reset export" -- "$cur")); else _pccrun_files; fi;;
      sync) if ((COMP_CWORD == 2)); then COMPREPLY=($(compgen -W "pack extract" -- "$cur")); else _pccrun_files; fi;;
      diff|apply|review) _pccrun_files;;
    esac
  fi
}
complete -F _pccrun pccrun
`, cases.String(), flags.String(), strings.Join(flagNames(runFlags()), " ")+" --", strings.Join(verbNames(), " "), strings.Join(profiles.Builtin(), " "), strings.Join(verbNames(), " "))
}

func zshCompletion() string {
	var flags strings.Builder
	for _, d := range runFlags() {
		words, path := values(d)
		action := ""
		if d.kind == takesValue {
			action = ":" + strings.ReplaceAll(d.arg, ":", `\:`) + ":"
			switch {
			case len(words) > 0 && path:
				action += " _pccrun_or_file " + strings.Join(words, " ") // with a space before it, it is called as it stands
			case len(words) > 0:
				action += "(" + strings.Join(words, " ") + ")"
			case path:
				action += "_files"
			}
		}
		line := strings.NewReplacer("[", `\[`, "]", `\]`, "'", "'\\''").Replace(d.line)
		fmt.Fprintf(&flags, "    '*%s[%s]%s' \\\n", d.name, line, action)
	}
	var list strings.Builder
	for _, v := range verbs() {
		fmt.Fprintf(&list, "    '%s:%s'\n", v.name, strings.ReplaceAll(v.line, "'", "'\\''"))
	}
	var others strings.Builder
	for _, v := range verbs() {
		if names := verbFlags(v); len(names) > 0 && v.name != "run" {
			fmt.Fprintf(&others, "      %s) compadd -- %s; return;;\n", v.name, strings.Join(names, " "))
		}
	}
	return fmt.Sprintf(`#compdef pccrun
# zsh completion for pccrun
_pccrun_or_file() { _alternative "word:word:($*)" 'file:file:_files' }
_pccrun() {
  local -a verbs
  verbs=(
%s  )
  local i
  for ((i = 2; i < CURRENT; i++)); do
    if [[ $words[i] == -- ]]; then
      shift $i words
      ((CURRENT -= i))
      _normal
      return
    fi
  done
  if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then
    _describe verb verbs
    return
  fi
  if [[ $words[CURRENT] == -* ]]; then
    case $words[2] in
%s    esac
  fi
  case $words[2] in
    profile) _values verb list show check schema;;
    why) if ((CURRENT == 3)); then _values question read write exec connect env; else _files; fi;;
    sync) if ((CURRENT == 3)); then _values what pack extract; else _files; fi;;
    help) _describe verb verbs;;
    completion) _values shell bash zsh fish;;
    home) if ((CURRENT == 3)); then _values verb list size reset export; else _files; fi;;
    diff|apply|review) _files;;
    *) _arguments -s -S \
%s    '*:argument:';;
  esac
}
if [[ $funcstack[1] == _pccrun ]]; then
  _pccrun "$@" # zsh has loaded this file from $fpath, to complete
elif (($+functions[compdef])); then
  compdef _pccrun pccrun # it was sourced
else
  print -u2 'pccrun: completion: zsh completes nothing before compinit'
  print -u2 'pccrun: hint: autoload -U compinit && compinit, and then this once more'
fi
`, list.String(), others.String(), flags.String())
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString(`# fish completion for pccrun
function __pccrun_command # whether -- stands before the cursor
    contains -- -- (commandline -opc)
end
function __pccrun_first # whether no verb does, and no command
    not __pccrun_command; and __fish_use_subcommand
end
function __pccrun_verb # whether one of these verbs does
    not __pccrun_command; and __fish_seen_subcommand_from $argv
end
function __pccrun_run # whether none of these does
    not __pccrun_command; and not __fish_seen_subcommand_from $argv
end
function __pccrun_delegate # what fish completes after --
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    set -e words[1..$at]
    complete -C "$(string join ' ' -- (string escape -- $words) (commandline -ct))"
end
complete -c pccrun -f
complete -c pccrun -n __pccrun_command -x -a '(__pccrun_delegate)'
`)
	quoted := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
	}
	for _, v := range verbs() {
		fmt.Fprintf(&b, "complete -c pccrun -n __pccrun_first -a %s -d %s\n", v.name, quoted(v.line))
	}
	others := slices.DeleteFunc(verbNames(), func(name string) bool { return name == "run" })
	for _, v := range verbs() {
		for _, name := range verbFlags(v) {
			if word, long := strings.CutPrefix(name, "--"); long && v.name != "run" {
				fmt.Fprintf(&b, "complete -c pccrun -n '__pccrun_verb %s' -l %s\n", v.name, word)
			}
		}
	}
	for _, d := range runFlags() {
		words, path := values(d)
		spell := "-l " + strings.TrimPrefix(d.name, "--")
		if !strings.HasPrefix(d.name, "--") {
			spell = "-s " + strings.TrimPrefix(d.name, "-")
		}
		if d.kind == takesValue {
			spell += " -x"
			if path {
				spell = strings.TrimSuffix(spell, "-x") + "-rF"
			}
			if len(words) > 0 {
				spell += " -a " + quoted(strings.Join(words, " "))
			}
		}
		fmt.Fprintf(&b, "complete -c pccrun -n '__pccrun_run %s' %s -d %s\n", strings.Join(others, " "), spell, quoted(d.line))
	}
	b.WriteString("complete -c pccrun -n '__pccrun_verb diff apply review home sync' -F\n")
	for _, v := range [...][2]string{{"profile", "list show check schema"}, {"why", "read write exec connect env"}, {"home", "list size reset export"},
		{"sync", "pack extract"}, {"completion", "bash zsh fish"}, {"help", strings.Join(verbNames(), " ")}} {
		fmt.Fprintf(&b, "complete -c pccrun -n '__pccrun_verb %s' -a '%s'\n", v[0], v[1])
	}
	return b.String()
}

// providerNames are what --provider takes.
func providerNames() []string {
	names := []string{providers.Auto}
	for _, k := range providers.Known() {
		names = append(names, k.Name)
	}
	return names
}
