package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// TestPages holds the examples of README.md, docs/ and the helps to the command
// line: each is one that pccrun takes, with flags that there are, and what it
// says of the policy resolves.
func TestPages(t *testing.T) {
	texts := map[string]string{}
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "../../README.md") {
		data, err := os.ReadFile(page)
		require.NoError(t, err)
		texts[filepath.Base(page)] = string(data)
	}
	for _, v := range verbs() {
		texts["help "+v.name] = regexp.MustCompile(`(?m)^(example:| {9}pccrun) ?`).ReplaceAllStringFunc(v.help(), func(s string) string {
			return "    " + strings.TrimLeft(strings.TrimPrefix(s, "example:"), " ")
		})
	}
	texts["help"] = strings.ReplaceAll(page("pccrun"), "\n  pccrun", "\n    pccrun")

	home := t.TempDir()
	t.Setenv("HOME", home)
	// A repository, for what names its origin.
	require.NoError(t, os.MkdirAll(home+"/project/.git", 0o755))
	require.NoError(t, os.WriteFile(home+"/project/.git/config", []byte("[remote \"origin\"]\n\turl = https://github.com/acme/app\n"), 0o644))
	t.Chdir(home + "/project")
	total := 0
	for name, text := range texts {
		for _, line := range examples(text) {
			require.NoErrorf(t, takes(shellWords(line)), "%s: %s", name, line)
			total++
		}
	}
	require.Greater(t, total, 150, "hardly an example was found")
	for _, d := range policyFlags(&profiles.Request{}) {
		require.Truef(t, strings.Contains(texts["policy.md"], "`"+d.name), "docs/policy.md does not name %s", d.name)
	}
}

// examples are the command lines of a page, in blocks and in the text.
func examples(text string) (list []string) {
	rest := new(strings.Builder)
	for line := range strings.Lines(text) {
		if line, is := strings.CutPrefix(line, "    "); is {
			if line = strings.TrimPrefix(line, "$ "); strings.HasPrefix(line, "pccrun ") {
				list = append(list, strings.TrimSpace(line))
			}
			continue
		}
		rest.WriteString(line)
	}
	for _, m := range regexp.MustCompile("`(pccrun [^`]+)`").FindAllStringSubmatch(rest.String(), -1) {
		list = append(list, strings.Join(strings.Fields(m[1]), " "))
	}
	return list
}

// shellWords splits a line as sh does, up to what ends a command or its comment.
func shellWords(line string) (words []string) {
	var word strings.Builder
	begun, quote := false, rune(0)
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == ' ':
			end()
		case r == '>' || r == '|' || r == '&' || r == ';' || r == '#' && !begun:
			end()
			return words
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	end()
	return words
}

// takes is why pccrun would not take a command line. Of one that shows a form, with
// parts in brackets, only the flags are looked at.
func takes(words []string) error {
	words = current(words[1:])
	table := verbs()
	i := max(0, slices.IndexFunc(table, func(v verb) bool { return len(words) > 0 && v.name == words[0] }))
	switch {
	case len(words) == 0 || words[0] == "VERB" || words[0] == "--version" || words[0] == "[FLAGS]" || words[0] == "--help":
		return nil
	case i > 0 || words[0] == "run":
		words = words[1:]
	case words[0][0] != '-':
		return errors.New("no such verb: " + words[0])
	}
	of := verbFlags(table[i])
	form := false
	for _, w := range words {
		form = form || strings.ContainsAny(w, "[]")
		name, _, _ := strings.Cut(strings.Trim(w, "[]"), "=")
		if name == "--" {
			break
		}
		if strings.HasPrefix(name, "-") && name != "-" && !slices.Contains(of, name) {
			return errors.New("no such flag of " + table[i].name + ": " + name)
		}
	}
	if form || i > 0 && !strings.Contains(table[i].help(), "FLAGS") || table[i].name == "escape" {
		return nil
	}
	var text, home string
	var is bool
	own := flags{"--session": &text, "--save": &is, "--bundle": &text, "--terminal": &is, "--format": &text, "--why": &is}
	if table[i].name == "task" {
		for _, name := range strings.Fields("--agent --model --prompt-file --name --base --prepare --prepare-allow --check --until --max-runs --commit --git-user --git-email --continue --worktree --notify --wait --file --jobs --total-budget --results") {
			own[name] = new(string)
		}
		for _, name := range strings.Fields("--in-place --dirty --forget-flags --all --force --stat --name-only --fail-fast --try") {
			own[name] = new(bool)
		}
	}
	req := &profiles.Request{Host: profiles.ThisHost()}
	bare, command, _, err := parse(words, homeElsewhere(append(runFlags(req), own.defs()...), &home))
	if err != nil {
		return err
	}
	if len(bare) > 0 && i == 0 {
		return errors.New("-- is missing before " + bare[0])
	}
	req.Command = command
	if req.Profile != "" && !slices.Contains(profiles.Builtin(), req.Profile) {
		req.Profile = "" // the reader's own
	}
	if home != "" {
		req.Host.Home, req.Host.Elsewhere = home, true
	}
	if _, err := profiles.Resolve(*req); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
