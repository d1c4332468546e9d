package vcs

import (
	"path"
	"slices"
	"strings"
)

// hgSections are those of a configuration of Mercurial's, or Sapling's, whose values name what
// is executed: hg help config.
var hgSections = [...]string{"hooks", "extensions", "alias", "merge-tools", "extdiff", "diff-tools", "fix", "pager"}

// hgCommands are the keys of [ui] that do.
var hgCommands = [...]string{"ui.editor", "ui.ssh", "ui.merge", "ui.patch"}

// IsHgConfig reports whether a path is that of a repository's own configuration.
func IsHgConfig(rel string) bool {
	dir, name := path.Split(rel)
	switch path.Base(path.Clean(dir)) {
	case ".hg":
		return name == "hgrc" || name == "hgrc-not-shared"
	case ".sl", "sl":
		return name == "config"
	}
	return false
}

// HgPrograms returns what a configuration of Mercurial's has it execute, as commands, and the
// files that it reads with it: mercurial/config.py.
func HgPrograms(b []byte) (commands, included []string) {
	section, key := "", ""
	for line := range strings.Lines(string(b)) {
		text := strings.TrimSpace(line)
		value := text
		switch {
		case text == "" || text[0] == '#' || text[0] == ';':
			continue
		case strings.HasPrefix(text, "%include"):
			included = append(included, strings.TrimSpace(text[len("%include"):]))
			continue
		case line[0] == ' ' || line[0] == '\t': // goes on with the value above
		case text[0] == '[':
			section, _, _ = strings.Cut(text[1:], "]")
			continue
		default:
			key, value, _ = strings.Cut(text, "=")
			key = strings.TrimSpace(key)
		}
		if slices.Contains(hgSections[:], section) || slices.Contains(hgCommands[:], section+"."+key) {
			value = strings.TrimLeft(strings.TrimSpace(value), "!$ ")
			// A function in a file: python:tools/check.py:main
			if file, is := strings.CutPrefix(value, "python:"); is {
				if colon := strings.LastIndexByte(file, ':'); colon > 0 {
					file = file[:colon]
				}
				value = file
			}
			commands = append(commands, value)
		}
	}
	return commands, included
}
