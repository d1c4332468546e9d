package vcs

import (
	"strconv"
	"strings"
)

// A Variable is a setting that git takes from its environment.
type Variable struct {
	Variable string // by which name
	Setting
}

// variables are those by which git, or what it calls, is told of a program or a directory,
// each with the setting that it stands for: git(1), git-var(1), git-init(1).
var variables = [...]struct{ name, section, key string }{
	{"GIT_CONFIG_GLOBAL", "include", "path"}, {"GIT_CONFIG_SYSTEM", "include", "path"},
	{"GIT_SSH_COMMAND", "core", "sshcommand"}, {"GIT_SSH", "core", "sshcommand"}, {"GIT_PROXY_COMMAND", "core", "gitproxy"},
	{"GIT_EXTERNAL_DIFF", "diff", "external"}, {"GIT_PAGER", "core", "pager"}, {"PAGER", "core", "pager"},
	{"GIT_EDITOR", "core", "editor"}, {"GIT_SEQUENCE_EDITOR", "sequence", "editor"}, {"VISUAL", "core", "editor"}, {"EDITOR", "core", "editor"},
	{"GIT_ASKPASS", "core", "askpass"}, {"SSH_ASKPASS", "core", "askpass"}, {"GIT_TEMPLATE_DIR", "init", "templatedir"},
}

// maxPairs bounds the settings of GIT_CONFIG_COUNT that are looked at: nobody has more.
const maxPairs = 256

// Environment returns what an environment says to git of programs and configuration. An
// empty value says nothing, and nor does one word that a search path finds (EDITOR=vim).
func Environment(getenv func(string) string) (all []Variable) {
	for _, v := range variables {
		if value := getenv(v.name); strings.ContainsAny(value, "/ \t") || value != "" && v.section != "core" {
			all = append(all, Variable{v.name, Setting{Section: v.section, Key: v.key, Value: value}})
		}
	}
	// Of a number that is none git takes nothing: it ends.
	n, _ := strconv.Atoi(getenv("GIT_CONFIG_COUNT"))
	for i := range min(n, maxPairs) {
		number := strconv.Itoa(i)
		if s, ok := settingOf(getenv("GIT_CONFIG_KEY_" + number)); ok {
			s.Value = getenv("GIT_CONFIG_VALUE_" + number)
			all = append(all, Variable{"GIT_CONFIG_VALUE_" + number, s})
		}
	}
	return all
}

// settingOf takes a full name apart, as git_config_parse_key in git's config.c does.
func settingOf(name string) (s Setting, ok bool) {
	first, last := strings.IndexByte(name, '.'), strings.LastIndexByte(name, '.')
	if first < 0 {
		return s, false
	}
	s.Section, s.Key = strings.ToLower(name[:first]), strings.ToLower(name[last+1:])
	if last > first {
		s.Sub = name[first+1 : last]
	}
	return s, true
}
