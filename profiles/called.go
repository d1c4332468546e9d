package profiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// scripts are what an interpreter is given by name, executable or not.
var scripts = [...]string{".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".ps1"}

// Nobody has more programs that are protected so, or names more paths in a file: an agent that
// may write a part of one (what it remembers of prompts) could fill it. What lies beyond is told.
const (
	maxCalled    = 256
	maxMentioned = 1 << 14
	maxSettings  = 16 << 20 // bytes: what an agent keeps of a user's projects grows
)

// called protects the programs that the settings of an agent name in what the agent keeps for
// itself: hooks, a status line, servers. The settings cannot be changed from inside; what
// they name, under a name of the user's own, is what the agent outside starts next.
func (b *builder) called() {
	p := b.policy
	var settings []string
	for _, r := range p.Protect {
		switch filepath.Ext(r.Pattern) {
		case ".json", ".toml", ".yaml", ".yml":
			if strings.HasPrefix(r.Pattern, "/") && !r.Review {
				settings = append(settings, r.Pattern)
			}
		}
	}
	for _, f := range p.Keyed {
		settings = append(settings, f.Path)
	}
	n := 0
	for _, file := range settings {
		if p.Decide(file).Access < Read {
			continue // it is not the agent's of this run
		}
		open := func(why string) {
			p.Warnings = append(p.Warnings, file+": "+why+": programs that it names may be changed")
		}
		text, err := readUpTo(file, followLinks, maxSettings)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
			continue
		}
		if err != nil {
			open(err.Error())
			continue
		}
		paths, all := mentioned(string(text), p.Home)
		for _, path := range paths {
			d := p.Decide(path)
			if d.Access != Write || !p.Recalls(d.Rule.Path, d.Rule) {
				continue
			}
			if _, ok := p.Protected(path); ok || !runnable(path) {
				continue
			}
			if n++; n > maxCalled {
				all = false
				break
			}
			p.Protect = append(p.Protect, ProtectRule{Pattern: path, Origin: Origin{Source: file, Key: "what it names"}})
		}
		if !all {
			open("more paths than are looked at")
		}
	}
}

// runnable reports whether a file is executed where a command names it: also one that is not
// there yet, by its name.
func runnable(path string) bool {
	script := slices.Contains(scripts[:], filepath.Ext(path))
	info, err := os.Stat(path)
	if err != nil {
		return script
	}
	return info.Mode().IsRegular() && (script || info.Mode()&0o111 != 0)
}

// mentioned returns the paths in a text of whatever format, but those to which a command in
// it writes (>> ~/.claude/log), and whether these are all.
func mentioned(text, home string) (list []string, all bool) {
	text = strings.ReplaceAll(text, "${HOME}", "$HOME")
	seen := map[string]bool{}
	into := false // the next word is written to
	for start, i := 0, 0; i <= len(text); i++ {
		if i < len(text) && !endsWord(text[i]) {
			continue
		}
		if word := text[start:i]; word != "" {
			path := word
			for _, prefix := range [...]string{"~/", "$HOME/"} {
				if rest, is := strings.CutPrefix(word, prefix); is {
					path = home + "/" + rest
				}
			}
			if path[0] == '/' && !into && !strings.ContainsAny(path, "*?\x00") {
				if path = filepath.Clean(path); !seen[path] {
					if len(list) == maxMentioned {
						return list, false
					}
					seen[path] = true
					list = append(list, path)
				}
			}
			into = false
		}
		if start = i + 1; i == len(text) {
			break
		}
		switch text[i] {
		case '>':
			into = true
		case ' ', '\t', '"', '\'', '\\':
		default:
			into = false
		}
	}
	return list, true
}

// endsWord reports whether no path goes on there: white space, quotes, what a shell or a format
// puts between words.
func endsWord(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', '"', '\'', '`', '\\', ';', '&', '|', '(', ')', '<', '>', ',', '=', '[', ']', '{', '}':
		return true
	}
	return false
}
